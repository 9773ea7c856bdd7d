package main

import (
	"slices"
	"strings"
	"testing"
)

// keyedAct asks for completions of every variant twice, and returns all errors of the act.
func keyedAct(t *testing.T, reference, front *keeper) string {
	t.Helper()
	s, r := playing(t, reference, front)
	prompts := keyedPrompts(newGenerator(1))[:1]
	var errs []string
	for _, what := range []expected{nothing, everything, again} {
		if err := s.askKeyed(t.Context(), r, prompts, what); err != nil {
			errs = append(errs, err.Error())
		}
	}
	if err := tellApart(prompts); err != nil {
		errs = append(errs, err.Error())
	}
	return strings.Join(errs, "\n")
}

// TestKeysOfVariants checks that the act passes when each model and tenant has its own blocks, and that it
// fails for each way of sharing blocks between them.
func TestKeysOfVariants(t *testing.T) {
	for name, c := range map[string]struct {
		front *keeper
		text  func(model, salt string) string // the reference's answer
		want  string
	}{
		"each its own": {&keeper{}, nil, ""},
		"adapters share": {
			&keeper{key: func(_, salt, _ string) string { return salt }}, nil, `ids of a/""`,
		},
		"tenants share": {
			&keeper{key: func(model, _, _ string) string { return model }}, nil, `ids of tiny/"tenant"`,
		},
		"a tenant called like an adapter": {
			&keeper{key: func(model, salt, _ string) string { return strings.TrimPrefix(model, modelName) + salt }},
			nil, "and 96 found in the cache, want 0",
		},
		"nothing is kept": {
			&keeper{key: func(_, _, _ string) string { return newPrompts().text(9) }}, nil,
			"0 found in the cache, want 96",
		},
		"a prediction is wrong": {&keeper{off: 32}, nil, "32 tokens predicted and 0 found"},
		"the adapter is ignored": {
			&keeper{text: func(string, string) string { return "the same" }}, nil, "the text of choice 0",
		},
		"the adapters change nothing anywhere": {
			&keeper{text: func(string, string) string { return "one" }}, func(string, string) string { return "one" },
			"3 models have 1 answers to the same",
		},
		"a salt changes the answer": {
			&keeper{text: func(m, s string) string { return m + s }}, func(m, s string) string { return m + s },
			"without a salt",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.front.key == nil {
				c.front.key = byAll
			}
			reference := &keeper{key: byAll, text: byModel}
			if c.text != nil {
				reference.text = c.text
			}
			if c.front.text == nil {
				c.front.text = byModel
			}
			got := keyedAct(t, reference, c.front)
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("the act's errors are %q, want %q", got, c.want)
			}
		})
	}
}

// TestVariantsMeetEveryName checks the base model and the adapters: without a tenant, with a tenant, and
// with a tenant that is named like an adapter.
func TestVariantsMeetEveryName(t *testing.T) {
	all := variants()
	for _, v := range []variant{
		{modelName, ""}, {modelName, adapterA}, {adapterA, ""}, {adapterA, adapterA}, {adapterB, "tenant"},
	} {
		if !slices.Contains(all, v) {
			t.Errorf("%v is missing", v)
		}
	}
}

// TestAdapterFlags checks that only engines with adapters get the flags.
func TestAdapterFlags(t *testing.T) {
	if flags, vars := (&engine{}).adapterFlags(); flags != nil || vars != nil {
		t.Errorf("%v %v", flags, vars)
	}
	e := &engine{Adapters: []string{"a", "b"}, env: environment{root: "/r"}}
	flags, vars := e.adapterFlags()
	at := slices.Index(flags, "--lora-modules")
	if at < 0 || !slices.Contains(flags, "--enable-lora") || len(flags) != at+3 ||
		!strings.HasPrefix(flags[at+1], "a=/r/e2e-adapters-") || len(vars) != 1 {
		t.Errorf("%v %v", flags, vars)
	}
}
