package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
)

// variant is the owner of a prompt's blocks: a model (base or adapter) and a tenant.
type variant struct{ model, salt string }

func (v variant) String() string { return fmt.Sprintf("%s/%q", v.model, v.salt) }

// variants are the base model and two adapters, each without a tenant, with a tenant, and with a tenant that
// has the name of an adapter. In events both names are bare strings beside each other.
func variants() (all []variant) {
	for _, model := range []string{modelName, adapterA, adapterB} {
		for _, salt := range []string{"", "tenant", adapterA} {
			all = append(all, variant{model, salt})
		}
	}
	return all
}

// keyed is one request that is sent for every variant.
type keyed struct {
	request
	variants []variant
	want     map[variant]answer // the reference's answers
	found    map[variant]int    // cached tokens that the second round found
}

// adapters plays with the base model and adapters, with and without salts. A repeated prompt finds only
// blocks of the same model and tenant.
func adapters(ctx context.Context, s *stage) error {
	if err := s.unloadLate(ctx); err != nil {
		return err
	}
	file, err := s.configure("adapters", "local: never", evenSpeeds)
	if err != nil {
		return err
	}
	r, err := s.serveHearing(ctx, file)
	if err != nil {
		return err
	}
	prompts := keyedPrompts(newPrompts())
	errs := []error{
		s.hold(ctx, r, "no variant finds another's blocks",
			func(ctx context.Context, r *router) error { return s.askKeyed(ctx, r, prompts, nothing) }),
		s.hold(ctx, r, "every variant finds its own blocks",
			func(ctx context.Context, r *router) error { return s.askKeyed(ctx, r, prompts, everything) }),
		tellApart(prompts),
		r.end(),
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if r, err = s.serveHearing(ctx, file); err != nil {
		return err
	}
	errs = []error{
		s.hold(ctx, r, "a new router knows the owners of the blocks",
			func(ctx context.Context, r *router) error { return s.askKeyed(ctx, r, prompts, again) }),
		s.hold(ctx, r, "an adapter is loaded", s.loaded),
		r.end(),
		s.lateReplicas(ctx),
		s.unloadLate(ctx),
	}
	return errors.Join(errs...)
}

// keyedPrompts sends the same prompts for every variant to completions, and for some variants to the other
// APIs. Each prompt has some blocks and a rest.
func keyedPrompts(g *generator) []*keyed {
	few := []variant{{modelName, ""}, {adapterA, ""}, {adapterA, "tenant"}, {adapterB, adapterA}}
	said := []map[string]any{message("user", g.text(60))}
	all := []*keyed{
		{request: request{
			"ids", completions, map[string]any{"prompt": g.ids(3*blockTokens + 7), "max_tokens": 12},
		}, variants: variants()},
		{request: request{"chat", chat, map[string]any{"messages": said, "max_tokens": 8}}, variants: few},
		{request: request{
			"responses", responses, map[string]any{
				"input": g.text(60), "max_output_tokens": 8,
				"store": false,
			},
		}, variants: few},
		{request: request{
			"messages", messages,
			map[string]any{"messages": []map[string]any{message("user", g.text(60))}, "max_tokens": 8},
		}, variants: few},
	}
	for _, k := range all {
		k.want, k.found = map[variant]answer{}, map[variant]int{}
	}
	return all
}

// of is the request of one variant.
func (k *keyed) of(v variant) map[string]any {
	body := maps.Clone(k.body)
	body["model"], body["temperature"] = v.model, 0
	if v.salt != "" {
		body["cache_salt"] = v.salt
	}
	return body
}

// What a round of askKeyed expects of the cached tokens: none; all blocks before the last token; as many as
// in the earlier round.
type expected int

const (
	nothing expected = iota
	everything
	again
)

func (k *keyed) expects(what expected, v variant, prompt int) int {
	switch what {
	case nothing:
		return 0
	case everything:
		k.found[v] = (prompt - 1) / blockTokens * blockTokens
	}
	return k.found[v]
}

// askKeyed sends one request per variant. The answers must equal the reference's. Tandem's prediction and the
// engine's report must be as expected.
func (s *stage) askKeyed(ctx context.Context, r *router, prompts []*keyed, what expected) error {
	var errs []error
	for _, k := range prompts {
		for _, v := range k.variants {
			a, rec, err := tellOne(ctx, r, k.path, k.of(v))
			if err != nil {
				return fmt.Errorf("%s of %v: %w", k.kind, v, err)
			}
			want, ok := k.want[v]
			if !ok {
				if want, err = ask(ctx, s.reference().url(), k.path, k.of(v)); err != nil {
					return fmt.Errorf("%s of %v, reference: %w", k.kind, v, err)
				}
				k.want[v] = want
			}
			if d := difference(a, want); d != "" {
				errs = append(errs, fmt.Errorf("%s of %v: %s", k.kind, v, d))
			}
			if n := k.expects(what, v, rec.Prompt); rec.Captured != n || rec.Delivered != n ||
				rec.Mode != "split" {
				errs = append(errs, fmt.Errorf(
					"%s of %v (%s, %d tokens): %d tokens predicted and %d found in the cache, want %d",
					k.kind, v, rec.Mode,
					rec.Prompt, rec.Captured, rec.Delivered, n,
				))
			}
		}
	}
	return errors.Join(errs...)
}

// tellOne sends a request to the router and reads its record.
func tellOne(ctx context.Context, r *router, path string, body map[string]any) (answer, record, error) {
	a, err := ask(ctx, r.front, path, body)
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("refused with %d: %.300s", a.status, a.refusal)
	}
	if err != nil {
		return a, record{}, err
	}
	records, err := recordsOf(ctx, r, []string{a.id})
	if err != nil {
		return a, record{}, err
	}
	return a, records[0], nil
}

// tellApart requires different answers from different models: equal answers would prove nothing. It requires
// the same answer from one model for all tenants.
func tellApart(prompts []*keyed) error {
	k, texts := prompts[0], map[string]string{}
	var errs []error
	for _, v := range k.variants {
		text := k.want[v].text()
		if first, ok := texts[v.model]; ok && first != text {
			errs = append(errs, fmt.Errorf("%v answers %q, and without a salt %q", v, text, first))
		}
		texts[v.model] = text
	}
	if n := len(slices.Compact(slices.Sorted(maps.Values(texts)))); n != len(texts) {
		errs = append(errs, fmt.Errorf("%d models have %d answers to the same prompt: %q", len(texts), n,
			texts))
	}
	return errors.Join(errs...)
}

func (a answer) text() string {
	if len(a.choices) == 0 {
		return ""
	}
	return a.choices[0].text
}
