package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// serveEngine returns an engine whose answer is the sum of the prompt's ids. Prompts that begin with
// poisoned get another answer.
func serveEngine(t *testing.T, name string, cached int, poisoned []int) *engine {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Prompt []int
			Salt   string `json:"cache_salt"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		if (name == "ref") != strings.HasPrefix(body.Salt, "audit-") {
			t.Errorf("%s got the salt %q", name, body.Salt)
		}
		sum := 0
		for _, id := range body.Prompt {
			sum += id
		}
		if len(poisoned) > 0 && len(body.Prompt) > len(poisoned) &&
			slices.Equal(body.Prompt[:len(poisoned)], poisoned) {
			sum++
		}
		fmt.Fprintf(w, `{"choices":[{"index":0,"text":"%d"}],"usage":{"prompt_tokens":%d,`+
			`"prompt_tokens_details":{"cached_tokens":%d}}}`, sum, len(body.Prompt), cached)
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return &engine{Name: name, Port: port}
}

// remember adds twelve split prompts to the memory of s and returns the newest.
func remember(s *stage) []int {
	g := newGenerator(9)
	var ids []int
	for range 12 {
		ids = g.ids(3 * blockTokens)
		s.memory.note(request{"k", completions, map[string]any{"prompt": ids}},
			answer{mode: "split", choices: []choice{{ids: []int{7, 8}}}})
	}
	return ids
}

// TestAnAuditSeesPoison checks that an audit finds one poisoned prefix in one engine, finds nothing in
// healthy engines, and does not pass when no engine had cached blocks.
func TestAnAuditSeesPoison(t *testing.T) {
	var s stage
	newest := remember(&s)
	healthy, ref := serveEngine(t, "p0", 32, nil), serveEngine(t, "ref", 0, nil)
	for name, c := range map[string]struct {
		engines []*engine
		n       int
		want    string
	}{
		"healthy": {[]*engine{healthy, ref}, 12, ""},
		"poisoned": {
			[]*engine{healthy, serveEngine(t, "d1", 32, newest[:blockTokens]), ref},
			12,
			"d1 is asked directly",
		},
		"nothing cached":    {[]*engine{serveEngine(t, "p0", 0, nil), ref}, 12, "the audit proved nothing"},
		"too few are known": {[]*engine{healthy, ref}, 13, "only 12"},
	} {
		t.Run(name, func(t *testing.T) {
			s.engines = c.engines
			err := s.audit(t.Context(), c.n)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("the audit says %v, want %q", err, c.want)
			}
		})
	}
}

// TestAnAuditSamples checks that the audit takes the newest prompts, split prompts first, each once per
// salt, and in all forms.
func TestAnAuditSamples(t *testing.T) {
	var m memory
	g := newGenerator(1)
	ids := [][]int{g.ids(64), g.ids(40), g.ids(90), g.ids(31), g.ids(50)}
	note := func(mode, salt string, ids []int) {
		body := map[string]any{"prompt": "text"}
		if salt != "" {
			body["cache_salt"] = salt
		}
		m.note(request{"k", completions, body},
			answer{mode: mode, choices: []choice{{promptIDs: ids, ids: []int{9}}}})
	}
	note("split", "", ids[0])
	note("split", "", ids[0])
	note("split", "a", ids[0])
	note("local", "", ids[1])
	note("split", "", ids[2])
	note("split", "", ids[3]) // less than a full block
	note("unsplit", "", ids[4])
	some, err := m.sample(5, 3)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []prompt{
		{ids: ids[2]},
		{ids: ids[0][:32], salt: "a"},
		{ids: append(ids[0], 9)},
		{ids: ids[4]},
		{ids: ids[1][:32]},
	} {
		got := some[i]
		same := len(got.ids) >= len(want.ids) && slices.Equal(got.ids[:len(want.ids)], want.ids)
		if longer := len(got.ids) > len(want.ids); !same || got.salt != want.salt || longer != (i%3 > 0) {
			t.Errorf("prompt %d has %d tokens and the salt %q, want %d and %q: same beginning %v",
				i, len(got.ids), got.salt, len(want.ids), want.salt, same)
		}
	}
	if _, err := m.sample(6, 3); err == nil {
		t.Error("a sample of six was taken from five prompts")
	}
	for range 2 * remembered {
		note("split", "", g.ids(33))
	}
	if len(m.prompts) != remembered {
		t.Errorf("%d prompts are remembered", len(m.prompts))
	}
}
