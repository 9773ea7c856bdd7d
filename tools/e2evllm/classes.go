package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Keys of two tenants: shop sends few requests, lab sends ten times as many, and rush is the key for lab's
// urgent requests.
const (
	shop = "shop"
	lab  = "lab"
	rush = "rush"
)

// twoTenants have equal shares. The goals allow for a busy machine: a missed goal would change the order.
const twoTenants = `keys:
  - {name: shop, secret: {value: shop}, class: interactive, classes: [batch], weight: 1}
  - {name: lab, secret: {value: lab}, class: batch, weight: 1}
  - {name: rush, secret: {value: rush}, class: interactive, tenant: lab}
classes:
  - {name: interactive, ttft: 10m, tpot: 1m}
  - {name: batch, ttft: 1h}
isolation: {salt: {value: the salt of the act classes}}`

// A crowd is more than the decode engines can run at once: lab sends a crowd, and then shop sends a tenth of
// one.
const (
	labCrowd    = 60
	shopCrowd   = labCrowd / 10
	crowdPrompt = 10*blockTokens + 11 // tokens
	crowdAnswer = 12
)

// ordered is one request with a key, its answer, and what Tandem's record says of the request.
type ordered struct {
	request
	answer
	key     string
	came    time.Time
	room    time.Time // when the request got room
	prefill string    // the engine
	found   int       // tokens that the engine should have in its cache
}

// tenants is the act while it is played.
type tenants struct {
	s     *stage
	r     *router
	g     *generator
	asked []*ordered
}

// classes plays two tenants and two classes. Every answer must equal the reference's. No tenant finds blocks
// of the other. The urgent class goes before a waiting crowd. Within a class, the tenant with few requests
// gets its share. Tandem charges the amounts that the clients counted.
func classes(ctx context.Context, s *stage) error {
	used := filepath.Join(s.work, "usage.jsonl")
	file, err := s.configure("classes", twoTenants, "local: never", "timeouts: {queue: 10m}", evenSpeeds,
		fmt.Sprintf("usage: {file: %q}", used))
	if err != nil {
		return err
	}
	c := &tenants{s: s, g: newPrompts()}
	if c.r, err = s.serveHearing(ctx, file); err != nil {
		return err
	}
	err = inOrder(ctx,
		step{"tenants with salts", func() error { return c.apart(ctx) }},
		step{"the urgent class before a crowd", func() error { return c.urgent(ctx) }},
		step{"shares within a class", func() error { return c.shares(ctx) }},
		step{"every kind of request", func() error { return c.everyKind(ctx) }},
		step{"all answers beside the reference's", func() error { return c.exact(ctx) }},
		step{"metrics", func() error { return c.metered(ctx) }},
		step{"no lease is left", func() error { return awaitReleased(ctx, c.r) }},
	)
	if err = errors.Join(err, c.r.end()); err != nil {
		return err
	}
	return c.charged(ctx, used)
}

// invent makes n new requests for a key. Every other request is streamed.
func (c *tenants) invent(key string, n int) []*ordered {
	var all []*ordered
	for i := range n {
		body := map[string]any{
			"model": modelName, "prompt": c.g.ids(crowdPrompt), "max_tokens": crowdAnswer, "ignore_eos": true,
			"temperature": 0, "return_token_ids": true, "logprobs": 1,
		}
		if i%2 == 1 {
			body["stream"], body["stream_options"] = true, map[string]any{"include_usage": true}
		}
		all = append(all, &ordered{key: key, request: request{"ids", completions, body}})
	}
	return all
}

// ask sends a request with its key and more header lines.
func (c *tenants) ask(ctx context.Context, q *ordered, header ...string) (err error) {
	header = append(header, "Authorization: Bearer "+q.key)
	q.answer, err = ask(ctx, c.r.front, q.path, q.body, header...)
	if err == nil && q.status != http.StatusOK {
		err = fmt.Errorf("%s is refused with %d: %.300s", q.key, q.status, q.refusal)
	}
	return err
}

// remember reads the records of requests, which are then part of all checks.
func (c *tenants) remember(ctx context.Context, all ...*ordered) error {
	ids := make([]string, len(all))
	for i, q := range all {
		ids[i] = q.id
	}
	records, err := recordsOf(ctx, c.r, ids)
	if err != nil {
		return err
	}
	for i, q := range all {
		r := &records[i]
		waited := (r.Phases.Tokenize + r.Phases.Queue) * float64(time.Millisecond)
		q.came = r.Time
		q.room = r.Time.Add(time.Duration(waited))
		q.prefill = r.Prefill
		q.found = r.Captured
	}
	c.asked = append(c.asked, all...)
	return nil
}

// apart sends prompts of every API four times: twice as shop, then twice as lab. The first round of each
// tenant finds nothing in a cache. The second round finds all whole blocks before the last token. One prefill
// engine is drained, so that both tenants use the other one.
func (c *tenants) apart(ctx context.Context) error {
	err := c.order(ctx, "drain", "p1")
	for _, k := range keyedPrompts(c.g) {
		k.body["model"], k.body["temperature"] = modelName, 0
		err = errors.Join(err, c.fourTimes(ctx, k.request))
	}
	return errors.Join(err, c.order(ctx, "undrain", "p1"))
}

// order runs a tandem command against the router.
func (c *tenants) order(ctx context.Context, args ...string) error {
	args = append(args, "--admin", c.r.admin)
	if out, err := exec.CommandContext(ctx, c.s.tandem, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("tandem %v: %w: %s", args, err, out)
	}
	return nil
}

// fourTimes sends the requests of [tenants.apart].
func (c *tenants) fourTimes(ctx context.Context, what request) error {
	var errs []error
	for i, key := range []string{shop, shop, lab, lab} {
		q := &ordered{key: key, request: what}
		if err := c.ask(ctx, q); err != nil {
			return err
		}
		if err := c.remember(ctx, q); err != nil {
			return err
		}
		want := i % 2 * ((q.usage.Prompt - 1) / blockTokens * blockTokens)
		if q.cached != want || q.found != want || q.prefill != "p0" {
			errs = append(errs,
				fmt.Errorf("%s, %s at %s: %d tokens predicted and %d found in a cache, want %d",
					what.kind, key, q.prefill, q.found, q.cached, want))
		}
	}
	return errors.Join(errs...)
}

// crowd sends lab's crowd, and then few when half of the crowd waits for room. It returns when all requests
// have an answer.
func (c *tenants) crowd(ctx context.Context, few []*ordered, header ...string) (many []*ordered, err error) {
	many = c.invent(lab, labCrowd)
	errs := make([]error, len(many)+len(few))
	var all sync.WaitGroup
	for i, q := range many {
		all.Go(func() { errs[i] = c.ask(ctx, q) })
	}
	waits := eventually(ctx, 30*time.Second, func() error {
		n, err := c.r.series(ctx, "tandem_queue_waiting")
		if err == nil && n < labCrowd/2 {
			err = fmt.Errorf("%.0f requests wait for room, want %d", n, labCrowd/2)
		}
		return err
	})
	for i, q := range few {
		all.Go(func() { errs[len(many)+i] = c.ask(ctx, q, header...) })
	}
	all.Wait()
	if err := errors.Join(waits, errors.Join(errs...)); err != nil {
		return nil, err
	}
	return many, c.remember(ctx, slices.Concat(many, few)...)
}

// urgent sends requests of shop and rush, in their class, while lab's crowd waits. Shares alone would let
// shop go first, but not rush, which belongs to the crowd's tenant.
func (c *tenants) urgent(ctx context.Context) error {
	few, own := c.invent(shop, shopCrowd), c.invent(rush, shopCrowd)
	many, err := c.crowd(ctx, slices.Concat(few, own))
	if err != nil {
		return err
	}
	return errors.Join(overtakes(few, many), overtakes(own, many))
}

// overtakes requires urgent requests to go before nearly all requests that waited at their arrival. One in
// ten requests that get room is the oldest, whatever its class.
func overtakes(urgent, patient []*ordered) error {
	waited, before := 0, 0
	for _, u := range urgent {
		for _, p := range patient {
			if p.came.Before(u.came) && p.room.After(u.came) {
				waited++
				if p.room.Before(u.room) {
					before++
				}
			}
		}
	}
	say("%d urgent requests came while %d patient ones waited, on average; %.1f of these went first",
		len(urgent), waited/len(urgent), float64(before)/float64(len(urgent)))
	switch {
	case waited < len(urgent)*len(patient)/3:
		return fmt.Errorf("%d requests waited when the %d urgent ones came: too few to show an order",
			waited, len(urgent))
	case 5*before > waited:
		return fmt.Errorf("%d of %d requests that waited went before an urgent one", before, waited)
	}
	return nil
}

// shares sends shop's requests in the class of lab's crowd.
func (c *tenants) shares(ctx context.Context) error {
	few := c.invent(shop, shopCrowd)
	many, err := c.crowd(ctx, few, "X-Llm-D-Inference-Objective: batch")
	if err != nil {
		return err
	}
	return fairly(few, many)
}

// fairly requires that the tenant with few requests got half of the room, from the time when all its requests
// waited until all had room. One in ten is the oldest request, and one of the same size gets room at once.
func fairly(few, many []*ordered) error {
	by := func(a, b time.Time) int { return a.Compare(b) }
	var came, room []time.Time
	for _, q := range few {
		came, room = append(came, q.came), append(room, q.room)
	}
	from, to := slices.MaxFunc(came, by), slices.MaxFunc(room, by)
	theirs, left := 0, 0
	for _, q := range many {
		switch at := q.room; {
		case at.After(to):
			left++
		case at.After(from):
			theirs++
		}
	}
	say("%d requests of one tenant had room beside %d of the other, and %d of these still waited",
		len(few), theirs, left)
	switch {
	case left < len(many)/3:
		return fmt.Errorf("only %d of %d requests of the other tenant were left: too few to show shares",
			left,
			len(many))
	case theirs > 2*len(few):
		return fmt.Errorf("%d requests of the other tenant found room beside %d, though the shares are equal",
			theirs, len(few))
	}
	return nil
}
