package core

import (
	"slices"
	"time"
)

// compute runs the model over the scheduled chunks, in their order: a later one may read blocks that an
// earlier one fills.
func (e *Engine) compute(now time.Duration) bool {
	if len(e.scheduled) == 0 {
		return false
	}
	var w work
	for _, r := range e.scheduled {
		w.add(r.computed, r.chunk)
	}
	e.step.Took = e.took(w)
	e.step.Prefill, e.step.Decode = w.prefill, w.decode
	e.seen[batchTokens].observe(float64(w.prefill + w.decode))
	ended := false
	for _, r := range e.scheduled {
		drafted := e.drafts(r)
		e.forward(r)
		if r.computed == len(r.tokens) {
			ended = e.sample(now+e.step.Took, r) || drafted && e.speculate(now+e.step.Took, r) || ended
		}
	}
	if ended {
		e.running = slices.DeleteFunc(e.running, func(r *request) bool { return r.state != running })
	}
	return true
}

// forward computes the KV of r's chunk on top of its table as it is found.
func (e *Engine) forward(r *request) {
	size := e.cfg.BlockSize
	end := r.computed + r.chunk
	pos := max(r.computed, r.received)
	e.fold(r, pos/size)
	for pos < end {
		b := &e.pool.blocks[r.table[pos/size]]
		stop := min(end, (pos/size+1)*size)
		from := b.content
		if pos%size == 0 {
			from = r.attended
		}
		b.content = stepTokens(from, r.tokens[pos:stop])
		pos = stop
		e.fold(r, pos/size)
	}
	r.computed, r.chunk = end, 0
}

// fold brings r's state to the end of its first n blocks.
func (e *Engine) fold(r *request, n int) {
	for ; r.folded < n; r.folded++ {
		r.attended = attend(r.attended, e.pool.blocks[r.table[r.folded]].content)
	}
}

// logits is the state that the next token is drawn from: everything in the table.
func (e *Engine) logits(r *request) uint64 {
	if r.computed%e.cfg.BlockSize == 0 {
		return r.attended
	}
	return attend(r.attended, e.pool.blocks[r.table[r.folded]].content)
}

// sample draws r's next token and ends r when it was the last.
func (e *Engine) sample(at time.Duration, r *request) (ended bool) {
	token := e.draw(r)
	r.tokens = append(r.tokens, token)
	r.rehash(e)
	out := len(r.tokens) - r.prompt
	e.counts.GenerationTokens++
	if out == 1 {
		e.countPrompt(r)
	}
	o := Output{ID: r.id, Token: token, First: out == 1, Prompt: r.prompt, Out: out, Cached: r.usageCached()}
	o.Reason, o.Stopped = e.stopped(r, token, out)
	e.observeToken(at, r, out)
	if o.Reason != NotFinished {
		o.Finished = true
		e.observeEnd(at, r, out)
		o.Params = e.end(at, r, o.Reason)
	}
	e.step.Outputs = append(e.step.Outputs, o)
	return o.Finished
}

// draw samples; until min_tokens are there, ends of text are masked.
func (e *Engine) draw(r *request) uint32 {
	state := e.logits(r)
	if r.wanted != nil {
		return r.wanted.draw(e, r, state)
	}
	masked := len(r.tokens)-r.prompt < r.minOut
	for try := 0; ; try++ {
		t := e.cfg.draw(state, r.seed, try)
		if !masked || try == 32 || !e.ends(r, t) {
			return t
		}
	}
}

func (e *Engine) ends(r *request, t uint32) bool {
	return !r.ignore && e.cfg.EOS > 0 && t == uint32(e.cfg.EOS) || slices.Contains(r.stops, t)
}

// stopped is vLLM's check_stop.
func (e *Engine) stopped(r *request, token uint32, out int) (reason Reason, byID bool) {
	switch {
	case r.wanted.complete(out):
		return FinishStop, false
	case out >= r.minOut && !r.ignore && e.cfg.EOS > 0 && token == uint32(e.cfg.EOS):
		return FinishStop, false
	case out >= r.minOut && slices.Contains(r.stops, token):
		return FinishStop, true
	case out >= r.maxOut || len(r.tokens) >= e.cfg.MaxModelLen:
		return FinishLength, false
	}
	return NotFinished, false
}

func (e *Engine) countPrompt(r *request) {
	e.counts.PromptTokens += uint64(r.prompt)
	e.counts.PromptLocal += uint64(r.local)
	e.counts.PromptExternal += uint64(r.external)
	e.counts.PromptComputed += uint64(max(0, r.prompt-r.local-r.external))
}
