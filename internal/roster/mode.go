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

// note describes unusual facts about the index of m, "" if there are none. matched is the size of the blocks
// that prompts of its model are matched by.
func (m *Member) note(matched int) string {
	var says []string
	if m.mode == Events && m.Believed() == replica.Approximate {
		says = append(says, "the engine publishes no events")
	}
	if m.keepsNone() {
		says = append(says, "the engine keeps no prefixes: its prefix caching is off")
	}
	if m.blocks.told > 0 && m.R.Facts.BlockSize > 0 && m.blocks.told != m.R.Facts.BlockSize {
		says = append(says, fmt.Sprintf("its events tell blocks of %d tokens, where %d were expected",
			m.blocks.told, m.R.Facts.BlockSize))
	}
	if size := m.blockSize(); m.mode != Off && size > 0 && matched > 0 && size != matched {
		says = append(says, fmt.Sprintf(
			"its blocks have %d tokens, and prompts of its model are matched by %d: it never matches",
			size, matched,
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

// textShare is the part of the pool's memory that is for text.
const textShare = 8

// Status is the facts about one member that both kinds of pools have.
type Status struct {
	ID      replica.ID    `json:"id"`
	Healthy bool          `json:"healthy"`
	Reason  string        `json:"reason,omitzero"` // why not healthy
	Trust   replica.Trust `json:"index"`
	Note    string        `json:"index_note,omitzero"` // unusual facts about its index
	// Tokens of its blocks: by its events, else by its facts or the configuration.
	BlockSize int `json:"block_size,omitzero"`
	Blocks    int `json:"indexed_blocks"`          // that the index believes it has
	Chunks    int `json:"indexed_chunks,omitzero"` // of text that it was sent
	// The byte budget made the index drop blocks of the replica: it may have more than is known.
	Truncated bool `json:"index_truncated,omitzero"`
}

// Counts is how much each holder has in the indexes, and how much was dropped from them.
type Counts struct {
	blocks, chunks map[kv.Holder]int
	truncated      map[kv.Holder]uint64
}
