package index

import (
	"slices"

	"github.com/tandem-router/tandem/internal/kv"
)

// engine is what the bench knows of one engine's block cache. It keeps no block by itself, only how far each
// segment is there: ends go before beginnings, so what is there is a beginning.
type engine struct {
	holder  kv.Holder
	story   *story
	room    int // blocks
	held    int
	marks   map[segment][]mark
	idle    []use // turns that are over, by the time they were, oldest first
	newest  uint32
	running []*work
	path    []span
}

// mark says when the blocks of a segment up to end, behind those of the mark before, were used last. Ends
// rise within a segment, and uses fall.
type mark struct {
	end int
	use uint32
}

// use is a turn that is over; the blocks whose latest use it is go when it is the oldest.
type use struct {
	turn int
	id   uint32
}

// work is a turn that an engine works on. Its blocks stay.
type work struct {
	turn     int
	path     []span
	blocks   int           // of the prompt
	done     int           // those that are there
	parent   kv.EngineHash // of the next block
	answer   int           // blocks
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

// end returns where the blocks of a segment end that are there, 0 if none is.
func (e *engine) end(of segment) int {
	if m := e.marks[of]; len(m) > 0 {
		return m[len(m)-1].end
	}
	return 0
}

// prefill stores the next n blocks of a prompt in one event, behind removals that make room for them.
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

// decode adds a block to each answer under way, an event each, behind the removals that make room.
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

// append adds blocks to an event and to what is there, and returns the hash of the last one.
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

// finish lets a turn go that is over.
func (e *engine) finish(w *work) {
	if !w.over() {
		return
	}
	e.newest++
	e.touchAll(w)
	e.idle = append(e.idle, use{w.turn, e.newest})
	e.running = slices.DeleteFunc(e.running, func(o *work) bool { return o == w })
}

// touchAll has the blocks of a turn be used now.
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

// touch has the blocks of a segment up to end be there and used by id, the newest use.
func (e *engine) touch(of segment, end int, id uint32) {
	m := e.marks[of]
	n := 0
	for n < len(m) && m[n].end <= end {
		n++
	}
	e.marks[of] = slices.Replace(m, 0, n, mark{end, id})
}

// makeRoom adds to b, an event each, the removal of as many blocks as must go before n more find room: those
// used least recently, a prompt's end before its beginning.
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

// evict removes up to n of the blocks whose latest use is u.
func (e *engine) evict(b *kv.Batch, u use, n int) (evicted int) {
	evicted = e.trim(b, answerOf(u.turn), 0, u.id, n)
	e.path = e.story.path(e.path[:0], u.turn, e.story.length(u.turn))
	for i := len(e.path) - 1; i >= 0 && evicted < n; i-- {
		evicted += e.trim(b, e.path[i].of, e.path[i].from, u.id, n-evicted)
	}
	return evicted
}

// trim removes up to n blocks from the end of a segment that begins at block from, if they were used last by
// id.
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

// nextEvent appends an event as vLLM 0.32 would fill it, on top of the slices that stood in its place before.
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
