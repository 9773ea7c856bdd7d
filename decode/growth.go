package decode

import "time"

// This file is how many blocks a sequence takes as it generates.

// generated returns the tokens that each sequence of l should have by now, at the pace of its replica.
func (p *Pool) generated(l *Lease, now time.Time) int {
	return l.generated(p.learned.perToken(l.member), now)
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
	size := l.member.cache().blockSize()
	end := blocksOf(l.member.cache().slots(l.entry.Tokens+generated+rest), size)
	return l.entry.Sequences * (end - blocksOf(l.has(generated), size))
}

// has is the number of token slots of each sequence after so many generated tokens. Before the first token
// nothing is drafted.
func (l *Lease) has(generated int) int {
	if generated == 0 {
		return l.entry.Tokens
	}
	return l.member.cache().slots(l.entry.Tokens + generated)
}
