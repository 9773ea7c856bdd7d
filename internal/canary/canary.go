// Package canary makes a request whose handoff can be judged by its answers alone, and judges it: were the
// blocks moved, and were they the right ones.
//
// The path: New makes the question. The caller sends Prefill, edited by the connector, to the prefill engine.
// It gives Params of the answer to a connector.Reply, and with that Reply sends Decode to the decode engine.
// It sends Own to the decode engine too. Then it hands the three answers to Judge.
//
// A question spoils no other request: it has a cache salt of its own, so that the blocks it leaves in a cache
// match no other request.
package canary

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// Engine is what a question must fit, of the pair together: the larger block size, the smaller length. Zero
// is unknown.
type Engine struct {
	Model       string
	BlockSize   int
	MaxModelLen int
}

// Between is what a question must fit that goes from one engine to another.
func Between(from, to Engine) Engine {
	return Engine{
		Model: to.Model, BlockSize: max(from.BlockSize, to.BlockSize),
		MaxModelLen: cmp.Or(min(from.MaxModelLen, to.MaxModelLen), from.MaxModelLen, to.MaxModelLen),
	}
}

// Question is one canary, for one pair, used once.
type Question struct {
	Model string
	IDs   []uint32
	Salt  string
	// The connector has no transfer params: a prefill answer without any is good.
	NoParams bool
}

// AnswerTokens is how many tokens a decode engine's answer to a question has.
const AnswerTokens = 8

const (
	// tokens after which the prompt repeats itself; no block size is a multiple of this number
	cycle       = 23
	blocks      = 4    // full blocks of the prompt, where they are no larger than mostTokens says
	mostTokens  = 1024 // about, but for one full block where blocks are larger
	leastTokens = 150  // vLLM may compute fewer than 64 tokens itself rather than fetch them
	tail        = 5    // tokens behind the last full block
	usualBlock  = 128  // where the block size is unknown: the largest default
)

// New makes a question. Its prompt repeats a few tokens again and again, which any model goes on with: an
// answer that hangs on a hair would differ between two engines that are both right. The ids are in every
// vocabulary.
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

// Prefill is the body of leg 1 on /v1/completions, before a connector edits it.
func (q *Question) Prefill() []byte { return q.body(1, "", "") }

// Decode is the body of leg 2 on /v1/completions, before a connector edits it.
func (q *Question) Decode() []byte { return q.body(AnswerTokens, "", `,"return_token_ids":true`) }

// Own is the same question to the decode engine alone, under another salt: nothing that came by transfer
// can answer it.
func (q *Question) Own() []byte { return q.body(AnswerTokens, "-own", `,"return_token_ids":true`) }

// Likely is Own once more, with what else was likely. It is asked only where answers differ. At the first
// request for log-probabilities vLLM compiles a function, and the whole engine stands still meanwhile, on a
// CPU for up to a minute (vLLM 0.32, v1/sample/ops/logprobs.py, measured).
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

// Params is the kv_transfer_params of a prefill answer as the decode leg should get them, nil where there are
// none. The prefill engine's own number of cached tokens is left out. The decode engine then tells instead
// how many tokens it has loaded.
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
