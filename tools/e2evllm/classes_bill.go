package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// everyKind sends, as shop, all requests of the act answers, also in forms that engines count differently.
func (c *tenants) everyKind(ctx context.Context) error {
	c.g.kinds = everyKind
	for range 2 * len(everyKind) { // streamed and whole
		q := &ordered{key: shop, request: c.g.next()}
		if err := c.ask(ctx, q); err != nil && q.kind != overContext {
			return fmt.Errorf("%s: %w", q.kind, err)
		}
		c.asked = append(c.asked, q)
	}
	return nil
}

// referenceWorkers is the number of workers that send requests to the reference.
const referenceWorkers = 4

// exact requires every answer to equal the reference's, which computes each without cached blocks.
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

// bill is the use of one key.
type bill struct{ prompts, prompt, cached, generated int }

// counted is the bill of each key, as counted by the clients.
func (c *tenants) counted() map[string]bill {
	all := map[string]bill{}
	for _, q := range c.asked {
		if q.status != http.StatusOK {
			continue
		}
		b, prompts := all[q.key], 1
		switch batch := q.body["prompt"].(type) {
		case []string:
			prompts = len(batch)
		case [][]int:
			prompts = len(batch)
		}
		all[q.key] = bill{
			b.prompts + prompts, b.prompt + q.usage.Prompt, b.cached + q.cached,
			b.generated + q.usage.Completion,
		}
	}
	return all
}

// metered requires the metrics of each key to match the clients' counts, soon after the last answer.
func (c *tenants) metered(ctx context.Context) error {
	return eventually(ctx, 2*time.Second, func() error {
		page, err := scrape(ctx, c.r.admin)
		if err != nil {
			return err
		}
		got := map[string]bill{}
		for key, counted := range c.counted() {
			of := func(kind string) int {
				n, _ := page.sum("tandem_key_tokens_total", label("key", key), label("kind", kind))
				return int(n)
			}
			got[key] = bill{counted.prompts, of("prompt"), of("cached"), of("generated")}
		}
		return c.sameBills("the metrics", got)
	})
}

// charged requires `tandem usage` to print the clients' counts.
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
