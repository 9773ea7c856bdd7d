package engine

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/cespare/xxhash/v2"
)

// IDs are the token ids into which a server turns a fixed text or chat, the same for every server.
type IDs struct {
	IDs    []uint32
	Status int   // of the answer, 0 when there was none
	Err    error // why there are no ids; an engine need not have each of the endpoints
}

// TokenSample is the token ids that a server makes from the same texts as every other server. Two servers
// with different ids have different tokenizers or chat templates.
type TokenSample struct {
	Text, Chat, Tools IDs // by /tokenize
	Rendered          IDs // of the chat with tools, by the chat path itself
}

// sampleText has what tokenizers differ in: runs of blanks, digits, case, scripts, signs of several code
// points.
const sampleText = " The Quick brown fox's  fee was 1234567.89 €,\n\tnaïvely paid in Łódź; 東京で会う, Привет! " +
	"👩‍🚀 def f(x): return x**2 <user> the blocks of the router"

// sampleTools goes with a chat: what templates differ in most is how they write tools.
const sampleTools = `,"tools":[{"type":"function","function":{"name":"weather",` +
	`"description":"tells the weather","parameters":` +
	`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}]`

// SampleTokens asks four questions about tokens of a server that serves model.
func (c *Client) SampleTokens(ctx context.Context, model string) TokenSample {
	name, text := quote(model), quote(sampleText)
	chat := fmt.Sprintf(
		`{"model":%s,"messages":[{"role":"system","content":"You answer briefly."},{"role":"user","content":%s}]`,
		name, text)
	tools := []byte(chat + sampleTools + "}")
	return TokenSample{
		Text:     c.askIDs(ctx, "/tokenize", fmt.Appendf(nil, `{"model":%s,"prompt":%s}`, name, text)),
		Chat:     c.askIDs(ctx, "/tokenize", []byte(chat+"}")),
		Tools:    c.askIDs(ctx, "/tokenize", tools),
		Rendered: c.askIDs(ctx, "/v1/chat/completions/render", tools),
	}
}

// askIDs reads the answer to a question for ids: /tokenize calls them tokens, and render token_ids.
func (c *Client) askIDs(ctx context.Context, path string, question []byte) IDs {
	status, reply, err := c.Post(ctx, path, question)
	if err != nil {
		return IDs{Err: err}
	}
	if status != http.StatusOK {
		return IDs{Status: status, Err: &StatusError{Path: path, Status: status}}
	}
	var answer struct {
		Tokens []uint32
		IDs    []uint32 `json:"token_ids"`
	}
	if err := json.Unmarshal(reply, &answer); err != nil {
		return IDs{Status: status, Err: NotJSON(path, reply, err)}
	}
	return IDs{Status: status, IDs: append(answer.Tokens, answer.IDs...)}
}

// Hashes are the hashes of the ids, in the order of the fields; 0 where there are no ids.
func (s *TokenSample) Hashes() (hashes [4]uint64) {
	for i, x := range []IDs{s.Text, s.Chat, s.Tools, s.Rendered} {
		var raw []byte
		for _, id := range x.IDs {
			raw = binary.LittleEndian.AppendUint32(raw, id)
		}
		if len(raw) > 0 {
			hashes[i] = max(xxhash.Sum64(raw), 1)
		}
	}
	return hashes
}
