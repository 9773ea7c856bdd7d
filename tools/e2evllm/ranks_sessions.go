package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// newPrompts invents prompts that no engine has seen, not even in another run.
func newPrompts() *generator { return newGenerator(uint64(time.Now().UnixNano())) }

// session is a conversation. Each of its prompts begins with the prompt before.
type session struct {
	kind, path string
	body       func(turns []string) map[string]any
	ids        []int    // of a conversation in ids
	turns      []string // of a conversation in text: its turns
	last       record   // of the turn before
}

// newSessions are n conversations over all APIs, with long and different beginnings.
func newSessions(g *generator, n int) []*session {
	said := func(turns []string) (all []map[string]any) {
		for _, t := range turns {
			all = append(all, message("user", t))
		}
		return all
	}
	forms := []session{
		{kind: "ids", path: completions},
		{kind: "chat", path: chat, body: func(turns []string) map[string]any {
			return map[string]any{"messages": said(turns), "max_tokens": 8}
		}},
		{kind: "responses", path: responses, body: func(turns []string) map[string]any {
			return map[string]any{"input": said(turns), "max_output_tokens": 8, "store": false}
		}},
		{kind: "messages", path: messages, body: func(turns []string) map[string]any {
			return map[string]any{"messages": said(turns), "max_tokens": 8}
		}},
	}
	var all []*session
	for i := range n {
		one := forms[i%len(forms)]
		one.ids, one.turns = g.ids(10*blockTokens), []string{g.text(100)}
		all = append(all, &one)
	}
	return all
}

// next is the session's current request. The call makes the session one turn longer.
func (c *session) next(g *generator) request {
	q := request{kind: c.kind, path: c.path}
	if c.body != nil {
		q.body = c.body(c.turns)
	} else {
		q.body = map[string]any{"prompt": c.ids, "max_tokens": 8}
	}
	q.body["model"], q.body["temperature"] = modelName, 0
	c.ids, c.turns = slices.Concat(c.ids, g.ids(blockTokens+7)), append(slices.Clone(c.turns), g.text(15))
	return q
}

// sessions begins all conversations at once, so that both ranks get some, and then continues one at a time.
// Each conversation has to come back to the rank that holds its beginning. As many tokens as predicted have
// to be cached there.
func (s *stage) sessions(ctx context.Context, r *router) error {
	g := newPrompts()
	all := newSessions(g, 8)
	var first []request
	for _, c := range all {
		first = append(first, c.next(g))
	}
	records, err := s.tellAll(ctx, r, first)
	if err != nil {
		return err
	}
	used := map[string]int{}
	for i, c := range all {
		c.last = records[i]
		used[c.last.Prefill]++
	}
	for _, name := range s.engine("p0").rankNames() {
		if used[name] == 0 {
			err = errors.Join(err,
				fmt.Errorf("%s got none of %d conversations that began at once: %v", name, len(all), used))
		}
	}
	for turn := range 2 {
		for i, c := range all {
			got, errTell := s.tellAll(ctx, r, []request{c.next(g)})
			if errTell != nil {
				return errors.Join(err, errTell)
			}
			err = errors.Join(err,
				returned(got[0], c.last, fmt.Sprintf("turn %d of conversation %d (%s)", turn+2, i, c.kind)))
			c.last = got[0]
		}
	}
	return err
}

// closingTokens is more than the tokens that a chat template puts after the last message. The prompt of the
// next turn does not have them.
const closingTokens = 16

// returned returns an error if a request missed the cache of the turn before: all whole blocks of the earlier
// prompt, at the replica that prefilled it.
func returned(got, before record, what string) error {
	held := (before.Prompt - closingTokens) / blockTokens * blockTokens
	switch {
	case got.Prefill != before.Prefill:
		return fmt.Errorf("%s (%s) went to %s, and its beginning is at %s: %s",
			what, got.ID, got.Prefill, before.Prefill, got.Reason)
	case got.Captured != got.Delivered:
		return fmt.Errorf("%s was predicted to find %d tokens at %s and found %d",
			what, got.Captured, before.Prefill, got.Delivered)
	case held < blockTokens || got.Captured < held:
		return fmt.Errorf("%s found %d tokens at %s, where a prompt of %d had left %d",
			what, got.Captured, before.Prefill, before.Prompt, held)
	}
	return nil
}

// tellAll sends the requests at once, compares the answers, and returns the router's records in the same
// order.
func (s *stage) tellAll(ctx context.Context, r *router, requests []request) ([]record, error) {
	results := make([]result, len(requests))
	var all sync.WaitGroup
	for i, q := range requests {
		all.Go(func() { results[i] = s.compare(ctx, r, q) })
	}
	all.Wait()
	var errs []error
	ids := make([]string, len(results))
	for i, res := range results {
		ids[i] = res.id
		if res.diff != "" {
			errs = append(errs, fmt.Errorf("%s (%s): %s", res.id, res.kind, res.diff))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return recordsOf(ctx, r, ids)
}

// recordsOf reads the records with these ids, in their order.
func recordsOf(ctx context.Context, r *router, ids []string) ([]record, error) {
	known, err := readRecords(ctx, r)
	if err != nil {
		return nil, err
	}
	var found []record
	for _, id := range ids {
		i := slices.IndexFunc(known, func(k record) bool { return k.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("the router has no record of %q", id)
		}
		found = append(found, known[i])
	}
	return found, nil
}

// namedRanks sends values that clients may write into the header for ranks, through every API. The request
// must still go to the rank with its beginning. An engine refuses an unknown rank. This is checked too, or
// the test would prove nothing.
func (s *stage) namedRanks(ctx context.Context, r *router) error {
	if direct, err := askRank(ctx, s.engine("p0").url(), completions,
		map[string]any{"model": modelName, "prompt": []int{7}, "max_tokens": 1},
		"7"); err != nil || direct.status != http.StatusBadRequest {
		return fmt.Errorf("an engine of two ranks says %d to the rank 7 instead of 400 (%w)", direct.status,
			err)
	}
	g := newPrompts()
	var errs []error
	for _, c := range newSessions(g, 4) {
		first := c.next(g)
		got, err := s.tellAll(ctx, r, []request{first})
		if err != nil {
			return err
		}
		want, err := ask(ctx, s.reference().url(), first.path, first.body)
		if err != nil {
			return err
		}
		for _, rank := range []string{"0", "1", "2", "7", "-1", "99999999999999999999", "x", "0, 1", ""} {
			first.body["data_parallel_rank"] = 7
			a, err := askRank(ctx, r.front, first.path, first.body, rank)
			if err != nil {
				return fmt.Errorf("the rank %q of a client: %w", rank, err)
			}
			if d := difference(a, want); d != "" {
				errs = append(errs, fmt.Errorf("the rank %q of a client on %s: %s", rank, first.path, d))
				continue
			}
			records, err := recordsOf(ctx, r, []string{a.id})
			if err != nil {
				return err
			}
			errs = append(errs,
				returned(records[0], got[0], fmt.Sprintf("a request to %s for the rank %q", first.path,
					rank)))
		}
	}
	return errors.Join(errs...)
}

// askRank is ask of a client that names a rank.
func askRank(ctx context.Context, base, path string, body map[string]any, rank string) (answer, error) {
	resp, err := post(ctx, base+path, body, "X-Data-Parallel-Rank: "+rank)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	a := answer{
		id: resp.Header.Get("X-Request-Id"), mode: resp.Header.Get("X-Tandem-Mode"), status: resp.StatusCode,
	}
	return a, a.read(path, false, resp)
}
