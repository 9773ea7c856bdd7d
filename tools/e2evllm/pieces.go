package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// longContext is the context of engines that get prompts in pieces. A piece has at least 512 tokens.
const longContext = 4096

// pacing are a decode engine that computes every prompt itself, and a reference. Neither computes a prompt in
// chunks, and nothing is evicted between two pieces.
var pacing = &fleet{"pacing", func() []*engine {
	long := slices.Concat(atOnce, []string{"--max-model-len", strconv.Itoa(longContext)})
	return []*engine{
		{Name: "d0", Role: consumer, Blocks: 1024, Flags: long},
		{Name: "ref", Blocks: 1024, Flags: long},
	}
}}

// pacedKinds are long prompts of every API, and short prompts that stream beside them.
var pacedKinds = []func(*generator) request{
	(*generator).longIDs, (*generator).stops, (*generator).longChat, (*generator).streamed,
	(*generator).longText, (*generator).longSalted, (*generator).chatTurns, (*generator).longMessages,
	(*generator).streamed, (*generator).longSampled, (*generator).longResponses, (*generator).longLogprobs,
}

// pieces sends long prompts to a decode engine in pieces, one at a time and several at a time.
//
// Both engines first get a direct request: on the first request with log-probabilities, vLLM on a CPU
// compiles code, which takes long on a busy machine.
func pieces(ctx context.Context, s *stage) error {
	if _, _, err := s.askAll(ctx, []prompt{{ids: newGenerator(s.seed).ids(blockTokens)}}); err != nil {
		return err
	}
	paced := phase{
		local: "always", requests: max(s.requests/8, 2*len(pacedKinds)), predicted: 0.9, kinds: pacedKinds,
		settings: []string{"scoring: {prefill_piece: 1ms}"}, inPieces: true,
	}
	alone, beside := paced, paced
	alone.name, beside.name = "long prompts in pieces, one at a time",
		"long prompts in pieces, four at a time"
	alone.workers, beside.workers = 1, 4
	alone.seed, beside.seed = s.seed+14000, s.seed+15000
	return s.playPhases(ctx, alone, beside)
}

// longIDs is a prompt of several pieces. Every other prompt shares its beginning.
func (g *generator) longIDs() request {
	var ids []int
	if g.rnd.IntN(2) == 0 {
		ids = append(ids, g.shared...)
	}
	ids = append(ids, g.ids(1100+g.rnd.IntN(2400))...)
	return request{"ids, long", completions, map[string]any{"prompt": ids, "max_tokens": g.output()}}
}

func (g *generator) longText() request {
	body := map[string]any{"prompt": g.lengthy(), "max_tokens": g.output()}
	return request{"text, long", completions, body}
}

// lengthy is a text of at least 1,100 tokens.
func (g *generator) lengthy() string { return g.text(g.pick(450, 600, 700)) }

func (g *generator) longChat() request {
	said := []map[string]any{message("system", g.system), message("user", g.lengthy())}
	return request{"chat, long", chat, map[string]any{"messages": said, "max_completion_tokens": g.output()}}
}

func (g *generator) longMessages() request {
	said := []map[string]any{message("user", g.lengthy())}
	return request{"messages, long", messages, map[string]any{"messages": said, "max_tokens": g.output()}}
}

func (g *generator) longResponses() request {
	return request{"responses, long", responses, map[string]any{
		"input": g.lengthy(), "instructions": g.system, "max_output_tokens": g.output(),
	}}
}

func (g *generator) longSalted() request {
	r := g.longIDs()
	r.kind, r.body["cache_salt"] = "ids, long, salted", g.tenant()
	return r
}

func (g *generator) longSampled() request {
	r := g.longText()
	r.kind, r.body["seed"] = "text, long, seed, sampled", g.rnd.IntN(1000)
	r.body["temperature"], r.body["top_p"] = 0.8, 0.9
	return r
}

func (g *generator) longLogprobs() request {
	r := g.longIDs()
	r.kind = "ids, long, logprobs"
	r.body["logprobs"], r.body["ignore_eos"] = 2, true
	return r
}

// streamed is an answer that is long enough for pieces to run beside it.
func (g *generator) streamed() request {
	return request{"ids, long answer", completions, map[string]any{
		"prompt": g.ids(g.pick(7, 40, 90)), "max_tokens": 96, "ignore_eos": true, "stream": true,
	}}
}

// piecesSent has the results of the pieces of a phase.
type piecesSent struct{ computed, others int }

// piecesSent compares the counters before a phase with those after it.
func (p pages) piecesSent(after pages) *piecesSent {
	const name = "tandem_prefill_pieces_total"
	grown := func(labels ...string) int {
		x, _ := p.router.sum(name, labels...)
		y, _ := after.router.sum(name, labels...)
		return int(y - x)
	}
	computed := grown(label("result", "computed"))
	return &piecesSent{computed, grown() - computed}
}

// print writes its part of the table.
func (c *piecesSent) print(w io.Writer) {
	fmt.Fprintf(w, "  pieces       %d computed, %d failed, were lost or cut\n", c.computed, c.others)
}

// verdict returns the failed checks of this number of requests.
func (c *piecesSent) verdict(requests int) error {
	switch {
	case c.others > 0:
		return fmt.Errorf("%d pieces failed, were lost or cut", c.others)
	case c.computed < requests/2:
		return errors.New("too few prompts went in pieces to show anything")
	}
	return nil
}
