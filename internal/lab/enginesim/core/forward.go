package core

import (
	"slices"
	"time"
)

// compute runs the model over the scheduled chunks, in order, because a chunk may read blocks that an earlier
// chunk fills.
func (e *Engine) compute(now time.Duration) bool {
	e.turn.step.Took = e.turn.posting
	e.turn.posting = 0
	if len(e.turn.scheduled) == 0 {
		return e.turn.step.Took > 0
	}
	var w work
	for _, r := range e.turn.scheduled {
		w.add(r.done.computed, r.done.chunk)
	}
	e.turn.step.Took += e.took(w)
	e.turn.step.Prefill, e.turn.step.Decode = w.prefill, w.decode
	e.counted.seen[batchTokens].observe(float64(w.prefill + w.decode))
	ended := false
	for _, r := range e.turn.scheduled {
		drafted := e.drafts(r)
		e.forward(r)
		e.offload(now+e.turn.step.Took, r)
		if r.done.computed == len(r.text.tokens) {
			ended = e.sample(now+e.turn.step.Took, r) || drafted && e.speculate(now+e.turn.step.Took, r) || ended
		}
	}
	if ended {
		e.queues.running = slices.DeleteFunc(e.queues.running, func(r *request) bool { return r.state != running })
	}
	return true
}

// forward computes the KV of r's chunk from the current content of r's table.
func (e *Engine) forward(r *request) {
	size := e.cfg.BlockSize
	end := r.done.computed + r.done.chunk
	pos := max(r.done.computed, r.load.received)
	e.fold(r, pos/size)
	for pos < end {
		b := &e.pool.blocks[r.blocks.table[pos/size]]
		stop := min(end, (pos/size+1)*size)
		from := b.content
		if pos%size == 0 {
			from = r.content.attended
		}
		b.content = stepTokens(from, r.text.tokens[pos:stop])
		pos = stop
		e.fold(r, pos/size)
	}
	r.done.computed, r.done.chunk = end, 0
}

// fold advances r's state to the end of its first n blocks.
func (e *Engine) fold(r *request, n int) {
	for ; r.content.folded < n; r.content.folded++ {
		r.content.attended = attend(r.content.attended, e.pool.blocks[r.blocks.table[r.content.folded]].content)
	}
}

// logits returns the state that the next token is drawn from: it depends on every block in the table.
func (e *Engine) logits(r *request) uint64 {
	if r.done.computed%e.cfg.BlockSize == 0 {
		return r.content.attended
	}
	return attend(r.content.attended, e.pool.blocks[r.blocks.table[r.content.folded]].content)
}

// sample draws r's next token. It ends r if this token is the last.
func (e *Engine) sample(at time.Duration, r *request) (ended bool) {
	token := e.draw(r)
	r.text.tokens = append(r.text.tokens, token)
	r.rehash(e)
	out := len(r.text.tokens) - r.text.prompt
	e.counted.counts.GenerationTokens++
	if out == 1 {
		e.counted.countPrompt(r)
	}
	o := Output{
		ID: r.id, Token: token, First: out == 1, Prompt: r.text.prompt, Out: out,
		Cached: r.usageCached(),
	}
	o.Reason, o.Stopped = e.stopped(r, token, out)
	e.counted.observeToken(at, r, out)
	if o.Reason != NotFinished {
		o.Finished = true
		e.counted.observeEnd(at, r, out)
		o.Params = e.end(at, r, o.Reason)
	}
	e.turn.step.Outputs = append(e.turn.step.Outputs, o)
	return o.Finished
}

// draw samples a token. Before min_tokens, ends of text are masked.
func (e *Engine) draw(r *request) uint32 {
	state := e.logits(r)
	if r.ask.wanted != nil {
		return r.ask.wanted.draw(e, r, state)
	}
	masked := len(r.text.tokens)-r.text.prompt < r.ask.minOut
	for try := 0; ; try++ {
		t := e.cfg.draw(state, r.ask.seed, try)
		if !masked || try == 32 || !e.ends(r, t) {
			return t
		}
	}
}

func (e *Engine) ends(r *request, t uint32) bool {
	return !r.ask.ignore && e.cfg.EOS > 0 && t == uint32(e.cfg.EOS) || slices.Contains(r.ask.stops, t)
}

// stopped is vLLM's check_stop.
func (e *Engine) stopped(r *request, token uint32, out int) (reason Reason, byID bool) {
	switch {
	case r.ask.wanted.complete(out):
		return FinishStop, false
	case out >= r.ask.minOut && !r.ask.ignore && e.cfg.EOS > 0 && token == uint32(e.cfg.EOS):
		return FinishStop, false
	case out >= r.ask.minOut && slices.Contains(r.ask.stops, token):
		return FinishStop, true
	case out >= r.ask.maxOut || len(r.text.tokens) >= e.cfg.MaxModelLen:
		return FinishLength, false
	}
	return NotFinished, false
}

func (e *counted) countPrompt(r *request) {
	e.counts.PromptTokens += uint64(r.text.prompt)
	e.counts.PromptLocal += uint64(r.cached.local)
	e.counts.PromptExternal += uint64(r.cached.external)
	e.counts.PromptComputed += uint64(max(0, r.text.prompt-r.cached.local-r.cached.external))
}
