package enginesim

import (
	"math"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// responses answers POST /v1/responses in its minimal form: one message of text, no tools, nothing stored.
func (s *Server) responses(k *call) {
	p := newParams(atResponses)
	defer p.release()
	g := s.beginTemplated(k, p, p.responsePrefix(k))
	if g == nil {
		return
	}
	defer g.end()
	r := response{g: g, message: "msg_" + randomHex(16)}
	if p.stream {
		r.stream(k)
		return
	}
	if bad := g.collect(); bad != nil {
		k.refuse(bad)
		return
	}
	k.part = r.append(k.part[:0], true)
	k.respond(200, jsonType, k.part)
}

// responsePrefix is "" if the body sets the id, which is then used unchanged. The body is not parsed yet, so
// it is parsed twice here.
func (p *params) responsePrefix(k *call) string {
	q := newParams(atResponses)
	defer q.release()
	if q.parse(k.c.srv.model.voc, k) == nil && q.requestID != "" {
		return ""
	}
	return "resp_"
}

// response is the answer of the Responses API.
type response struct {
	g        *generation
	message  string // id of the only message
	sequence int
}

// append writes the response object, ended or in progress.
func (r *response) append(dst []byte, ended bool) []byte {
	g := r.g
	q := &g.seqs[0]
	status, cause := "in_progress", "null"
	if ended {
		status = "completed"
		if q.finished.reason == "length" {
			status, cause = "incomplete", `{"reason":"max_output_tokens"}`
		}
	}
	dst = appendInt(append(append(append(dst, `{"id":"`...), g.id...), `","created_at":`...), int(g.created))
	dst = append(append(append(dst, `,"incomplete_details":`...), cause...),
		`,"instructions":null,"metadata":null,"model":`...)
	dst = append(rawjson.AppendString(dst, g.modelName()), `,"object":"response","output":[`...)
	if ended {
		dst = r.appendItem(dst, "completed", true)
	}
	dst = append(dst, `],"parallel_tool_calls":true,"temperature":`...)
	temperature := g.p.temperature
	if math.IsNaN(temperature) {
		temperature = 1
	}
	dst = append(appendFloat(dst, temperature),
		`,"tool_choice":"none","tools":[],"top_p":1.0,"background":false,"max_output_tokens":`...)
	limit := g.p.maxTokens
	if limit < 0 {
		limit = g.rank.cfg.MaxModelLen - len(q.prompt)
	}
	dst = append(appendInt(dst, limit), `,"max_tool_calls":null,"previous_response_id":null,"prompt":null,`+
		`"reasoning":null,"service_tier":"auto","status":"`...)
	dst = append(append(dst, status...), `","text":null,"top_logprobs":null,"truncation":"disabled","usage":`...)
	dst = append(r.appendUsage(dst, ended),
		`,"user":null,"presence_penalty":0.0,"frequency_penalty":0.0,"kv_transfer_params":`...)
	return append(appendParams(dst, q.params),
		`,"ec_transfer_params":null,"input_messages":null,"output_messages":null}`...)
}

// appendItem writes the message, with its text if whole.
func (r *response) appendItem(dst []byte, status string, whole bool) []byte {
	dst = append(append(append(dst, `{"id":"`...), r.message...), `","content":[`...)
	if whole {
		dst = r.appendPart(dst, string(r.g.seqs[0].text), "null")
	}
	return append(append(append(dst, `],"role":"assistant","status":"`...), status...),
		`","type":"message","phase":null}`...)
}

func (r *response) appendPart(dst []byte, text, logprobs string) []byte {
	dst = rawjson.AppendString(append(dst, `{"annotations":[],"text":`...), text)
	return append(append(append(dst, `,"type":"output_text","logprobs":`...), logprobs...), '}')
}

func (r *response) appendUsage(dst []byte, ended bool) []byte {
	if !ended {
		return append(dst, "null"...)
	}
	prompt, completion, cached := r.g.usage()
	dst = appendInt(append(dst, `{"input_tokens":`...), prompt)
	dst = appendInt(append(dst, `,"input_tokens_details":{"cached_tokens":`...), cached)
	dst = appendInt(append(dst, `,"cache_write_tokens":`...), r.g.newlyCached())
	dst = appendInt(append(dst, `,"input_tokens_per_turn":[],"cached_tokens_per_turn":[]},"output_tokens":`...),
		completion)
	dst = append(dst, `,"output_tokens_details":{"reasoning_tokens":0,"tool_output_tokens":0,`+
		`"output_tokens_per_turn":[],"tool_output_tokens_per_turn":[]},"total_tokens":`...)
	return append(appendInt(dst, prompt+completion), '}')
}

// event sends one event. body writes the data without sequence number and type, which come last. after is
// written between these two.
func (r *response) event(k *call, kind string, body func([]byte) []byte, after ...byte) {
	b := append(append(append(k.part[:0], "event: "...), kind...), "\ndata: {"...)
	b = appendInt(append(body(b), `,"sequence_number":`...), r.sequence)
	b = append(append(append(append(b, after...), `,"type":"`...), kind...), "\"}\n\n"...)
	r.sequence++
	k.part = b
	k.event(b)
}

// stream sends the events of the Responses API. An engine error cuts the connection, because vLLM has no
// event for it.
func (r *response) stream(k *call) {
	g := r.g
	k.stream()
	for _, kind := range []string{"response.created", "response.in_progress"} {
		r.event(k, kind, func(b []byte) []byte { return r.append(append(b, `"response":`...), false) })
	}
	k.flush()
	opened := false
	for g.next() && !k.broken {
		for i := range g.got {
			q, ok := g.absorb(&g.got[i])
			if !ok {
				continue
			}
			if !opened {
				r.open(k)
				opened = true
			}
			r.delta(k, g.fresh(q))
		}
		k.flush()
	}
	if g.ending.problem != nil || g.ending.vanished || k.broken {
		k.broken = true
		return
	}
	r.close(k)
}

func (r *response) open(k *call) {
	r.event(k, "response.output_item.added", func(b []byte) []byte {
		return append(r.appendItem(append(b, `"item":`...), "in_progress", false), `,"output_index":0`...)
	})
	r.event(k, "response.content_part.added", func(b []byte) []byte {
		b = append(append(append(b, `"content_index":0,"item_id":"`...), r.message...),
			`","output_index":0,"part":`...)
		return r.appendPart(b, "", "[]")
	})
}

func (r *response) delta(k *call, text string) {
	if text == "" {
		return
	}
	r.event(k, "response.output_text.delta", func(b []byte) []byte {
		b = rawjson.AppendString(append(b, `"content_index":0,"delta":`...), text)
		return append(append(append(b, `,"item_id":"`...), r.message...), `","logprobs":[],"output_index":0`...)
	})
}

func (r *response) close(k *call) {
	text := string(r.g.seqs[0].text)
	r.event(k, "response.output_text.done", func(b []byte) []byte {
		return append(append(append(b, `"content_index":0,"item_id":"`...), r.message...),
			`","logprobs":[],"output_index":0`...)
	}, rawjson.AppendString([]byte(`,"text":`), text)...)
	r.event(k, "response.content_part.done", func(b []byte) []byte {
		b = append(append(append(b, `"content_index":0,"item_id":"`...), r.message...),
			`","output_index":0,"part":`...)
		return r.appendPart(b, text, "null")
	})
	r.event(k, "response.output_item.done", func(b []byte) []byte {
		return append(r.appendItem(append(b, `"item":`...), "completed", true), `,"output_index":0`...)
	})
	r.event(k, "response.completed",
		func(b []byte) []byte { return r.append(append(b, `"response":`...), true) })
}
