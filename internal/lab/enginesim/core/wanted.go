package core

// wanted holds a request's constraints on tokens: logit_bias, allowed_token_ids, structured outputs.
type wanted struct {
	bias    map[uint32]float64
	allowed []uint32
	scripts [][]uint32
	script  []uint32 // the chosen script, nil before the first token
}

// strong is the bias from which on a token is always or never drawn. Real logits differ by about this much.
const strong = 10

func wantedOf(q *Request) *wanted {
	if len(q.Bias) == 0 && len(q.Allowed) == 0 && len(q.Scripts) == 0 {
		return nil
	}
	return &wanted{bias: q.Bias, allowed: q.Allowed, scripts: q.Scripts}
}

// draw draws r's next token within the constraints. The draw depends on the state, so wrong KV shows in the
// text.
func (w *wanted) draw(e *Engine, r *request, state uint64) uint32 {
	out := len(r.text.tokens) - r.text.prompt
	if w.scripts != nil {
		if w.script == nil {
			w.script = w.scripts[finish(mix(state, finish(r.ask.seed)))%uint64(len(w.scripts))]
		}
		return w.script[min(out, len(w.script)-1)]
	}
	if id, ok := w.favourite(); ok {
		return id
	}
	for try := 0; ; try++ {
		t := e.cfg.draw(state, r.ask.seed, try)
		if len(w.allowed) > 0 {
			t = w.allowed[finish(mix(state, finish(r.ask.seed)+uint64(try)*oddA))%uint64(len(w.allowed))]
		}
		masked := w.bias[t] <= -strong || out < r.ask.minOut && e.ends(r, t)
		if !masked || try == 256 {
			return t
		}
	}
}

// favourite returns the token with the largest bias, if this bias is strong. Of equal biases, the smallest id
// wins.
func (w *wanted) favourite() (uint32, bool) {
	best, found := uint32(0), false
	for id, bias := range w.bias {
		if bias >= strong && (!found || bias > w.bias[best] || bias == w.bias[best] && id < best) {
			best, found = id, true
		}
	}
	return best, found
}

// complete reports whether out tokens complete the script.
func (w *wanted) complete(out int) bool { return w != nil && w.script != nil && out >= len(w.script) }
