package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// prompt is a prompt that went through a router, with the fields that select its blocks in an engine's cache.
type prompt struct {
	ids   []int
	said  []int // the answer's tokens: their blocks are cached too
	salt  string
	split bool
}

// memory is the prompts that went through the routers of a run, the newest last. Safe for concurrent use.
type memory struct {
	mu      sync.Mutex
	prompts []prompt
	audits  uint64
}

// remembered is the number of prompts kept. Caches of some hundred blocks hold fewer.
const remembered = 400

// note keeps the prompts of q with known ids: the client sent the ids, or had them sent.
func (m *memory) note(q request, a answer) {
	salt, _ := q.body["cache_salt"].(string)
	given := givenIDs(q.body["prompt"])
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, c := range a.choices {
		ids := c.promptIDs
		if len(ids) == 0 && i < len(given) {
			ids = given[i]
		}
		if len(ids) > 0 {
			m.prompts = append(m.prompts, prompt{ids, c.ids, salt, a.mode == "split"})
		}
	}
	m.prompts = slices.Clone(m.prompts[max(0, len(m.prompts)-remembered):])
}

func givenIDs(prompts any) [][]int {
	switch p := prompts.(type) {
	case []int:
		return [][]int{p}
	case [][]int:
		return p
	}
	return nil
}

// sample returns n different prompts that fill at least a block. Split prompts come first, and newer prompts
// before older ones, because new prompts are still cached. Each prompt has one of three forms: unchanged;
// its beginning with another end; the prompt with its answer and another end. There is room for answer more
// tokens.
func (m *memory) sample(n, answer int) ([]prompt, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.audits++
	g := &generator{rnd: rand.New(rand.NewPCG(m.audits, 7))}
	var some []prompt
	for _, split := range []bool{true, false} {
		for _, p := range slices.Backward(m.prompts) {
			known := slices.ContainsFunc(some,
				func(o prompt) bool { return o.salt == p.salt && slices.Equal(o.ids, p.ids) })
			if len(some) < n && p.split == split && len(p.ids) > blockTokens && !known {
				some = append(some, p)
			}
		}
	}
	if len(some) < n {
		return nil,
			fmt.Errorf("an audit of %d prompts, but only %d of a block or more went through a router: "+
				"compare more answers before", n, len(some))
	}
	for i := range some {
		some[i].ids = g.vary(some[i], i%3)
		some[i].ids = some[i].ids[:min(len(some[i].ids), contextTokens-answer)]
	}
	return some, nil
}

func (g *generator) vary(p prompt, form int) []int {
	switch form {
	case 1:
		blocks := 1 + g.rnd.IntN(len(p.ids)/blockTokens)
		return slices.Concat(p.ids[:blocks*blockTokens], g.ids(g.pick(1, 5, blockTokens)))
	case 2:
		return slices.Concat(p.ids, p.said, g.ids(g.pick(1, 5, blockTokens)))
	}
	return p.ids
}

// auditTokens is the number of tokens requested from each engine in an audit. A wrong block shows in the
// log-probability of the first token.
const auditTokens = 3

// audit sends at least n prompts that went through the routers of this run directly to every prefill and
// decode engine. It sends them to the reference too, which computes them without cached blocks. Only this
// reveals a poisoned prefix cache: the split answer that poisoned it may have been right.
func (s *stage) audit(ctx context.Context, n int) error {
	begun := time.Now()
	sample, err := s.memory.sample(n, auditTokens)
	if err != nil {
		return err
	}
	answers, cached, err := s.askAll(ctx, sample)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	var errs []error
	for name, given := range answers {
		for i, a := range given {
			if d := difference(a, answers["ref"][i]); d != "" {
				p := sample[i]
				errs = append(errs, fmt.Errorf(
					"audit: %s is asked directly for %d tokens (salt %q) of which it has %d cached: %s", name,
					len(p.ids),
					p.salt, a.cached, d,
				))
			}
		}
	}
	if cached == 0 {
		errs = append(errs,
			errors.New("audit: no engine had cached blocks of the prompts, so the audit proved nothing"))
	}
	say("audit: %d prompts of each engine, %d tokens of them from caches, %d wrong, %.1f s",
		len(sample), cached, len(errs), time.Since(begun).Seconds())
	return errors.Join(errs...)
}

// askAll returns, by engine name, the answers of each engine to the prompts, and the number of cached prompt
// tokens.
func (s *stage) askAll(ctx context.Context, prompts []prompt) (map[string][]answer, int, error) {
	answers := map[string][]answer{}
	cached := 0
	errs := []error(nil)
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, e := range s.engines {
		all.Go(func() {
			mine, found, err := s.askEngine(ctx, e, prompts)
			mu.Lock()
			defer mu.Unlock()
			answers[e.Name] = mine
			cached += found
			errs = append(errs, err)
		})
	}
	all.Wait()
	return answers, cached, errors.Join(errs...)
}

// askEngine sends the prompts to e one after another: with the prompt's own salt, or with a new salt if e is
// the reference.
func (s *stage) askEngine(
	ctx context.Context, e *engine, prompts []prompt,
) (answers []answer, cached int, err error) {
	for i, p := range prompts {
		body := map[string]any{
			"model": modelName, "prompt": p.ids, "max_tokens": auditTokens, "temperature": 0,
			"ignore_eos": true,
			"logprobs":   1, "return_token_ids": true,
		}
		if e == s.reference() {
			p.salt = fmt.Sprintf("audit-%d-%d", time.Now().UnixNano(), i)
		}
		if p.salt != "" {
			body["cache_salt"] = p.salt
		}
		a, err := ask(ctx, e.url(), completions, body)
		if err == nil && a.status != 200 {
			err = fmt.Errorf("status %d", a.status)
		}
		if err != nil {
			return nil, 0, fmt.Errorf("%s, asked plainly: %w", e.Name, err)
		}
		answers, cached = append(answers, a), cached+a.cached
	}
	return answers, cached, nil
}
