package decode

import (
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
)

// This file is how many blocks a sequence takes as it generates.

// generated returns the tokens that each sequence of l should have by now, at the pace of its replica.
func (p *Pool) generated(l *Lease, now time.Time) int {
	return l.generated(p.stepOf(l.member)*l.member.learned.PerToken(), now)
}

// stepOf returns the seconds that a step takes with all that m decodes.
func (p *Pool) stepOf(m *member) float64 {
	load := m.decodes()
	return p.speed(m).Step(int(load.Sequences), int(load.Tokens))
}

// step returns the seconds of a decode step with all that m has, sent or on their way.
func (m *member) step(speed *estimate.Speed) float64 {
	return speed.Step(m.batch(), int(m.reads(float64(m.batch()))))
}

// generated is [Pool.generated] with a known time per token.
func (l *Lease) generated(step float64, now time.Time) int {
	began := l.began()
	if began.IsZero() || !now.After(began) {
		return 0
	}
	tokens := int(now.Sub(began).Seconds() / step)
	if l.limit >= 0 {
		tokens = min(tokens, l.limit)
	}
	return tokens
}

// expectedGrowth returns the blocks that l may add after each sequence has generated so many tokens.
func (l *Lease) expectedGrowth(generated int) int {
	left := -1
	if l.limit >= 0 {
		left = max(0, l.limit-generated)
	}
	rest := l.lengths.Room(generated, left)
	size := l.member.blockSize()
	end := blocksOf(l.member.slots(l.entry.Tokens+generated+rest), size)
	return l.entry.Sequences * (end - blocksOf(l.has(generated), size))
}

// has is the number of token slots of each sequence after so many generated tokens. Before the first token
// nothing is drafted.
func (l *Lease) has(generated int) int {
	if generated == 0 {
		return l.entry.Tokens
	}
	return l.member.slots(l.entry.Tokens + generated)
}

func blocksOf(tokens, size int) int { return (tokens + size - 1) / size }

// usualBlock is vLLM's default block size, for a member that has not said its own.
const usualBlock = 16

func (m *member) blockSize() int {
	if size := m.R.Facts.BlockSize; size > 0 {
		return size
	}
	return usualBlock
}
