package decode

// A sequence of an engine that speculates holds slots ahead of its tokens: for the drafts of a step, and
// for those of the next (vLLM's num_lookahead_tokens). An engine runs out of blocks while its answers seem
// to have room, and takes a running request's to go on.

// drafts is how many tokens the engine drafts for each sequence and step: by its own counters, else by its
// facts.
func (m *member) drafts() int {
	if m.drafted > 0 {
		return m.drafted
	}
	return m.R.Facts.Drafts
}

// slots is how many tokens' room a sequence holds that has so many tokens and generates.
func (m *member) slots(tokens int) int {
	ahead := 2 * m.drafts()
	if longest := m.R.Facts.MaxModelLen; longest > 0 {
		ahead = min(ahead, max(0, longest-tokens))
	}
	return tokens + ahead
}
