package openai

import (
	"math"
	"strings"
	"testing"
)

func TestHints(t *testing.T) {
	const chat = `"messages":[{"role":"user","content":"hi"}]`
	const prompt = `"prompt":"hi"`
	// osl is a client's hint about the length of its answer.
	osl := func(n string) string { return `,"nvext":{"agent_hints":{"osl":` + n + `}}` }
	for name, c := range map[string]struct {
		kind Kind
		body string
		want Hints
	}{
		"nothing":             {Chat, chat, Hints{}},
		"expected length":     {Chat, chat + osl(`300,"priority":5`), Hints{Output: 300}},
		"of a completion":     {Completions, prompt + osl(`"300"`), Hints{Output: 300}},
		"of messages":         {Messages, chat + osl("300"), Hints{Output: 300}},
		"of responses":        {Responses, `"input":"hi"` + osl("300"), Hints{Output: 300}},
		"escaped":             {Chat, chat + `,"nv\u0065xt":{"agent_hints":{"o\u0073l":300}}`, Hints{Output: 300}},
		"the last of several": {Chat, chat + osl("3") + osl("4"), Hints{Output: 4}},
		"taken back":          {Chat, chat + osl("3") + `,"nvext":null`, Hints{}},
		"below zero":          {Chat, chat + osl("-3"), Hints{}},
		"too large":           {Chat, chat + osl("1e300"), Hints{}},
		"no number":           {Chat, chat + osl("[1]"), Hints{}},
		"no object":           {Chat, chat + `,"nvext":[],"service_tier":7`, Hints{}},
		"no hints":            {Chat, chat + `,"nvext":{"agent_hints":"osl","osl":5}`, Hints{}},
		"a form":              {Chat, chat + `,"response_format":{"type":"json_object"}`, Hints{Structured: true}},
		"text is no form":     {Chat, chat + `,"response_format":{"type":"text"}`, Hints{}},
		"a form of responses": {
			Responses, `"input":"hi","text":{"format":{"type":"json_schema"}}`, Hints{Structured: true},
		},
		"a regular expression": {Completions, prompt + `,"guided_regex":"a+"`, Hints{Structured: true}},
		"words that end it":    {Completions, prompt + `,"stop":["\n"]`, Hints{Stops: true}},
		"of messages, too":     {Messages, chat + `,"stop_sequences":["END"]`, Hints{Stops: true}},
		"no words":             {Chat, chat + `,"stop":[]`, Hints{}},
		"a tier":               {Chat, chat + `,"service_tier":"flex","priority":3`, Hints{}},
	} {
		t.Run(name, func(t *testing.T) {
			body := `{"model":"m",` + c.body + `}`
			r, err := Parse(c.kind, []byte(body), Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if r.Hints != c.want {
				t.Errorf("%s: got hints %+v, want %+v", body, r.Hints, c.want)
			}
			if string(r.Raw) != body {
				t.Errorf("got body %s, want it unchanged", r.Raw)
			}
		})
	}
}

// The priority of a body is the integer of vLLM, read as vLLM reads it. Without that integer, the priority is
// Dynamo's with the opposite sign. A value that is no whole number counts as no priority.
func TestPriorityOfABody(t *testing.T) {
	dynamo := func(p string) string { return `"nvext":{"agent_hints":{"priority":` + p + `}}` }
	for body, want := range map[string]int{
		``: 0, `"priority":3`: 3, `"priority":-3`: -3, `"priority":2.0`: 2, `"priority":"4"`: 4,
		`"priority":true`: 1,
		`"priority":2.5`:  0, `"priority":null`: 0, `"priority":[1]`: 0, `"priority":{"a":1}`: 0,
		`"priority":"x"`: 0,
		`"priority":""`:  0, `"priority":"NaN"`: 0,
		`"priority":1e300`: 1 << 53, `"priority":-1e999`: -1 << 53,
		`"priority":-9223372036854775808`: math.MinInt64,
		`"priority":1,"priority":2`:       2, `"pr\u0069ority":7`: 7,
		dynamo(`5`): -5, dynamo(`-5`): 5, dynamo(`-9223372036854775808`): 1 << 53, dynamo(`"x"`): 0,
		dynamo(`[5]`):                 0,
		dynamo(`5`) + `,"priority":1`: 1, dynamo(`5`) + `,"priority":null`: -5, dynamo(`5`) + `,"priority":0`: 0,
		dynamo(`5,"priority":6`): -6, dynamo(`5`) + `,"nvext":{}`: 0, `"nvext":5`: 0, `"nvext":{"priority":5}`: 0,
		`"nvext":{"agent_hints":[{"priority":5}]}`: 0, `"nvext":{"agent_hints":{"strict_priority":5}}`: 0,
	} {
		r, err := Parse(Completions, []byte(`{"prompt":"x"`+strings.TrimSuffix(","+body, ",")+`}`), Limits{})
		if err != nil {
			t.Fatal(body, err)
		}
		if got := r.Priority(); got != want {
			t.Errorf("%s: got %d, want %d", body, got, want)
		}
	}
}
