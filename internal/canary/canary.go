// Package canary makes a request whose handoff can be judged by its answers alone. The judgement says whether
// blocks were transferred, and whether they were the right ones.
//
// New makes the question. The caller sends Prefill, edited by the connector, to the prefill engine. It gives
// Params of the answer to a connector.Reply, and sends Decode with this Reply to the decode engine. It also
// sends Own to the decode engine. Then it passes the three answers to Judge.
//
// A question disturbs no other request. It has its own cache salt, so that its blocks in a cache match no
// other request.
package canary

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// Engine holds the limits of a question for a pair: the larger block size, and the smaller length. Zero is
// unknown.
type Engine struct {
	Model       string
	BlockSize   int
	MaxModelLen int
}

// Between returns the limits of a question that goes from one engine to another.
func Between(from, to Engine) Engine {
	return Engine{
		Model: to.Model, BlockSize: max(from.BlockSize, to.BlockSize),
		MaxModelLen: cmp.Or(min(from.MaxModelLen, to.MaxModelLen), from.MaxModelLen, to.MaxModelLen),
	}
}

// Question is one canary for one pair. It is used once.
type Question struct {
	Model string
	IDs   []uint32
	Salt  string
	// The connector has no transfer params: a prefill answer without any is good.
	NoParams bool
}

// AnswerTokens is the number of tokens of a decode engine's answer to a question.
const AnswerTokens = 8

const (
	// tokens after which the prompt repeats itself; no block size is a multiple of this number
	cycle       = 23
	blocks      = 4    // full blocks of the prompt, unless mostTokens allows fewer
	mostTokens  = 1024 // approximate; but always one full block
	leastTokens = 150  // vLLM may compute fewer than 64 tokens itself instead of fetching them
	tail        = 5    // tokens after the last full block
	usualBlock  = 128  // for an unknown block size: the largest default
)

// New makes a question. Its prompt repeats a few tokens again and again, and any model continues the
// repetition. Otherwise an answer might depend on rounding, and two correct engines could differ. Every
// vocabulary has these ids.
func New(e Engine, r *rand.Rand) *Question { return NewOf(e, promptTokens(e), r) }

// NewOf makes a question of n tokens, which the engines must have room for.
func NewOf(e Engine, n int, r *rand.Rand) *Question {
	q := &Question{Model: e.Model, IDs: make([]uint32, n), Salt: fmt.Sprintf("tandem-canary-%016x", r.Uint64())}
	for i := range q.IDs {
		if i < cycle {
			q.IDs[i] = uint32(10 + r.IntN(90))
		} else {
			q.IDs[i] = q.IDs[i-cycle]
		}
	}
	return q
}

func promptTokens(e Engine) int {
	size := e.BlockSize
	if size <= 0 {
		size = usualBlock
	}
	full := max(1, min(blocks, mostTokens/size))
	for full*size < leastTokens {
		full++
	}
	n := full*size + tail
	if e.MaxModelLen > 0 {
		n = min(n, e.MaxModelLen-AnswerTokens-1)
	}
	return max(n, 1)
}

// Prefill returns the body of leg 1 on /v1/completions, before a connector edits it.
func (q *Question) Prefill() []byte { return q.body(1, "", "") }

// Decode returns the body of leg 2 on /v1/completions, before a connector edits it.
func (q *Question) Decode() []byte { return q.body(AnswerTokens, "", `,"return_token_ids":true`) }

// Own returns the same question for the decode engine alone, with another salt: transferred blocks cannot
// answer it.
func (q *Question) Own() []byte { return q.body(AnswerTokens, "-own", `,"return_token_ids":true`) }

// Likely returns Own with a question for the likely alternatives. It is sent only if answers differ. At the
// first request for log-probabilities vLLM compiles a function, and the whole engine stands still meanwhile,
// on a CPU for up to a minute (vLLM 0.32, v1/sample/ops/logprobs.py, measured).
func (q *Question) Likely() []byte {
	return q.body(AnswerTokens, "-own", `,"logprobs":3,"return_tokens_as_token_ids":true`)
}

func (q *Question) body(tokens int, salt, more string) []byte {
	b := append([]byte(`{"model":`), rawjson.AppendString(nil, q.Model)...)
	b = rawjson.AppendIDs(append(b, `,"prompt":`...), q.IDs)
	b = fmt.Appendf(b, `,"max_tokens":%d,"temperature":0,"ignore_eos":true,"cache_salt":`, tokens)
	b = rawjson.AppendString(b, q.Salt+salt)
	return append(append(b, more...), '}')
}

// Params returns the kv_transfer_params of a prefill answer for the decode leg; nil if there are none. The
// prefill engine's own number of cached tokens is removed. So the decode engine reports how many tokens it
// has loaded.
func Params(answer []byte) []byte {
	var body struct {
		Params json.RawMessage `json:"kv_transfer_params"`
	}
	if json.Unmarshal(answer, &body) != nil || len(body.Params) == 0 || body.Params[0] != '{' {
		return nil
	}
	out := []byte{'{'}
	s := rawjson.Scanner{Data: body.Params}
	for key := range s.Members() {
		value := s.Value()
		if s.Err() != nil {
			return nil
		}
		if rawjson.Equal(key, "remote_prefill_cached_tokens") {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, key...), ':'), value...)
	}
	return append(out, '}')
}
