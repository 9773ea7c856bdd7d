package enginesim

import "github.com/tandem-router/tandem/internal/rawjson"

// chat answers POST /v1/chat/completions.
func (s *Server) chat(k *call) {
	p := newParams(atChat)
	defer p.release()
	g := s.beginTemplated(k, p, "chatcmpl-")
	if g == nil {
		return
	}
	defer g.end()
	if p.stream {
		g.streamChat(k)
		return
	}
	if bad := g.collect(); bad != nil {
		k.refuse(bad)
		return
	}
	k.part = g.appendChat(k.part[:0])
	s.respondORCA(k, k.part)
}

// beginTemplated parses the body and adds the prompt, with the chat template applied, to a core. If it
// returns nil, k has the answer.
func (s *Server) beginTemplated(k *call, p *params, prefix string) *generation {
	if bad := p.parse(s.model.voc, k); bad != nil {
		k.refuseAt(p, bad)
		return nil
	}
	p.template(s.model.voc)
	g, bad := s.begin(k, p, prefix)
	if bad != nil {
		k.refuseAt(p, bad)
		return nil
	}
	return g
}

// template makes the templated conversation the only prompt.
func (p *params) template(voc *vocabulary) {
	if len(p.turns) > 0 {
		p.prompts = p.prompts[:0]
		p.ids = p.ids[:0]
		p.add(voc.chat(p.ids, p.turns))
	}
}

// refuseAt answers with an error in the form of the request's API.
func (k *call) refuseAt(p *params, bad *problem) {
	switch {
	case bad == restarted:
		k.refuse(bad)
	case p.at == atMessages && bad.kind != "Bad Request": // body validation has the same form in all APIs
		k.part = appendAnthropicError(k.part[:0], bad.kind, bad)
		k.respond(bad.status, jsonType, k.part)
	case bad.late && p.stream:
		k.stream()
		k.part = append(appendSpacedError(append(k.part[:0], "data: "...), bad), "\n\n"...)
		k.event(k.part)
		k.event([]byte(done))
	default:
		k.failWith(bad)
	}
}

func (g *generation) appendChat(dst []byte) []byte {
	dst = g.appendHead(dst, "chat.completion")
	dst = append(dst, `,"choices":[`...)
	for i := range g.seqs {
		dst = g.appendChatChoice(comma(dst, i), i)
	}
	dst = append(dst, `],"service_tier":null,"system_fingerprint":`...)
	dst = g.srv.appendFingerprint(dst)
	dst = g.appendUsage(append(dst, `,"usage":`...))
	dst = append(dst, `,"prompt_logprobs":`...)
	dst = g.appendPromptLogprobs(dst, &g.seqs[0])
	dst = append(dst, `,"prompt_token_ids":`...)
	dst = appendIDsIf(dst, g.p.returnIDs, g.seqs[0].prompt)
	dst = append(dst, `,"prompt_text":null,"kv_transfer_params":`...)
	dst = appendParams(dst, g.seqs[0].params)
	return append(dst, `,"ec_transfer_params":null,"metrics":null}`...)
}

func (g *generation) appendChatChoice(dst []byte, i int) []byte {
	q := &g.seqs[i]
	dst = append(appendInt(append(dst, `{"index":`...), i), `,"message":{"role":"assistant","content":`...)
	dst = rawjson.AppendString(dst, string(q.text))
	dst = append(dst,
		`,"refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null},"logprobs":`...)
	dst = g.appendChatLogprobs(dst, q.tokens)
	dst = append(dst, `,"finish_reason":`...)
	dst = appendNullable(dst, q.finished.reason)
	dst = append(dst, `,"stop_reason":`...)
	dst = q.appendStop(dst)
	dst = append(dst, `,"token_ids":`...)
	dst = appendIDsIf(dst, g.p.returnIDs, q.tokens)
	return append(dst, `,"routed_experts":null}`...)
}

// appendChatLogprobs writes logprobs in chat's form.
func (g *generation) appendChatLogprobs(dst []byte, ids []uint32) []byte {
	if g.p.logprobs < 0 {
		return append(dst, "null"...)
	}
	dst = append(dst, `{"content":[`...)
	for i, id := range ids {
		piece := g.srv.model.voc.piece(id)
		dst = rawjson.AppendString(append(comma(dst, i), `{"token":`...), piece)
		dst = appendFloat(append(dst, `,"logprob":`...), madeUpLogprob(id))
		dst = append(dst, `,"bytes":[`...)
		for j := range len(piece) {
			dst = appendInt(comma(dst, j), int(piece[j]))
		}
		dst = append(dst, `],"top_logprobs":[]}`...)
	}
	return append(dst, "]}"...)
}

// streamChat sends one chunk per token. Before the first output, even an error, it sends the roles.
func (g *generation) streamChat(k *call) {
	first := true
	for g.next() && !k.broken {
		for i := range g.got {
			d := &g.got[i]
			if first {
				k.stream()
				g.roles(k)
				first = false
			}
			if q, ok := g.absorb(d); ok {
				k.part = g.appendChatChunk(k.part[:0], d, q)
				k.event(k.part)
			}
		}
		if g.ending.problem == nil {
			k.flush()
		}
	}
	g.endStream(k, first)
}

// roles sends the first chunk of each choice.
func (g *generation) roles(k *call) {
	for i := range g.seqs {
		b := g.appendHead(append(k.part[:0], "data: "...), "chat.completion.chunk")
		b = appendInt(append(b, `,"choices":[{"index":`...), i)
		b = append(b,
			`,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":`...)
		b = appendIDsIf(b, g.p.returnIDs, g.seqs[i].prompt)
		b = append(b, `,"prompt_text":null`...)
		k.part = append(g.appendContinuous(b, &g.seqs[i]), "}\n\n"...)
		k.event(k.part)
	}
}

func (g *generation) appendChatChunk(dst []byte, d *delivery, q *sequence) []byte {
	dst = g.appendHead(append(dst, "data: "...), "chat.completion.chunk")
	dst = appendInt(append(dst, `,"choices":[{"index":`...), d.seq)
	dst = append(dst, `,"delta":{"content":`...)
	dst = rawjson.AppendString(dst, g.fresh(q))
	dst = append(dst, `},"logprobs":`...)
	dst = g.appendChatLogprobs(dst, q.last())
	dst = append(dst, `,"finish_reason":`...)
	dst = appendNullable(dst, q.finished.reason)
	if q.finished.reason != "" {
		dst = q.appendStop(append(dst, `,"stop_reason":`...))
	}
	dst = append(dst, `,"token_ids":`...)
	dst = appendIDsIf(dst, g.p.returnIDs, q.last())
	return g.appendChunkEnd(append(dst, "}]"...), q)
}
