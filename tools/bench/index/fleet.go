package index

import "github.com/tandem-router/tandem/internal/kv"

// decodes is how many turns an engine works on at once.
const decodes = 4

// fleet is a set of engines that work through a story, one turn after the other. They publish as vLLM does.
// Each step sends one batch: stored blocks together as computed, and one removal per hash for the blocks
// that had to go.
type fleet struct {
	story   *story
	engines []engine
	// Most blocks of a prompt; an answer has at most a quarter. All work of an engine must fit in its cache.
	longest int
	turn    int // the last that arrived
	where   []kv.Holder
	dice    dice

	at   *engine // where the turn is
	work *work
}

// newFleet returns engines that together hold resident blocks once they are full.
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

// next fills b with what one engine publishes after one step, and returns its holder.
func (f *fleet) next(b *kv.Batch) kv.Holder {
	for !f.step(b) {
		f.arrive()
	}
	return f.at.holder
}

// arrive has the next turn come in at an engine.
func (f *fleet) arrive() {
	f.turn++
	f.at = &f.engines[f.place(f.turn)]
	f.where[f.turn%len(f.where)] = f.at.holder
	f.work = f.at.begin(f.turn, f.longest)
	f.at.finish(f.work)
}

// place chooses as a router would that knows what lies where and minds the load: nine of ten turns follow the
// one they continue, the others go where there is more room.
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

// step has the turn's engine prefill the next part of the prompt or, until it can take another turn, decode.
// It reports whether there was anything to do.
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
