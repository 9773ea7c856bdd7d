package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"strings"
	"sync"
)

// referenceWorkers ask the reference at the same time.
const referenceWorkers = 4

// exact wants every answer to be the reference's, which computes each from nothing.
func (c *tenants) exact(ctx context.Context) error {
	errs := make([]error, len(c.asked))
	var workers sync.WaitGroup
	for w := range referenceWorkers {
		workers.Go(func() {
			for i := w; i < len(c.asked); i += referenceWorkers {
				errs[i] = c.sameAlone(ctx, c.asked[i])
			}
		})
	}
	workers.Wait()
	say("%d answers are compared with the reference's", len(c.asked))
	return errors.Join(errs...)
}

func (c *tenants) sameAlone(ctx context.Context, q *ordered) error {
	body := maps.Clone(q.body)
	body["cache_salt"] = "alone-" + q.id
	want, err := ask(ctx, c.s.reference().url(), q.path, body)
	if err != nil {
		return fmt.Errorf("the reference: %w", err)
	}
	if d := difference(q.answer, want); d != "" {
		return fmt.Errorf("%s of %s, prefilled by %s: %s", q.id, q.key, q.prefill, d)
	}
	return nil
}

// bill is what a key has used.
type bill struct{ prompts, prompt, cached, generated int }

// counted is the bill of each key, as the clients count.
func (c *tenants) counted() map[string]bill {
	all := map[string]bill{}
	for _, q := range c.asked {
		b := all[q.key]
		all[q.key] = bill{
			b.prompts + 1, b.prompt + q.usage.Prompt, b.cached + q.cached, b.generated + q.usage.Completion,
		}
	}
	return all
}

// metered wants the metrics of each key to be what the clients counted.
func (c *tenants) metered(ctx context.Context) error {
	page, err := scrape(ctx, c.r.admin)
	if err != nil {
		return err
	}
	got := map[string]bill{}
	for key := range c.counted() {
		sum := func(name string, labels ...string) int {
			n, _ := page.sum(name, append(labels, label("key", key))...)
			return int(n)
		}
		const tokens = "tandem_key_tokens_total"
		got[key] = bill{
			sum("tandem_key_requests_total", label("outcome", "ok")), sum(tokens, label("kind", "prompt")),
			sum(tokens, label("kind", "cached")), sum(tokens, label("kind", "generated")),
		}
	}
	return c.sameBills("the metrics", got)
}

// charged wants `tandem usage` to say what the clients counted.
func (c *tenants) charged(ctx context.Context, file string) error {
	out, err := exec.CommandContext(ctx, c.s.tandem, "usage", file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("tandem usage: %w: %s", err, out)
	}
	fmt.Printf("\n%s\n", out)
	got := map[string]bill{}
	for line := range strings.Lines(string(out)) {
		var key, model string
		var b bill
		if n, _ := fmt.Sscan(line, &key, &model, &b.prompts, &b.prompt, &b.cached, &b.generated); n == 6 {
			got[key] = b
		}
	}
	return c.sameBills("tandem usage", got)
}

func (c *tenants) sameBills(what string, got map[string]bill) error {
	if want := c.counted(); !maps.Equal(got, want) {
		return fmt.Errorf("%s: %+v, but the clients counted %+v", what, got, want)
	}
	return nil
}
