package core

import "time"

// This file is speculative decoding as a router sees it: several tokens per step, slots reserved for tokens
// not yet generated, and prompt tokens that a prefill leaves to decode. Drafts do not change the text: an
// accepted draft is the token that would have been drawn.

// ahead returns the number of slots beyond the next token that a generating sequence reserves: one set for
// the drafts under verification, one for the next drafts (the scheduler's num_lookahead_tokens).
func (e *Engine) ahead(r *request) int {
	if r.done.computed < r.text.prompt {
		return 0
	}
	return min(2*e.cfg.Speculative, e.cfg.MaxModelLen-r.done.computed-1)
}

// drafts reports whether r has drafts in this step: r generates, and has slots for them. After a preemption,
// the step that computes r's last token again has no drafts.
func (e *Engine) drafts(r *request) bool {
	return e.cfg.Speculative > 0 && r.done.chunk == 1 && r.done.computed >= r.text.prompt &&
		e.blocksFor(r.done.computed+1+e.ahead(r)) <= len(r.blocks.table)
}

// speculate verifies the drafts of a step that has drawn r's next token, and appends the accepted ones.
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

// accepted returns the number of accepted drafts in this step. The number is pseudo-random but reproducible.
func (e *Engine) accepted(r *request) int {
	return int(finish(mix(r.seq, uint64(len(r.text.tokens)))) % uint64(e.cfg.Speculative+1))
}

// withhold cuts off the tokens that a prefill leaves to decode (nixl/base_scheduler.py,
// _truncate_request_for_prefill). A prompt of at most Withhold tokens is prefilled whole.
func (c *Config) withhold(q *Request) *Request {
	if c.Withhold == 0 || q.Transfer == nil || !bool(q.Transfer.DoRemoteDecode) || len(q.Prompt) <= c.Withhold {
		return q
	}
	short := *q
	short.Prompt, short.MaxTokens = q.Prompt[:len(q.Prompt)-c.Withhold], 1
	return &short
}
