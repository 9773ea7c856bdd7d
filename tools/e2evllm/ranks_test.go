package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// keeper acts as a router and all engines behind it: it answers completions, keeps records, and remembers
// prompts by a key that the test chooses.
type keeper struct {
	key  func(model, salt string, rank string) string
	text func(model, salt string) string
	off  int // the error of its predictions in tokens

	mu      sync.Mutex
	known   map[string]bool
	records []record
	ranks   []string // the header values that clients sent
}

func (f *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.URL.Path == "/debug/decisions" {
		_ = json.NewEncoder(w).Encode(f.records)
		return
	}
	var body struct {
		Model  string
		Salt   string `json:"cache_salt"`
		Prompt json.RawMessage
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	rank := r.Header.Get("X-Data-Parallel-Rank")
	f.ranks = append(f.ranks, rank)
	if rank == "7" {
		http.Error(w, `{"error":{"message":"out of range"}}`, http.StatusBadRequest)
		return
	}
	key, cached := f.key(body.Model, body.Salt, rank)+string(body.Prompt), 0
	if f.known[key] {
		cached = 3 * blockTokens
	}
	if f.known == nil {
		f.known = map[string]bool{}
	}
	f.known[key] = true
	id := fmt.Sprint("r", len(f.records))
	f.records = append(f.records, record{
		ID: id, Mode: "split", Outcome: "ok", Prompt: 3*blockTokens + 7, Captured: cached + f.off,
		Delivered: cached, Prefill: "p0/dp0",
	})
	w.Header().Set("X-Request-Id", id)
	fmt.Fprintf(w, `{"id":"c","choices":[{"index":0,"text":%q,"finish_reason":"length"}],`+
		`"usage":{"prompt_tokens":103,"completion_tokens":1,"total_tokens":104}}`, f.text(body.Model, body.Salt))
}

// playing returns a stage with one keeper as its reference, and a router that is another keeper.
func playing(t *testing.T, reference, front *keeper) (*stage, *router) {
	t.Helper()
	ref, r := httptest.NewServer(reference), httptest.NewServer(front)
	t.Cleanup(ref.Close)
	t.Cleanup(r.Close)
	var port int
	if _, err := fmt.Sscanf(ref.URL, "http://127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	return &stage{engines: []*engine{{Name: "p0", Ranks: 2, Port: port}, {Name: "ref", Port: port}}},
		&router{front: r.URL, admin: r.URL}
}

func byAll(model, salt, _ string) string { return model + "|" + salt + "|" }
func byModel(model, _ string) string     { return "said by " + model }

// TestRanksAreNamedByEngines: a server with one rank keeps its name.
func TestRanksAreNamedByEngines(t *testing.T) {
	one, two := &engine{Name: "d0"}, &engine{Name: "p0", Ranks: 2}
	if got := one.rankNames(); !slices.Equal(got, []string{"d0"}) {
		t.Errorf("%v", got)
	}
	if got := two.rankNames(); !slices.Equal(got, []string{"p0/dp0", "p0/dp1"}) {
		t.Errorf("%v", got)
	}
}

// TestASessionHasToReturn checks that a session returns to the rank of its first turn and finds the
// predicted tokens there.
func TestASessionHasToReturn(t *testing.T) {
	for name, c := range map[string]struct {
		got  record
		want string
	}{
		"held":           {record{Prefill: "p0/dp1", Captured: 320, Delivered: 320}, ""},
		"a short one":    {record{Prefill: "p0/dp1", Captured: 288, Delivered: 288}, ""},
		"the other rank": {record{Prefill: "p0/dp0", Captured: 320, Delivered: 320}, "its beginning is at p0/dp1"},
		"nothing there": {
			record{Prefill: "p0/dp1", Captured: 320, Delivered: 0},
			"was predicted to find 320 tokens at p0/dp1 and found 0",
		},
		"nothing claimed": {
			record{Prefill: "p0/dp1"}, "found 0 tokens at p0/dp1, where a prompt of 330 had left 288",
		},
	} {
		if err := returned(c.got, record{Prefill: "p0/dp1", Prompt: 330},
			"turn 2"); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSessionsGrow checks on every API that each turn begins with the turn before it.
func TestSessionsGrow(t *testing.T) {
	g := newGenerator(1)
	paths := map[string]bool{}
	for _, c := range newSessions(g, 8) {
		first, second := c.next(g), c.next(g)
		paths[first.path] = true
		text := func(q request) string {
			body := maps.Clone(q.body)
			for _, key := range []string{"model", "temperature", "max_tokens", "max_output_tokens", "store"} {
				delete(body, key)
			}
			b, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			return strings.TrimRight(string(b), "]}")
		}
		if a, b := text(first), text(second); !strings.HasPrefix(b, a) || a == b {
			t.Errorf("%s: %.60s... does not begin with %.60s...", c.kind, b, a)
		}
	}
	if len(paths) != 4 {
		t.Errorf("sessions only on %v", paths)
	}
}

// TestARankThatHidesIsSeen: each rank must get at least a fifth of a crowd of requests.
func TestARankThatHidesIsSeen(t *testing.T) {
	split := func(a, b int) (all []record) {
		for i := range a + b {
			all = append(all, record{Mode: "split", Prefill: []string{"p0/dp0", "p0/dp1"}[min(1, i/max(a, 1))]})
		}
		return append(all, record{Mode: "unsplit"})
	}
	names := []string{"p0/dp0", "p0/dp1"}
	if err := shared(split(5, 15), names); err != nil {
		t.Error(err)
	}
	if err := shared(split(3, 17), names); err == nil ||
		!strings.Contains(err.Error(), "p0/dp0 prefilled 3 of 20") {
		t.Errorf("%v", err)
	}
}

// TestWhatIsKnownOfARank checks each known fact of a rank against the engine's flags, one fact at a time.
func TestWhatIsKnownOfARank(t *testing.T) {
	e := &engine{Name: "p0", Ranks: 2, Blocks: 112, Events: 5000, Replay: 6000}
	const good = `{"replica":"p0/dp1","facts":{"blocks":111,"ranks":2,` +
		`"events":{"endpoint":"tcp://127.0.0.1:5001","replay":"tcp://127.0.0.1:6001"}},` +
		`"events":"live: in step with the engine","event_stream":{"events":9,"lost":0,"decode_errors":0,` +
		`"wrong_rank":0}}`
	for _, change := range [][2]string{
		{"", ""},
		{`"blocks":111`, `"blocks":223`},
		{`"ranks":2`, `"ranks":1`},
		{"5001", "5000"},
		{"6001", "6000"},
		{"live", "stale"},
		{`"events":9`, `"events":0`},
		{`"lost":0`, `"lost":1`},
		{`"wrong_rank":0`, `"wrong_rank":3`},
	} {
		var seen replicaSeen
		if err := json.Unmarshal([]byte(strings.Replace(good, change[0], change[1], 1)), &seen); err != nil {
			t.Fatal(err)
		}
		if err := e.likes(seen, 1); (err == nil) != (change[0] == "") {
			t.Errorf("%s: %v", change[1], err)
		}
	}
}

// TestNamedRanks fails for a router that lets clients choose the rank, and for engines that accept a rank
// that does not exist.
func TestNamedRanks(t *testing.T) {
	byRank := func(model, salt, rank string) string { return byAll(model, salt, "") + rank }
	obeys := &keeper{key: byRank, text: byModel}
	s, r := playing(t, &keeper{key: byAll, text: byModel}, obeys)
	if err := s.namedRanks(t.Context(), r); err == nil {
		t.Error("a router that lets clients choose the rank passes")
	}
	if !slices.Contains(obeys.ranks, "7") || !slices.Contains(obeys.ranks, "x") {
		t.Errorf("only these ranks were tried: %q", obeys.ranks)
	}
	s.engines[0].Port = 1
	if err := s.namedRanks(t.Context(), r); err == nil || !strings.Contains(err.Error(), "instead of 400") {
		t.Errorf("an engine that refuses nothing: %v", err)
	}
}

// TestRecordsAreFound checks that all requested records are returned in the requested order.
func TestRecordsAreFound(t *testing.T) {
	f := &keeper{records: []record{{ID: "b"}, {ID: "a"}}}
	_, r := playing(t, f, f)
	if got, err := recordsOf(t.Context(), r, []string{"a", "b"}); err != nil || got[0].ID != "a" ||
		got[1].ID != "b" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := recordsOf(t.Context(), r, []string{"c"}); err == nil {
		t.Error("a missing record was found")
	}
}
