package index

import (
	"slices"

	"github.com/tandem-router/tandem/internal/kv"
)

// engine models the block cache of one engine. It records no single blocks, only how far each segment is
// cached: the end of a segment is evicted before its beginning, so the cached part is always a beginning.
type engine struct {
	holder  kv.Holder
	story   *story
	room    int // blocks
	held    int
	marks   map[segment][]mark
	idle    []use // finished turns, the oldest first
	newest  uint32
	running []*work
	path    []span
}

// mark is the last use of the blocks of a segment from the previous mark's end up to end. Within a segment,
// ends rise and uses fall.
type mark struct {
	end int
	use uint32
}

// use is a finished turn. When it is the oldest, the blocks that it used last are evicted.
type use struct {
	turn int
	id   uint32
}

// work is a turn that an engine is computing. Its blocks are not evicted.
type work struct {
	turn     int
	path     []span
	blocks   int           // of the prompt
	done     int           // blocks of the prompt that are cached
	parent   kv.EngineHash // of the next block
	answer   int           // blocks of the answer
	answered int
}

func (w *work) over() bool { return w.done == w.blocks && w.answered == w.answer }

// begin starts a turn and finds which of its blocks are cached.
func (e *engine) begin(turn, longest int) *work {
	w := &work{turn: turn, path: e.story.path(nil, turn, longest), blocks: min(e.story.length(turn), longest)}
	if w.blocks > 0 {
		w.answer = min(e.story.answer(turn), longest/4)
	}
	for _, part := range w.path {
		there := min(max(e.end(part.of), part.from), part.to)
		if w.done = there; there > part.from {
			w.parent = hashOf(e.holder, part.of, there-1)
		}
		if there < part.to {
			break
		}
	}
	e.running = append(e.running, w)
	return w
}

// end returns the number of cached blocks of a segment.
func (e *engine) end(of segment) int {
	if m := e.marks[of]; len(m) > 0 {
		return m[len(m)-1].end
	}
	return 0
}

// prefill stores the next n blocks of a prompt in one event, after the removals that make room for them.
func (e *engine) prefill(b *kv.Batch, w *work, n int) {
	e.makeRoom(b, n)
	ev := nextEvent(b, kv.Stored)
	ev.Parent, ev.HasParent = w.parent, w.done > 0
	for upTo, i := w.done+n, 0; i < len(w.path); i++ {
		part := w.path[i]
		part.from, part.to = max(part.from, w.done), min(part.to, upTo)
		if part.from < part.to {
			w.parent = e.append(ev, part)
			w.done = part.to
		}
	}
	e.finish(w)
}

// decode adds a block to each running answer, one event each, after the removals that make room.
func (e *engine) decode(b *kv.Batch) {
	e.makeRoom(b, len(e.running))
	for _, w := range slices.Clone(e.running) {
		ev := nextEvent(b, kv.Stored)
		ev.Parent, ev.HasParent = w.parent, true
		w.parent = e.append(ev, span{answerOf(w.turn), w.answered, w.answered + 1})
		w.answered++
		e.finish(w)
	}
}

// append adds blocks to an event and to the cache. It returns the hash of the last block.
func (e *engine) append(ev *kv.Event, part span) (last kv.EngineHash) {
	for at := part.from; at < part.to; at++ {
		last = hashOf(e.holder, part.of, at)
		ev.Hashes = append(ev.Hashes, last)
		ev.Tokens = appendTokens(ev.Tokens, part.of, at)
	}
	e.held += part.to - part.from
	e.touch(part.of, part.to, e.newest)
	return last
}

// finish removes w from the running turns if it is over.
func (e *engine) finish(w *work) {
	if !w.over() {
		return
	}
	e.newest++
	e.touchAll(w)
	e.idle = append(e.idle, use{w.turn, e.newest})
	e.running = slices.DeleteFunc(e.running, func(o *work) bool { return o == w })
}

// touchAll marks the blocks of a turn as used now.
func (e *engine) touchAll(w *work) {
	for _, part := range w.path {
		if part.from < w.done {
			e.touch(part.of, min(part.to, w.done), e.newest)
		}
	}
	if w.answered > 0 {
		e.touch(answerOf(w.turn), w.answered, e.newest)
	}
}

// touch marks the blocks of a segment up to end as cached and last used by id, the newest use.
func (e *engine) touch(of segment, end int, id uint32) {
	m := e.marks[of]
	n := 0
	for n < len(m) && m[n].end <= end {
		n++
	}
	e.marks[of] = slices.Replace(m, 0, n, mark{end, id})
}

// makeRoom evicts blocks until n more find room, and adds one removal event per block to b. It evicts the
// least recently used blocks first, and the end of a prompt before its beginning.
func (e *engine) makeRoom(b *kv.Batch, n int) {
	over := e.held + n - e.room
	if over <= 0 {
		return
	}
	e.newest++
	for _, w := range e.running {
		e.touchAll(w)
	}
	for over > 0 {
		if over -= e.evict(b, e.idle[0], over); over > 0 {
			e.idle = e.idle[1:]
		}
	}
}

// evict removes up to n of the blocks that were last used by u.
func (e *engine) evict(b *kv.Batch, u use, n int) (evicted int) {
	evicted = e.trim(b, answerOf(u.turn), 0, u.id, n)
	e.path = e.story.path(e.path[:0], u.turn, e.story.length(u.turn))
	for i := len(e.path) - 1; i >= 0 && evicted < n; i-- {
		evicted += e.trim(b, e.path[i].of, e.path[i].from, u.id, n-evicted)
	}
	return evicted
}

// trim removes up to n blocks from the end of a segment, down to block from, if id is their last use.
func (e *engine) trim(b *kv.Batch, of segment, from int, id uint32, n int) (gone int) {
	m := e.marks[of]
	if len(m) == 0 || m[len(m)-1].use != id {
		return 0
	}
	last := &m[len(m)-1]
	if len(m) > 1 {
		from = m[len(m)-2].end
	}
	for ; gone < n && last.end > from; gone++ {
		last.end--
		ev := nextEvent(b, kv.Removed)
		ev.Hashes = append(ev.Hashes, hashOf(e.holder, of, last.end))
	}
	e.held -= gone
	if last.end > from {
		return gone
	}
	if m = m[:len(m)-1]; len(m) == 0 {
		delete(e.marks, of)
	} else {
		e.marks[of] = m
	}
	return gone
}

// nextEvent appends an event with the fields that vLLM 0.32 sets. It reuses the slices of an earlier event.
func nextEvent(b *kv.Batch, kind kv.EventKind) *kv.Event {
	if n := len(b.Events); n < cap(b.Events) {
		b.Events = b.Events[:n+1]
	} else {
		b.Events = append(b.Events, kv.Event{})
	}
	e := &b.Events[len(b.Events)-1]
	*e = kv.Event{Kind: kind, Hashes: e.Hashes[:0], Tokens: e.Tokens[:0]}
	if kind == kv.Stored {
		e.BlockSize, e.SpecKind = blockTokens, "full_attention"
	}
	return e
}
