package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// request is one request of the suite. body has no cache salt of the suite's own. kind is a row of the table.
type request struct {
	kind string
	path string
	body map[string]any
}

// overContext is the only kind that engines refuse.
const overContext = "ids, over the context limit"

const (
	completions = "/v1/completions"
	chat        = "/v1/chat/completions"
)

// lengths are prompt lengths from one token to the context limit, at block boundaries and next to them.
var lengths = []int{
	1, 2, 17, blockTokens - 1, blockTokens, blockTokens + 1, 2*blockTokens - 1, 2 * blockTokens,
	2*blockTokens + 1, 3 * blockTokens, 5*blockTokens + 1,
	8*blockTokens - 1, 8 * blockTokens, 300, 511, 512, 513, 700, contextTokens - blockTokens - 1,
	contextTokens - blockTokens, contextTokens - 2, contextTokens - 1,
}

// generator creates random requests. Equal seeds give equal requests.
type generator struct {
	rnd     *rand.Rand
	system  string // a prompt shared by many requests
	shared  []int  // ids shared by many requests
	lengths []int  // prompt lengths of the next requests
	history map[string][]turn
	kinds   []func(*generator) request
	count   int
}

// turn is a message of a conversation, with a role of user, assistant or system.
type turn struct{ role, text string }

func newGenerator(seed uint64) *generator {
	g := &generator{rnd: rand.New(rand.NewPCG(seed, 5)), history: map[string][]turn{}}
	g.system, g.shared = g.text(90), g.ids(contextTokens/2)
	g.kinds = plainKinds
	return g
}

// everyKind is one round of requests. Neighbours run at once if eight requests run at once.
var everyKind = []func(*generator) request{
	(*generator).exactLength, (*generator).texts, (*generator).chatTurns, (*generator).sharedIDs,
	(*generator).messagesTurns, (*generator).responsesTurns,
	(*generator).batchOfTexts, (*generator).exactLength, (*generator).chatTurns, (*generator).batchOfIDs,
	(*generator).salted, (*generator).sampled,
	(*generator).messagesTurns, (*generator).responsesTurns, (*generator).logprobs, (*generator).chatTurns,
	(*generator).stops, (*generator).chatTools,
	(*generator).exactLength, (*generator).several, (*generator).chatLogprobs, (*generator).chatContinued,
	(*generator).messagesStops, (*generator).sharedIDs,
	(*generator).biased, (*generator).echoed, (*generator).stopIDs, (*generator).structured,
	(*generator).exactLength, (*generator).promptLogprobs,
	(*generator).responsesText, (*generator).responsesSampled, (*generator).messagesTools,
	(*generator).messagesSalted, (*generator).responsesWhole,
	(*generator).responsesTools, (*generator).chatSampled, (*generator).toTheLimit, (*generator).tooLong,
}

// plainKinds are the kinds that older versions of vLLM answer too.
var plainKinds = []func(*generator) request{
	(*generator).exactLength, (*generator).texts, (*generator).chatTurns, (*generator).sharedIDs,
	(*generator).batchOfTexts, (*generator).exactLength,
	(*generator).chatTurns, (*generator).batchOfIDs, (*generator).salted, (*generator).sampled,
	(*generator).logprobs, (*generator).chatTurns, (*generator).stops,
	(*generator).chatTools, (*generator).several, (*generator).chatLogprobs, (*generator).chatContinued,
	(*generator).sharedIDs, (*generator).toTheLimit,
	(*generator).tooLong,
}

// longKinds are requests of which eight at once need more blocks than the decode engines have.
var longKinds = []func(*generator) request{(*generator).long}

// next returns one more request. The kinds take turns, and every other request of a kind is streamed.
func (g *generator) next() request {
	r := g.kinds[g.count%len(g.kinds)](g)
	r.body["model"] = modelName
	openAI := r.path == completions || r.path == chat
	if (g.count/len(g.kinds)+g.count%len(g.kinds))%2 == 1 && r.body["prompt_logprobs"] == nil {
		r.body["stream"] = true
		if openAI {
			r.body["stream_options"] = map[string]any{"include_usage": true}
		}
	}
	if openAI && g.rnd.IntN(4) > 0 {
		r.body["return_token_ids"] = true
	}
	if _, ok := r.body["temperature"]; !ok {
		r.body["temperature"] = 0
	}
	g.count++
	return r
}

func (g *generator) pick(of ...int) int { return of[g.rnd.IntN(len(of))] }
func (g *generator) output() int        { return g.pick(1, 2, 5, 8, 12, 16) }

// ids returns n random token ids without special tokens.
func (g *generator) ids(n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = 5 + g.rnd.IntN(2043)
	}
	return ids
}

// text returns n words of two to four tokens each.
func (g *generator) text(n int) string {
	words := make([]string, n)
	for i := range words {
		var w strings.Builder
		for range 1 + g.rnd.IntN(3) {
			w.WriteByte("bcdfghklmnprstvwz"[g.rnd.IntN(17)])
			w.WriteByte("aeiouy"[g.rnd.IntN(6)])
		}
		words[i] = w.String()
	}
	return strings.Join(words, " ")
}

func (g *generator) exactLength() request {
	if len(g.lengths) == 0 {
		for _, i := range g.rnd.Perm(len(lengths)) {
			g.lengths = append(g.lengths, lengths[i])
		}
	}
	n := g.lengths[0]
	g.lengths = g.lengths[1:]
	return request{
		"ids, exact length", completions,
		map[string]any{"prompt": g.ids(n), "max_tokens": min(g.output(), contextTokens-n)},
	}
}

func (g *generator) texts() request {
	return request{
		"text", completions, map[string]any{"prompt": g.text(g.pick(1, 3, 20, 60, 120)), "max_tokens": g.output()},
	}
}

func (g *generator) sharedIDs() request {
	n := blockTokens*g.rnd.IntN(len(g.shared)/blockTokens+1) + g.pick(0, 0, 1, -1)
	ids := append(append([]int{}, g.shared[:max(0, min(n, len(g.shared)))]...),
		g.ids(g.pick(1, 7, 31, 32, 33, 90))...)
	return request{"ids, shared beginning", completions, map[string]any{"prompt": ids, "max_tokens": g.output()}}
}

func (g *generator) batchOfTexts() request {
	return request{"batch of texts", completions, map[string]any{
		"prompt": []string{g.system + " " + g.text(3), g.text(30), g.text(1)}, "max_tokens": g.output(),
	}}
}

// batchOfIDs has prompts without a common prefix. They run at once, so it would be random which prompt finds
// the other's blocks.
func (g *generator) batchOfIDs() request {
	prompts := [][]int{g.ids(5), g.shared[:2*blockTokens], g.ids(3*blockTokens - 1), g.ids(70)}
	return request{"batch of ids", completions, map[string]any{"prompt": prompts, "max_tokens": g.output()}}
}

func (g *generator) salted() request {
	return request{
		"cache_salt", completions,
		map[string]any{"prompt": g.shared[:200+g.rnd.IntN(40)], "cache_salt": g.tenant(), "max_tokens": g.output()},
	}
}

func (g *generator) tenant() string { return fmt.Sprint("tenant", g.rnd.IntN(3)) }

func (g *generator) sampled() request {
	return request{"seed, sampled", completions, map[string]any{
		"prompt": g.text(40), "temperature": 0.8, "top_p": 0.9, "repetition_penalty": 1.1, "seed": g.rnd.IntN(1000),
		"max_tokens": 16,
	}}
}

func (g *generator) biased() request {
	return request{"bias, penalties, min_p", completions, map[string]any{
		"prompt": g.system + g.text(g.pick(1, 9)), "temperature": 0.9, "seed": g.rnd.IntN(1000), "top_k": 30,
		"min_p": 0.01, "presence_penalty": 0.5,
		"frequency_penalty": 0.5, "logit_bias": map[string]any{fmt.Sprint(100 + g.rnd.IntN(900)): 6, "7": -20},
		"max_tokens": 12,
	}}
}

func (g *generator) logprobs() request {
	return request{
		"logprobs", completions,
		map[string]any{"prompt": g.text(25), "logprobs": 2, "min_tokens": 4, "ignore_eos": true, "max_tokens": 12},
	}
}

// promptLogprobs must not be streamed: engines refuse that.
func (g *generator) promptLogprobs() request {
	return request{
		"prompt_logprobs", completions,
		map[string]any{"prompt": g.shared[:g.pick(31, 64, 100)], "prompt_logprobs": 1, "max_tokens": g.output()},
	}
}

func (g *generator) echoed() request {
	body := map[string]any{"prompt": g.system[:g.pick(20, 200)], "echo": true, "max_tokens": g.output()}
	if g.rnd.IntN(2) > 0 {
		body["logprobs"] = 1
	}
	return request{"echo", completions, body}
}

func (g *generator) stops() request {
	return request{"stop strings", completions, map[string]any{
		"prompt": g.system + g.text(2), "stop": []string{"a", "o", "e"},
		"include_stop_str_in_output": g.rnd.IntN(2) > 0, "max_tokens": 24,
	}}
}

func (g *generator) stopIDs() request {
	ids := make([]int, 300)
	for i := range ids {
		ids[i] = 5 + 6*i
	}
	return request{"stop_token_ids", completions, map[string]any{
		"prompt": g.shared[:g.pick(95, 96, 97)], "stop_token_ids": ids, "ignore_eos": true, "logprobs": 0,
		"max_tokens": 24,
	}}
}

func (g *generator) structured() request {
	of := []map[string]any{
		{"choice": []string{"prefill", "decode", "both"}}, {"regex": "[a-f]{3,9}[0-9]+"},
	}[g.rnd.IntN(2)]
	return request{
		"structured outputs", completions,
		map[string]any{"prompt": g.text(g.pick(4, 30)), "structured_outputs": of, "max_tokens": 12},
	}
}

// several has n > 1, which Tandem does not split. The seed makes it repeatable.
func (g *generator) several() request {
	return request{
		"n = 2", completions,
		map[string]any{"prompt": g.text(50), "n": 2, "temperature": 0.7, "seed": g.rnd.IntN(1000), "max_tokens": 8},
	}
}

// long has a prompt of most of the context and an answer of several blocks. Every third has a shared prefix.
func (g *generator) long() request {
	n, ids := 600+g.rnd.IntN(contextTokens-700), []int(nil)
	if g.count%3 == 0 {
		ids = append(ids, g.shared[:blockTokens*g.rnd.IntN(8)]...)
	}
	ids = append(ids, g.ids(n)...)
	return request{
		"ids, long prompt and answer", completions,
		map[string]any{"prompt": ids[:n], "max_tokens": 32 + g.rnd.IntN(64), "ignore_eos": true},
	}
}

// toTheLimit generates to the last token of the context.
func (g *generator) toTheLimit() request {
	left := g.pick(1, 2, 8, 20)
	return request{
		"ids, to the context limit", completions,
		map[string]any{"prompt": g.ids(contextTokens - left), "max_tokens": left, "ignore_eos": true},
	}
}

// tooLong is too long for every engine.
func (g *generator) tooLong() request {
	return request{
		overContext, completions,
		map[string]any{"prompt": g.ids(contextTokens + g.pick(-1, 0, 1)), "max_tokens": 2},
	}
}
