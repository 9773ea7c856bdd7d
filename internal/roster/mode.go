package roster

import (
	"fmt"
	"strings"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
)

// Mode says how it is known which member has which blocks.
type Mode uint8

// The modes.
const (
	Events      Mode = iota // by the engines' block events; a member that publishes none is approximated
	Approximate             // by the prompts that were sent to a member
	Off                     // it is not known: nothing is matched
)

// Indexing says how the index is fed. The zero value follows events and knows no text.
type Indexing struct {
	Mode          Mode
	ChunkBytes    int     // bytes of a chunk of text, to match prompts without token ids; 0 matches none
	CharsPerToken float64 // bytes of text in a token, by estimate; above 0 where ChunkBytes is
}

func (x Indexing) perChunk() float64 { return float64(x.ChunkBytes) / x.CharsPerToken }

// SetIndexing makes x hold from now on. It panics where x does not say how long tokens of text are. Another
// mode forgets the blocks of every member, to be learnt anew; another way to cut text forgets the text.
func (r *Roster[M]) SetIndexing(x Indexing) {
	if x.ChunkBytes > 0 && !(x.CharsPerToken > 0) {
		panic("roster: text is matched without CharsPerToken")
	}
	r.feed.Lock()
	defer r.feed.Unlock()
	r.members.Lock()
	defer r.members.Unlock()
	was := r.indexing
	if x == was {
		return
	}
	r.indexing = x
	if x.Mode != was.Mode {
		r.index.Store(nil)
		for _, e := range r.members.All {
			m := e.member()
			m.mode = x.Mode
			m.trust = replica.TrustUnknown
			m.eventBlockSize = 0
		}
	}
	r.text.Store(nil)
	if x.Mode != Off && x.ChunkBytes > 0 {
		r.text.Store(r.newText())
	}
	r.chooseChain()
}

// Believed says how far the index is to be believed about m: by the state of its events, or approximately,
// from the prompts that we sent there, or not at all.
func (m *Member) Believed() replica.Trust {
	switch {
	case m.mode == Off:
		return replica.Off
	case m.mode == Approximate || m.trust == replica.TrustUnknown && m.R.Facts.Events == (replica.EventSource{}):
		return replica.Approximate
	}
	return m.trust
}

// Blind reports whether the index is unreliable about m: its events are not heard, or a replay is still
// missing. An approximated replica is not blind: nothing better than our own record will come.
func (m *Member) Blind() bool {
	t := m.Believed()
	return t == replica.TrustUnknown || t == replica.Syncing || t == replica.Stale
}

// note describes unusual facts about the index of m, "" if there are none. indexed is its block size.
func (m *Member) note(indexed int) string {
	var says []string
	if m.mode == Events && m.Believed() == replica.Approximate {
		says = append(says, "the engine publishes no events")
	}
	if m.keepsNone() {
		says = append(says, "the engine keeps no prefixes: its prefix caching is off")
	}
	if m.eventBlockSize > 0 && m.R.Facts.BlockSize > 0 && m.eventBlockSize != m.R.Facts.BlockSize {
		says = append(says, fmt.Sprintf("its events tell blocks of %d tokens, where %d were expected",
			m.eventBlockSize, m.R.Facts.BlockSize))
	}
	if size := m.blockSize(); m.mode != Off && size > 0 && indexed > 0 && size != indexed {
		says = append(says, fmt.Sprintf(
			"its blocks have %d tokens and those of the pool's index %d: they are not matched", size, indexed,
		))
	}
	return strings.Join(says, "; ")
}

// keepsNone reports whether the engine said that it keeps no prefixes. The data type of the cache stands in
// the same line of its metrics.
func (m *Member) keepsNone() bool { return m.R.Facts.KeepsNoPrefixes() }

// text is the index of prompts by their text.
type text struct {
	*kv.Index
	chunk    int     // bytes
	perChunk float64 // tokens, by estimate
}

func (r *Roster[M]) newText() *text {
	x := r.indexing
	return &text{kv.NewIndex(kv.Options{ByteBudget: r.indexBytes / textShare}), x.ChunkBytes, x.perChunk()}
}

// textShare is the part of the pool's memory that is for text.
const textShare = 8

// TextChain returns the chain that names chunks of text for model. adapter is the adapter that the chain's
// root takes, and perChunk the tokens of a chunk by estimate. ok is false while no member serves the model,
// and where no text is matched.
func (r *Roster[M]) TextChain(model string) (chain kv.TextChain, adapter string, perChunk float64, ok bool) {
	tx := r.text.Load()
	if tx == nil {
		return kv.TextChain{}, "", 0, false
	}
	r.members.Lock()
	defer r.members.Unlock()
	for _, e := range r.members.All {
		if m := e.member(); m.R.Serves(model) {
			return kv.NewTextChain(m.R.Facts.Model, tx.chunk), m.R.Adapter(model), tx.perChunk, true
		}
	}
	return kv.TextChain{}, "", 0, false
}
