package core

import "time"

// This file is speculative decoding as far as a router sees it: several tokens a step, slots that are held
// ahead of the tokens, and the prompt tokens that a prefill leaves to decode. Drafts change no text: what
// is accepted is what would have been drawn.

// ahead is how many slots beyond its next token a sequence that generates holds: those of the drafts that
// are verified, and those of the next ones (num_lookahead_tokens of the scheduler).
func (e *Engine) ahead(r *request) int {
	if r.done.computed < r.text.prompt {
		return 0
	}
	return min(2*e.cfg.Speculative, e.cfg.MaxModelLen-r.done.computed-1)
}

// drafts reports whether r has drafts in this step: it generates, and has slots for them. One that was
// preempted has none in the step that computes its last token anew.
func (e *Engine) drafts(r *request) bool {
	return e.cfg.Speculative > 0 && r.done.chunk == 1 && r.done.computed >= r.text.prompt &&
		e.blocksFor(r.done.computed+1+e.ahead(r)) <= len(r.blocks.table)
}

// speculate verifies the drafts of a step that has drawn r's next token, and takes in those that are
// accepted.
func (e *Engine) speculate(at time.Duration, r *request) (ended bool) {
	if r.state != running {
		return false
	}
	e.counted.counts.SpecDrafts++
	e.counted.counts.SpecDrafted += uint64(e.cfg.Speculative)
	for range e.accepted(r) {
		r.done.chunk = 1
		e.commit(r, (r.done.computed+1)/e.cfg.BlockSize)
		e.forward(r)
		e.counted.counts.SpecAccepted++
		if e.sample(at, r) {
			return true
		}
	}
	return false
}

// accepted is how many drafts of this step are right: any number, at random, the same every time.
func (e *Engine) accepted(r *request) int {
	return int(finish(mix(r.seq, uint64(len(r.text.tokens)))) % uint64(e.cfg.Speculative+1))
}

// withhold cuts off what a prefill leaves to decode (nixl/base_scheduler.py,
// _truncate_request_for_prefill). A prompt that is no longer than that is prefilled whole.
func (c *Config) withhold(q *Request) *Request {
	if c.Withhold == 0 || q.Transfer == nil || !bool(q.Transfer.DoRemoteDecode) || len(q.Prompt) <= c.Withhold {
		return q
	}
	short := *q
	short.Prompt, short.MaxTokens = q.Prompt[:len(q.Prompt)-c.Withhold], 1
	return &short
}
