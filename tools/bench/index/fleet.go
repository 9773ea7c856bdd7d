package index

import "github.com/tandem-router/tandem/internal/kv"

// decodes is the number of turns that an engine runs at once.
const decodes = 4

// fleet is a set of engines that play a story, one turn after the other. They publish events as vLLM does.
// Each step sends one batch: the computed blocks together in one event, and one removal event per evicted
// block.
type fleet struct {
	story   *story
	engines []engine
	// Maximum of a prompt's blocks; an answer has at most a quarter. All work of an engine must fit in its
	// cache.
	longest int
	turn    int // the latest turn
	where   []kv.Holder
	dice    dice

	at   *engine // the engine of the latest turn
	work *work
}

// newFleet returns engines that together hold resident blocks when they are full.
func newFleet(s *story, holders, resident int) *fleet {
	room := resident / holders
	f := &fleet{
		story: s, engines: make([]engine, holders), longest: room / (2 * decodes), turn: -1,
		where: make([]kv.Holder, len(s.turns)), dice: seedOf("fleet"),
	}
	for h := range f.engines {
		f.engines[h] = engine{holder: kv.Holder(h), story: s, room: room, marks: map[segment][]mark{}}
	}
	return f
}

func (f *fleet) held() (n int) {
	for i := range f.engines {
		n += f.engines[i].held
	}
	return n
}

// next fills b with the events of one step of one engine, and returns the engine's holder.
func (f *fleet) next(b *kv.Batch) kv.Holder {
	for !f.step(b) {
		f.arrive()
	}
	return f.at.holder
}

// arrive starts the next turn at an engine.
func (f *fleet) arrive() {
	f.turn++
	f.at = &f.engines[f.place(f.turn)]
	f.where[f.turn%len(f.where)] = f.at.holder
	f.work = f.at.begin(f.turn, f.longest)
	f.at.finish(f.work)
}

// place chooses an engine like a router that knows caches and load: nine of ten turns go to the engine of the
// turn that they continue. The others go to the emptier of two random engines.
func (f *fleet) place(t int) kv.Holder {
	if like, _ := f.story.like(t); like >= 0 && f.dice.below(10) > 0 {
		return f.where[like%len(f.where)]
	}
	a, b := f.dice.below(len(f.engines)), f.dice.below(len(f.engines))
	if f.engines[b].room-f.engines[b].held > f.engines[a].room-f.engines[a].held {
		a = b
	}
	return kv.Holder(a)
}

// step lets the engine of the latest turn prefill the next part of the prompt. If the prompt is complete and
// the engine runs as many turns as it may, the engine decodes. step reports whether there was anything to do.
func (f *fleet) step(b *kv.Batch) bool {
	b.Events = b.Events[:0]
	switch {
	case f.at == nil:
		return false
	case f.work.done < f.work.blocks:
		f.at.prefill(b, f.work, min(stepBlocks, f.work.blocks-f.work.done))
		return true
	case len(f.at.running) >= decodes:
		f.at.decode(b)
		return true
	}
	return false
}
