package enginesim

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// tokenize answers POST /tokenize for a prompt, or for messages with the template applied.
func (s *Server) tokenize(k *call) {
	p := newParams(atChat)
	defer p.release()
	bad := neither(k.body)
	if bad == nil {
		bad = p.parse(s.model.voc, k)
	}
	if bad == nil && p.rare != nil && p.rare.noTurns {
		bad = emptyConversation
	}
	if bad != nil {
		k.failWith(bad)
		return
	}
	if !s.serves(p.model) {
		k.failWith(s.check(p))
		return
	}
	p.template(s.model.voc)
	if len(p.prompts) == 0 {
		k.failWith(invalidBody("body"))
		return
	}
	b := appendInt(append(k.part[:0], `{"count":`...), len(p.ids))
	b = appendInt(append(b, `,"max_model_len":`...), s.cores.ranks[0].cfg.MaxModelLen)
	b = rawjson.AppendIDs(append(b, `,"tokens":`...), p.ids)
	k.part = append(b, `,"token_strs":null}`...)
	k.respond(200, jsonType, k.part)
}

// neither refuses a body of /tokenize without prompt and messages.
func neither(body []byte) *problem {
	t := newTree(body)
	if t == nil || t.body["prompt"] != nil || t.body["messages"] != nil {
		return nil
	}
	t.need(t.body, "", "prompt")
	t.need(t.body, "", "messages")
	return t.problem()
}

// detokenize answers POST /detokenize.
func (s *Server) detokenize(k *call) {
	if bad := invalidDetokenize(k.body); bad != nil {
		k.failWith(bad)
		return
	}
	var ids []uint32
	model := ""
	sc := scan(k.body)
	sc.object(func(key []byte) {
		switch string(key) {
		case "tokens":
			ids = sc.ids(nil)
		case "model":
			if !sc.null() {
				model = string(sc.str())
			}
		default:
			sc.Skip()
		}
	})
	if err := sc.end(); err != nil {
		k.failWith(badBody())
		return
	}
	if !s.serves(model) {
		k.failWith(s.check(&params{model: model}))
		return
	}
	ids = slices.DeleteFunc(ids, func(id uint32) bool { return int(id) >= s.model.voc.size }) // ids without text
	b := rawjson.AppendString(append(k.part[:0], `{"prompt":`...), s.model.voc.detokenize(ids))
	k.part = append(b, '}')
	k.respond(200, jsonType, k.part)
}

// renderCompletions answers with a list of one object per prompt.
func (s *Server) renderCompletions(k *call) {
	s.render(k, atCompletions, func(b []byte, p *params) []byte {
		id := "cmpl-" + p.externalID()
		b = append(b, '[')
		for i, ids := range p.prompts {
			b = s.appendRendered(comma(b, i), p, string(appendInt([]byte(id+"-"), i)), ids)
		}
		return append(b, ']')
	})
}

func (s *Server) renderChat(k *call) { s.renderOne(k, atChat, "chatcmpl-") }

func (s *Server) renderMessages(k *call) { s.renderOne(k, atMessages, "chatcmpl-") }

func (s *Server) renderResponses(k *call) { s.renderOne(k, atResponses, "resp_") }

func (s *Server) renderOne(k *call, at endpoint, prefix string) {
	s.render(k, at,
		func(b []byte, p *params) []byte { return s.appendRendered(b, p, prefix+p.externalID(), p.prompts[0]) })
}

func (s *Server) render(k *call, at endpoint, write func([]byte, *params) []byte) {
	p := newParams(at)
	defer p.release()
	bad := p.parse(s.model.voc, k)
	if bad == nil {
		p.template(s.model.voc)
		bad = s.check(p)
	}
	if bad != nil {
		k.failWith(bad)
		return
	}
	k.part = write(k.part[:0], p)
	k.respond(200, jsonType, k.part)
}

// appendRendered writes the GenerateRequest of a render answer.
func (s *Server) appendRendered(dst []byte, p *params, id string, ids []uint32) []byte {
	dst = append(append(append(dst, `{"request_id":"`...), id...), `","token_ids":`...)
	dst = append(rawjson.AppendIDs(dst, ids),
		`,"token_offsets":null,"features":null,"content_parts":null,"sampling_params":{"presence_penalty":0.0,`...)
	dst = append(dst, `"frequency_penalty":0.0,"repetition_penalty":1.0,"temperature":`...)
	temperature := p.temperature
	if temperature != temperature {
		temperature = 1
	}
	dst = append(appendFloat(dst, temperature), `,"top_p":1.0,"min_p":0.0,"stop":[`...)
	for i, stop := range p.stop {
		dst = rawjson.AppendString(comma(dst, i), stop)
	}
	dst = append(dst, `],"stop_token_ids":`...)
	dst = append(rawjson.AppendIDs(dst, p.stopIDs), `,"max_tokens":`...)
	dst = append(appendInt(dst, s.room(p, ids)), `,"output_kind":2,"skip_clone":true,`...)
	if p.at == atResponses {
		dst = append(dst, `"extra_args":{},`...)
	}
	dst = append(dst, `"bad_words":[],"skip_reading_prefix_cache":false},"model":`...)
	dst = append(rawjson.AppendString(dst, p.model), `,"reasoning_ended":null,"reasoning_parser_kwargs":null,`+
		`"return_token_ids":null,"output_mode":"tokens","stream":`...)
	if p.stream {
		dst = append(dst, "true"...)
	} else {
		dst = append(dst, "false"...)
	}
	dst = appendNullable(append(dst, `,"stream_options":null,"cache_salt":`...), p.salt)
	dst = appendInt(append(dst, `,"priority":`...), p.priority)
	return append(dst, `,"kv_transfer_params":null,"ec_transfer_params":null}`...)
}

// room returns the maximum number of tokens that a request may generate.
func (s *Server) room(p *params, ids []uint32) int {
	rest := s.cores.ranks[0].cfg.MaxModelLen - len(ids)
	switch {
	case p.maxTokens > 0:
		return min(p.maxTokens, rest)
	case p.at == atCompletions:
		return min(16, rest)
	}
	return rest
}

// invalidDetokenize returns pydantic's refusal of a body of /detokenize.
func invalidDetokenize(body []byte) *problem {
	t := newTree(body)
	if t == nil {
		return nil
	}
	v, ok := t.need(t.body, "", "tokens")
	if !ok || !t.is("list", ".tokens", v) {
		return t.problem()
	}
	for i, id := range v.([]any) {
		if n, ok := id.(json.Number); ok && less(n, 0) {
			t.refuse(fmt.Sprint(".tokens.", i))
		}
	}
	return t.problem()
}
