package enginesim

import (
	"strconv"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// appendTextLogprobs writes completions' logprobs of the tokens from index from on. The values are artificial
// but reproducible.
func (g *generation) appendTextLogprobs(dst []byte, q *sequence, from int) []byte {
	if g.p.logprobs < 0 {
		return append(dst, "null"...)
	}
	dst = append(dst, `{"text_offset":[`...)
	offset := 0
	for i, id := range q.tokens[from:] {
		dst = appendInt(comma(dst, i), offset)
		offset += len(g.srv.model.voc.piece(id))
	}
	dst = append(dst, `],"token_logprobs":[`...)
	for i, id := range q.tokens[from:] {
		dst = appendFloat(comma(dst, i), madeUpLogprob(id))
	}
	dst = append(dst, `],"tokens":[`...)
	for i, id := range q.tokens[from:] {
		dst = rawjson.AppendString(comma(dst, i), g.named(id))
	}
	dst = append(dst, `],"top_logprobs":[`...)
	for i, id := range q.tokens[from:] {
		dst = rawjson.AppendString(append(comma(dst, i), '{'), g.named(id))
		dst = append(appendFloat(append(dst, ':'), madeUpLogprob(id)), '}')
	}
	return append(dst, "]}"...)
}

func (g *generation) appendTokenLogprobs(dst []byte, id uint32, offset int) []byte {
	if g.p.logprobs < 0 {
		return append(dst, "null"...)
	}
	piece := g.named(id)
	dst = append(appendInt(append(dst, `{"text_offset":[`...), offset), `],"token_logprobs":[`...)
	dst = append(appendFloat(dst, madeUpLogprob(id)), `],"tokens":[`...)
	dst = append(rawjson.AppendString(dst, piece), `],"top_logprobs":[{`...)
	dst = append(rawjson.AppendString(dst, piece), ':')
	return append(appendFloat(dst, madeUpLogprob(id)), "}]}"...)
}

// appendPromptLogprobs writes one entry per prompt token, the first null as in vLLM.
func (g *generation) appendPromptLogprobs(dst []byte, q *sequence) []byte {
	if !g.p.promptLog {
		return append(dst, "null"...)
	}
	dst = append(dst, '[')
	for i, id := range q.prompt {
		dst = comma(dst, i)
		if i == 0 {
			dst = append(dst, "null"...)
			continue
		}
		dst = append(appendInt(append(dst, `{"`...), int(id)), `":{"logprob":`...)
		dst = append(appendFloat(dst, madeUpLogprob(id)), `,"rank":1,"decoded_token":`...)
		dst = append(rawjson.AppendString(dst, g.srv.model.voc.piece(id)), "}}"...)
	}
	return append(dst, ']')
}

// named returns a token's name in lists of logprobs.
func (g *generation) named(id uint32) string {
	if g.p.tokensAsIDs {
		return "token_id:" + strconv.Itoa(int(id))
	}
	return g.srv.model.voc.piece(id)
}

func madeUpLogprob(id uint32) float64 { return -float64(id%64+1) / 32 }
