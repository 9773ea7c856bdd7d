package enginesim

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/kvevents"
	"github.com/tandem-router/tandem/internal/rawjson"
)

// keptEvents is how many server-sent events a client can ask for again.
const keptEvents = 4096

// eventFeed is the events of an engine core as server-sent events, one change of one block each, for engines
// that are not vLLM: vLLM has no such path. internal/kvevents has the form.
type eventFeed struct {
	mu   sync.Mutex // guards the following
	next uint64     // id of the next event
	kept [][]byte   // the newest events, whole; the last one has the id before next
	drop int        // batches to come that get ids and are sent to nobody
	held map[kv.EngineHash]int
	more chan struct{} // closed when there is more than there was
}

func newEventFeed() *eventFeed {
	return &eventFeed{held: map[kv.EngineHash]int{}, more: make(chan struct{})}
}

// restart is another process: it counts from 0, and nobody is sent what the one before said.
func (f *eventFeed) restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next, f.kept = 0, nil
	clear(f.held)
	f.wake()
}

func (f *eventFeed) wake() {
	close(f.more)
	f.more = make(chan struct{})
}

// lose lets the next batches go to nobody.
func (f *eventFeed) lose(batches int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop += batches
}

// add sends a batch.
func (f *eventFeed) add(b *kvevents.EncodeBatch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range b.Events {
		f.change(&b.Events[i])
	}
	if f.drop > 0 {
		f.drop--
		f.kept = nil
		return
	}
	f.kept = f.kept[max(0, len(f.kept)-keptEvents):]
	f.wake()
}

func (f *eventFeed) change(e *kv.Event) {
	switch e.Kind {
	case kv.Stored:
		for i, hash := range e.Hashes {
			f.held[hash]++
			f.say("cache_created", hash, blockOf(e, i))
		}
	case kv.Removed:
		for _, hash := range e.Hashes {
			if f.held[hash]--; f.held[hash] <= 0 {
				delete(f.held, hash)
			}
			f.say("cache_evicted", hash, "")
		}
	case kv.Cleared:
		for hash, copies := range f.held {
			for range copies {
				f.say("cache_purged", hash, "")
			}
		}
		clear(f.held)
	}
}

// say appends one event. more is further members of its data.
func (f *eventFeed) say(kind string, hash kv.EngineHash, more string) {
	f.kept = append(f.kept, fmt.Appendf(nil, "id: %d\nevent: %s\ndata: {\"prefix_hash\":\"%016x\"%s}\n\n",
		f.next, kind, uint64(hash), more))
	f.next++
}

// blockOf says what block i of a stored event is made of.
func blockOf(e *kv.Event, i int) string {
	var b strings.Builder
	parent, has := e.Parent, e.HasParent
	if i > 0 {
		parent, has = e.Hashes[i-1], true
	}
	if has {
		fmt.Fprintf(&b, `,"parent_hash":"%016x"`, uint64(parent))
	}
	tokens := e.Tokens[i*e.BlockSize : (i+1)*e.BlockSize]
	fmt.Fprintf(&b, `,"token_count":%d,"token_ids":[`, len(tokens))
	for j, token := range tokens {
		if j > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(int(token)))
	}
	b.WriteString(`],"lora_name":`)
	b.Write(rawjson.AppendString(nil, e.LoRA))
	if i == 0 && e.Salt != "" {
		b.WriteString(`,"cache_salt":`)
		b.Write(rawjson.AppendString(nil, e.Salt))
	}
	if i < len(e.Extra) && e.Extra[i] != nil {
		fmt.Fprintf(&b, `,"extra_keys":["%x"]`, e.Extra[i])
	}
	return b.String()
}

// since returns the events from an id on that are still to be had, the id behind them, and what is closed
// when there are more. An id that was not given out yet is of another process: everything comes then.
func (f *eventFeed) since(id uint64) (events [][]byte, next uint64, more <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := f.next - uint64(len(f.kept))
	if id > f.next || id < first {
		id = first
	}
	return f.kept[id-first:], f.next, f.more
}

// newest is the id of the next event.
func (f *eventFeed) newest() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.next
}

// sendEvents answers with the events from now on, or from behind the one that the client had last.
func (s *Server) sendEvents(k *call) {
	s.calls.busy.Add(-1) // no work, as /load tells it
	defer s.calls.busy.Add(1)
	feed := s.cores.ranks[0].events.feed
	next := feed.newest()
	if last, err := strconv.ParseUint(k.head.lastEvent, 10, 64); err == nil {
		next = last + 1
	}
	k.stream()
	for {
		events, behind, more := feed.since(next)
		for _, e := range events {
			k.event(e)
		}
		next = behind
		k.flush()
		if k.broken {
			return
		}
		select {
		case <-more:
		case <-k.c.gone:
			return
		case <-s.life.ctx.Done():
			return
		}
	}
}
