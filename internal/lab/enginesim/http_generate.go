package enginesim

import (
	"encoding/json"
	"slices"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// generate answers POST /inference/v1/generate: ids in, ids out, no ORCA.
func (s *Server) generate(k *call) {
	p := newParams(atGenerate)
	defer p.release()
	g := s.beginTemplated(k, p, "generate-tokens-")
	if g == nil {
		return
	}
	defer g.end()
	if p.stream {
		g.streamGenerate(k)
		return
	}
	if bad := g.collect(); bad != nil {
		k.refuse(bad)
		return
	}
	k.part = g.appendGenerate(k.part[:0])
	k.respond(200, jsonType, k.part)
}

func (p *params) outputMode() string {
	if p.textMode {
		return "text"
	}
	return "tokens"
}

func (g *generation) appendGenerate(dst []byte) []byte {
	dst = append(append(append(dst, `{"request_id":"`...), g.id...), `","model":`...)
	dst = rawjson.AppendString(dst, g.modelName())
	dst = appendInt(append(dst, `,"created":`...), int(g.created))
	dst = g.appendUsage(append(dst, `,"usage":`...))
	dst = append(dst, `,"prompt_logprobs":`...)
	dst = g.appendPromptLogprobs(dst, &g.seqs[0])
	dst = append(dst, `,"prompt_token_id_logprobs":null,"prompt_token_ids":`...)
	dst = appendIDsIf(dst, g.p.returnIDs, g.seqs[0].prompt)
	dst = append(dst, `,"mm_placeholders":null,"metrics":null,"kv_transfer_params":`...)
	dst = appendParams(dst, g.seqs[0].params)
	dst = append(append(append(dst, `,"ec_transfer_params":null,"output_mode":"`...), g.p.outputMode()...),
		`","choices":[`...)
	for i := range g.seqs {
		q := &g.seqs[i]
		dst = g.appendGenerateChoice(comma(dst, i), i, q, q.tokens, string(q.text))
	}
	return append(dst, "]}"...)
}

func (g *generation) appendGenerateChoice(dst []byte, i int, q *sequence, ids []uint32, text string) []byte {
	dst = append(appendInt(append(dst, `{"index":`...), i), `,"finish_reason":`...)
	dst = append(appendNullable(dst, q.finished.reason), `,"stop_reason":`...)
	dst = append(q.appendStop(dst), `,"token_ids":`...)
	dst = rawjson.AppendIDs(dst, ids)
	if g.p.textMode {
		dst = rawjson.AppendString(append(dst, `,"text":`...), text)
	}
	dst = append(dst, `,"routed_experts":null,"sampling_mask":null,"weight_versions":`...)
	if q.finished.reason != "" {
		dst = append(appendInt(append(dst, `[{"version":"default","start":0,"end":`...), len(q.tokens)), "}]"...)
	} else {
		dst = append(dst, "null"...)
	}
	return append(g.appendChatLogprobs(append(dst, `,"logprobs":`...), ids), '}')
}

func (g *generation) streamGenerate(k *call) {
	g.endGenerate(k, g.streamChunks(k, g.appendGenerateChunk))
}

func (g *generation) appendGenerateChunk(dst []byte, d *delivery, q *sequence) []byte {
	dst = append(append(append(dst, `data: {"request_id":"`...), g.id...), `","usage":`...)
	if g.p.continuous && g.p.usage {
		dst = g.appendStreamUsage(dst)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(append(append(dst, `,"output_mode":"`...), g.p.outputMode()...), `","choices":[`...)
	dst = g.appendGenerateChoice(dst, d.seq, q, q.last(), g.fresh(q))
	return append(dst, "]}\n\n"...)
}

// endGenerate is endStream with the usage chunk of generate.
func (g *generation) endGenerate(k *call, first bool) {
	if g.p.usage && g.ending.problem == nil && !g.ending.vanished {
		b := append(append(append(k.part[:0], `data: {"request_id":"`...), g.id...), `","usage":`...)
		b = append(append(append(g.appendStreamUsage(b), `,"output_mode":"`...), g.p.outputMode()...),
			"\",\"choices\":[]}\n\n"...)
		k.part = b
		k.event(b)
	}
	g.p.usage = false
	g.endStream(k, first)
}

// invalidGenerate returns pydantic's refusal of a body of /inference/v1/generate.
func invalidGenerate(body []byte) *problem {
	t := newTree(body)
	if t == nil {
		return nil
	}
	if v, ok := t.need(t.body, "", "token_ids"); ok {
		ids, list := v.([]any)
		switch {
		case list && len(ids) == 0:
			t.refuse(".token_ids")
		case slices.ContainsFunc(ids, func(id any) bool { n, ok := id.(json.Number); return ok && less(n, 0) }):
			t.refuse(".token_ids")
		}
	}
	t.need(t.body, "", "sampling_params")
	return t.problem()
}
