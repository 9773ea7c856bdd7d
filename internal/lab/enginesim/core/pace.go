package core

import "time"

// Batch is the work of one step, in more detail than [Cost] needs, for a [Pace].
type Batch struct {
	Chunks  []Chunk // pieces of prompts, in the order of scheduling
	Decode  int     // sequences that generate a token
	Context int     // tokens of KV that these sequences read, in total
}

// Chunk is a piece of one prompt.
type Chunk struct {
	New      int // tokens to compute
	Computed int // tokens before them, computed or cached
}

// Tokens is the number of tokens that the dense layers compute.
func (b *Batch) Tokens() int {
	n := b.Decode
	for _, c := range b.Chunks {
		n += c.New
	}
	return n
}

// Sequences is the number of sequences that the sampler handles.
func (b *Batch) Sequences() int { return b.Decode + len(b.Chunks) }

// Pace predicts the duration of steps, instead of a [Cost]. b is valid until Took returns.
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

// took returns the time of the scheduled chunks. w is their sum.
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
