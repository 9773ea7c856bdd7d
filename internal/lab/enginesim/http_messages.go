package enginesim

import "github.com/tandem-router/tandem/internal/rawjson"

// messages answers POST /v1/messages in its minimal form: one block of text.
func (s *Server) messages(k *call) {
	p := newParams(atMessages)
	defer p.release()
	g := s.beginTemplated(k, p, "chatcmpl-")
	if g == nil {
		return
	}
	defer g.end()
	if p.stream {
		g.streamMessages(k)
		return
	}
	if bad := g.collect(); bad != nil {
		k.refuseAt(p, bad)
		return
	}
	k.part = g.appendMessage(k.part[:0])
	k.respond(200, jsonType, k.part)
}

// countTokens answers POST /v1/messages/count_tokens.
func (s *Server) countTokens(k *call) {
	p := newParams(atMessages)
	p.counts = true
	defer p.release()
	bad := p.parse(s.model.voc, k)
	if bad == nil {
		p.template(s.model.voc)
		bad = s.check(p)
	}
	if bad != nil {
		k.refuseAt(p, bad)
		return
	}
	b := append(k.part[:0], `{"input_tokens":`...)
	k.part = append(appendInt(b, len(p.ids)), '}')
	k.respond(200, jsonType, k.part)
}

// appendAnthropicError writes an error in Anthropic's form with vLLM's error types.
func appendAnthropicError(dst []byte, kind string, bad *problem) []byte {
	dst = append(append(append(dst, `{"type":"error","error":{"type":"`...), kind...), `","message":`...)
	return append(rawjson.AppendString(dst, bad.message), "}}"...)
}

// anthropicReason converts finish_reason.
func (q *sequence) anthropicReason() string {
	switch {
	case q.finished.reason == "length":
		return "max_tokens"
	case q.finished.stop != "":
		return "stop_sequence"
	case q.finished.reason == "":
		return ""
	}
	return "end_turn"
}

func (g *generation) appendMessage(dst []byte) []byte {
	q := &g.seqs[0]
	dst = append(append(append(dst, `{"id":"`...), g.id...),
		`","type":"message","role":"assistant","content":[{"type":"text","text":`...)
	dst = append(rawjson.AppendString(dst, string(q.text)), `}],"model":`...)
	dst = append(rawjson.AppendString(dst, g.modelName()), `,"stop_reason":`...)
	dst = appendNullable(dst, q.anthropicReason())
	if q.finished.stop != "" {
		dst = rawjson.AppendString(append(dst, `,"stop_sequence":`...), q.finished.stop)
	}
	dst = g.appendMessageUsage(append(dst, `,"usage":`...))
	if q.params != nil {
		dst = append(append(dst, `,"kv_transfer_params":`...), q.params...)
	}
	return append(dst, '}')
}

// appendMessageUsage writes the usage. As input it counts only tokens that were neither read from nor written
// to the cache.
func (g *generation) appendMessageUsage(dst []byte) []byte {
	prompt, completion, cached := g.usage()
	dst = appendInt(append(dst, `{"input_tokens":`...), max(0, prompt-cached-g.newlyCached()))
	dst = appendInt(append(dst, `,"output_tokens":`...), completion)
	dst = appendInt(append(dst, `,"cache_creation_input_tokens":`...), g.newlyCached())
	return append(appendInt(append(dst, `,"cache_read_input_tokens":`...), cached), '}')
}

// named sends one event of the Messages API.
func (k *call) named(kind string, body func([]byte) []byte) {
	b := append(append(append(k.part[:0], "event: "...), kind...), "\ndata: {\"type\":\""...)
	b = append(append(b, kind...), '"')
	k.part = append(body(b), "}\n\n"...)
	k.event(k.part)
}

func (g *generation) streamMessages(k *call) {
	k.stream()
	first := true
	for g.next() && !k.broken {
		for i := range g.got {
			if first {
				g.openMessage(k)
				first = false
			}
			q, ok := g.absorb(&g.got[i])
			if !ok {
				continue
			}
			if len(q.tokens) == 1 {
				g.openBlock(k)
			}
			g.messageDelta(k, g.fresh(q))
		}
		if g.ending.problem == nil {
			k.flush()
		}
	}
	g.endMessage(k, first)
}

func (g *generation) openMessage(k *call) {
	k.named("message_start", func(b []byte) []byte {
		b = append(append(append(b, `,"message":{"id":"`...), g.id...),
			`","type":"message","role":"assistant","content":[],"model":`...)
		b = append(rawjson.AppendString(b, g.modelName()),
			`,"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":`...)
		return append(appendInt(b, len(g.seqs[0].prompt)), `,"output_tokens":0}}`...)
	})
}

func (g *generation) openBlock(k *call) {
	k.named("content_block_start",
		func(b []byte) []byte { return append(b, `,"content_block":{"type":"text","text":""},"index":0`...) })
}

func (g *generation) messageDelta(k *call, text string) {
	if text == "" {
		return
	}
	k.named("content_block_delta", func(b []byte) []byte {
		b = rawjson.AppendString(append(b, `,"delta":{"type":"text_delta","text":`...), text)
		return append(b, `},"index":0`...)
	})
}

func (g *generation) endMessage(k *call, first bool) {
	if g.ending.vanished || k.broken {
		k.broken = true
		return
	}
	if first {
		g.openMessage(k)
	}
	if g.ending.problem != nil {
		b := append(k.part[:0], "event: error\ndata: "...)
		k.part = append(appendAnthropicError(b, "internal_error", g.ending.problem), "\n\n"...)
		k.event(k.part)
		return
	}
	q := &g.seqs[0]
	k.named("content_block_stop", func(b []byte) []byte { return append(b, `,"index":0`...) })
	k.named("message_delta", func(b []byte) []byte {
		b = appendNullable(append(b, `,"delta":{"stop_reason":`...), q.anthropicReason())
		b = appendNullable(append(b, `,"stop_sequence":`...), q.finished.stop)
		return g.appendMessageUsage(append(b, `},"usage":`...))
	})
	k.named("message_stop", func(b []byte) []byte { return b })
}
