package decode

import "tandem/scoring"

// need returns the blocks of the prompt, those with the expected answer, and the limit of new tokens.
func (m *member) need(q *Query, expected *answer) (prompt, whole, limit int) {
	limit = -1
	if q.MaxTokens > 0 {
		limit = q.MaxTokens
	}
	if n := m.R.Facts.MaxModelLen; n > 0 && (limit < 0 || n-q.Tokens < limit) {
		limit = max(0, n-q.Tokens)
	}
	size := m.blockSize()
	prompt = blocksOf(q.Tokens, size)
	growth := blocksOf(m.slots(q.Tokens+expected.within(limit)), size) - prompt
	return prompt, prompt + max(q.Sequences, 1)*growth, limit
}

// answer is the expected length of one sequence, remembered for the limit that it was asked for last: members
// hardly ever differ.
type answer struct {
	lengths     *scoring.OutputLength
	limit, rest int
	known       bool
}

func (a *answer) within(limit int) int {
	if !a.known || a.limit != limit {
		a.limit = limit
		a.rest = a.lengths.Rest(0, limit)
		a.known = true
	}
	return a.rest
}

func (p *Pool) answerOf(q *Query) answer {
	if l := p.lengths[q.Model]; l != nil {
		return answer{lengths: l}
	}
	return answer{lengths: &p.answers}
}
