package core

import "time"

// Batch is what one step computes, for a [Pace] that wants to know more than [Cost] does.
type Batch struct {
	Chunks  []Chunk // pieces of prompts, in the order of scheduling
	Decode  int     // sequences that make one more token
	Context int     // tokens of KV that these read, in all
}

// Chunk is a piece of one prompt.
type Chunk struct {
	New      int // tokens to compute
	Computed int // tokens before them, computed or cached
}

// Tokens are what the dense layers see.
func (b *Batch) Tokens() int {
	n := b.Decode
	for _, c := range b.Chunks {
		n += c.New
	}
	return n
}

// Sequences are what the sampler sees.
func (b *Batch) Sequences() int { return b.Decode + len(b.Chunks) }

// Pace tells how long steps take, in the place of a [Cost]. b holds until Took returns.
type Pace interface {
	Took(b *Batch) time.Duration
}

// reset empties b and keeps its memory.
func (b *Batch) reset() {
	b.Chunks = b.Chunks[:0]
	b.Decode = 0
	b.Context = 0
}

func (b *Batch) add(computed, chunk int) {
	if chunk == 1 {
		b.Decode++
		b.Context += computed + 1
		return
	}
	b.Chunks = append(b.Chunks, Chunk{chunk, computed})
}

// took is the time of the scheduled chunks. w is their sum.
func (e *Engine) took(w work) time.Duration {
	if e.cfg.Pace == nil {
		return e.cfg.Cost.of(w)
	}
	e.turn.batch.reset()
	for _, r := range e.turn.scheduled {
		e.turn.batch.add(r.done.computed, r.done.chunk)
	}
	return e.cfg.Pace.Took(&e.turn.batch)
}
