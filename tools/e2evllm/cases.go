package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// request is one request of the suite. body has no cache salt of ours; kind is a row of the table.
type request struct {
	kind string
	path string
	body map[string]any
}

const (
	completions = "/v1/completions"
	chat        = "/v1/chat/completions"
)

// lengths are prompts from one token to the context limit, at block boundaries and beside them.
var lengths = []int{
	1, 2, 17, blockTokens - 1, blockTokens, blockTokens + 1, 2*blockTokens - 1, 2 * blockTokens, 2*blockTokens + 1, 3 * blockTokens, 5*blockTokens + 1,
	8*blockTokens - 1, 8 * blockTokens, 300, 511, 512, 513, 700, contextTokens - blockTokens - 1, contextTokens - blockTokens, contextTokens - 2, contextTokens - 1,
}

// generator invents requests; the same seed invents the same.
type generator struct {
	rnd     *rand.Rand
	system  string // a prompt that many share
	shared  []int  // ids that many share
	history []map[string]any
	kinds   []func(*generator) request
	count   int
}

func newGenerator(seed uint64) *generator {
	g := &generator{rnd: rand.New(rand.NewPCG(seed, 5))}
	g.system, g.shared = g.text(90), g.ids(contextTokens/2)
	g.kinds = []func(*generator) request{
		(*generator).exactLength, (*generator).text1, (*generator).turn, (*generator).sharedIDs, (*generator).batchText, (*generator).exactLength, (*generator).turn,
		(*generator).batchIDs, (*generator).salted, (*generator).sampled, (*generator).logprobs, (*generator).turn, (*generator).stops, (*generator).tools,
		(*generator).several, (*generator).chatLogprobs, (*generator).continued, (*generator).sharedIDs, (*generator).toTheLimit, (*generator).tooLong,
	}
	return g
}

// next is one more request; the kinds take turns, and every other of a kind is streamed.
func (g *generator) next() request {
	r := g.kinds[g.count%len(g.kinds)](g)
	r.body["model"] = modelName
	if (g.count/len(g.kinds))%2 == 1 {
		r.body["stream"] = true
		r.body["stream_options"] = map[string]any{"include_usage": true}
	}
	if g.rnd.IntN(4) > 0 {
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

// ids are n random token ids, none of them special.
func (g *generator) ids(n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = 5 + g.rnd.IntN(2043)
	}
	return ids
}

// text is n words; a word is two to four tokens.
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
	n := lengths[g.rnd.IntN(len(lengths))]
	return request{"ids, exact length", completions, map[string]any{"prompt": g.ids(n), "max_tokens": min(g.output(), contextTokens-n)}}
}

func (g *generator) text1() request {
	return request{"text", completions, map[string]any{"prompt": g.text(g.pick(1, 3, 20, 60, 120)), "max_tokens": g.output()}}
}

func (g *generator) sharedIDs() request {
	n := blockTokens*g.rnd.IntN(len(g.shared)/blockTokens+1) + g.pick(0, 0, 1, -1)
	ids := append(append([]int{}, g.shared[:max(0, min(n, len(g.shared)))]...), g.ids(g.pick(1, 7, 31, 32, 33, 90))...)
	return request{"ids, shared beginning", completions, map[string]any{"prompt": ids, "max_tokens": g.output()}}
}

func (g *generator) batchText() request {
	return request{"batch of texts", completions, map[string]any{"prompt": []string{g.system + " " + g.text(3), g.text(30), g.text(1)}, "max_tokens": g.output()}}
}

func (g *generator) batchIDs() request {
	prompts := [][]int{g.ids(5), g.shared[:2*blockTokens], g.ids(3*blockTokens - 1), g.shared[:70]}
	return request{"batch of ids", completions, map[string]any{"prompt": prompts, "max_tokens": g.output()}}
}

// turn is one more turn of a conversation, which begins anew, with or without the shared system prompt, when it has become long.
func (g *generator) turn() request {
	if len(g.history) > 7 || len(g.history) == 0 {
		g.history = nil
		if g.rnd.IntN(4) > 0 {
			g.history = append(g.history, message("system", g.system))
		}
	}
	g.history = append(g.history, message("user", g.text(g.pick(2, 9, 25))))
	said := append([]map[string]any{}, g.history...)
	g.history = append(g.history, message("assistant", g.text(6)))
	return request{"chat, turns", chat, map[string]any{"messages": said, "max_completion_tokens": g.output()}}
}

func message(role string, content any) map[string]any {
	return map[string]any{"role": role, "content": content}
}

func (g *generator) tools() request {
	tools := []map[string]any{{"type": "function", "function": map[string]any{
		"name": "look", "description": g.text(5), "parameters": map[string]any{"type": "object", "properties": map[string]any{"at": map[string]any{"type": "string"}}},
	}}}
	return request{"chat, tools in the prompt", chat, map[string]any{
		"messages": []map[string]any{message("system", g.system), message("user", g.text(8))}, "tools": tools, "tool_choice": "none", "max_tokens": g.output(),
	}}
}

func (g *generator) chatLogprobs() request {
	parts := []map[string]any{{"type": "text", "text": g.text(12)}, {"type": "text", "text": g.text(4)}}
	return request{"chat, parts, logprobs", chat, map[string]any{
		"messages": []map[string]any{message("user", parts)}, "logprobs": true, "top_logprobs": 2, "max_tokens": g.output(),
	}}
}

func (g *generator) continued() request {
	return request{"chat, continued answer", chat, map[string]any{
		"messages": []map[string]any{message("user", g.system), message("assistant", g.text(3))}, "add_generation_prompt": false, "continue_final_message": true,
		"max_tokens": g.output(),
	}}
}

func (g *generator) salted() request {
	tenant := fmt.Sprint("tenant", g.rnd.IntN(3))
	return request{"cache_salt", completions, map[string]any{"prompt": g.shared[:200+g.rnd.IntN(40)], "cache_salt": tenant, "max_tokens": g.output()}}
}

func (g *generator) sampled() request {
	return request{"seed, sampled", completions, map[string]any{
		"prompt": g.text(40), "temperature": 0.8, "top_p": 0.9, "repetition_penalty": 1.1, "seed": g.rnd.IntN(1000), "max_tokens": 16,
	}}
}

func (g *generator) logprobs() request {
	return request{"logprobs", completions, map[string]any{"prompt": g.text(25), "logprobs": 2, "min_tokens": 4, "ignore_eos": true, "max_tokens": 12}}
}

func (g *generator) stops() request {
	return request{"stop strings", completions, map[string]any{"prompt": g.system + g.text(2), "stop": []string{"a", "o", "e"}, "max_tokens": 24}}
}

// several is n > 1, which Tandem does not split; the seed makes it repeatable.
func (g *generator) several() request {
	return request{"n = 2", completions, map[string]any{"prompt": g.text(50), "n": 2, "temperature": 0.7, "seed": g.rnd.IntN(1000), "max_tokens": 8}}
}

// toTheLimit generates to the last token of the context.
func (g *generator) toTheLimit() request {
	left := g.pick(1, 2, 8, 20)
	return request{"to the context limit", completions, map[string]any{"prompt": g.ids(contextTokens - left), "max_tokens": left, "ignore_eos": true}}
}

// tooLong is refused by every engine.
func (g *generator) tooLong() request {
	return request{"over the context limit", completions, map[string]any{"prompt": g.ids(contextTokens + g.pick(-1, 0, 1)), "max_tokens": 2}}
}
