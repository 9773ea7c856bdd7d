package why_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/why"
	"github.com/tandem-router/tandem/orchestrator/planner"
	"github.com/tandem-router/tandem/prefill"
	"github.com/tandem-router/tandem/scoring"
)

// line is a record as a file has it: the worked example of docs/scoring.md, tried twice.
const line = `{"id":"8a51","client_id":"order-17","time":"2026-11-22T17:30:00Z",` +
	`"path":"/v1/chat/completions","model":"m","mode":"split",` +
	`"prefill":"p1","decode":"d2","reason":"10,240 of 12,000 tokens cached on p1","prompt_tokens":12000,` +
	`"output_tokens":83,` +
	`"available_tokens":10240,"captured_tokens":10240,"delivered_tokens":-1,"planned_tokens":4000,` +
	`"moved_tokens":4000,` +
	`"phases_ms":{"tokenize":1.25,"queue":0,"plan":0.03,"prefill":84.1,"handoff":0.4,"first":131,` +
	`"total":65400},"attempts":2,` +
	`"failed_attempts":[{"mode":"split","prefill":"p2","decode":"d3","at":"p2","phase":"prefill",` +
	`"kind":"broken","status":502,"began_ms":2,"took_ms":35}],` +
	`"status":200,"outcome":"ok","config":{"revision":"0f12ab","alpha":"auto","beta":1,"gamma":1,` +
	`"decode_penalty":0.1},` +
	`"decision":{"units":"seconds","predicted_ttft_ms":109,"compared":9,"ties":1,"unknown":["load of d1"],` +
	`"plans":[` +
	`{"mode":"split","prefill":"p1","decode":"d2","terms":{"wait":22,"prefill":62.4,"transfer":25.7,` +
	`"decode":50,"pressure":55.3},"total":215.4,"on_prefill":{"alpha":1}},` +
	`{"mode":"local","decode":"d3","terms":{"prefill":327.1,"decode":8.3,"interference":81.4,"pressure":8},` +
	`"total":424.8},` +
	`{"mode":"split","prefill":"p2","decode":"d3","terms":{"prefill":310.5,"transfer":51.9,"decode":8.3,` +
	`"pressure":8},"total":378.7,"on_prefill":{"alpha":1}}]}}`

// A page shows which replicas served the request, how it ended, the reason, the attempts, and the table of
// plans.
func TestPage(t *testing.T) {
	const want = `request order-17 (8a51 of the router), 2026-11-22 17:30:00.000 UTC, /v1/chat/completions, model m
ok, status 200, 2 attempts, 12000 prompt and 83 output tokens in 1m5s

p1 > d2 (split)
10,240 of 12,000 tokens cached on p1
had to be guessed: load of d1

cached tokens  best replica 10240; chosen replica 10240 predicted, unknown reported by the engine
moved tokens   4000 of 4000 planned
time           tokenize 1.25 ms, queue 0, plan 0.03 ms, prefill 84.1 ms, handoff 0.4 ms, TTFT 131 ms (predicted 109 ms)
attempt 1      p2 > d3: prefill broken, status 502, at p2, from 2 ms on for 35 ms
configuration  0f12ab: alpha auto, beta 1, gamma 1, decode_penalty 0.1

9 plans compared, 1 as good as the best; cost in ms, the chosen plan first, then by cost:
      plan  wait  prefill  transfer  decode  interference  pressure  total   then
   p1 > d2  22.0     62.4      25.7    50.0             -      55.3  215.4  657.8
   p2 > d3     -    310.5      51.9     8.3             -       8.0  378.7  442.7
  d3 alone     -    327.1         -     8.3          81.4       8.0  424.8  488.8

with gamma 9: p2 > d3, ahead by 215.1; 3 plans stand in the record, others may be better still
`
	r := found(t, line)
	var page strings.Builder
	nine := 9.
	if err := r.Page(&page, why.Weights{Gamma: &nine}); err != nil {
		t.Fatal(err)
	}
	if page.String() != want {
		t.Errorf("got\n%s\nwant\n%s", page.String(), want)
	}
}

// For a prompt that its decode replica computed, the page says whether it was sent in pieces.
func TestPiecesOfAPrompt(t *testing.T) {
	for more, want := range map[string]string{
		`"pieces":6,"phases_ms":{"prefill":840,"turn":230}`: "prefill 840 ms (6 of 7 pieces, the last is the " +
			"request itself, 230 ms of it waiting " +
			"for other prompts at the replica), ",
		`"pieces":1,"phases_ms":{"prefill":84,"turn":0.01}`: "prefill 84 ms (1 of 2 pieces, the " +
			"last is the request itself), ",
		`"pieces":1,"whole":"a piece has failed","phases_ms":{"prefill":84}`: "prefill 84 ms (in 1 piece, and " +
			"the rest whole: a piece has failed), ",
		`"whole":"it is short","phases_ms":{"prefill":0}`: "prefill 0 (sent whole: it is short), ",
		`"phases_ms":{"prefill":230,"turn":230}`: "prefill 230 ms (230 ms of it waiting for other prompts " +
			"at the replica), ",
		`"phases_ms":{"prefill":0.01,"turn":0.01}`: "prefill 0.01 ms, ",
	} {
		says(t, `{"id":"8a51","config":{},`+more+`}`, why.Weights{}, want)
	}
}

// The time of an answer that is not streamed is the time of the whole answer, which is not what was
// predicted.
func TestWhenSomethingCame(t *testing.T) {
	const planned = `,"decision":{"predicted_ttft_ms":4.8}`
	for more, want := range map[string]string{
		`"streamed":true` + planned: ", TTFT 83.5 ms (predicted 4.8 ms)\n",
		`"streamed":true`:           ", TTFT 83.5 ms\n",
		`"model":"m"` + planned:     ", TTFT 83.5 ms (predicted 4.8 ms)\n",
		`"streamed":false` + planned: ", whole answer after 83.5 ms (not streamed; first token predicted " +
			"4.8 ms)\n",
		`"streamed":false`: ", whole answer after 83.5 ms (not streamed)\n",
	} {
		says(t, `{"id":"8a51","config":{},"phases_ms":{"first":83.5},`+more+`}`, why.Weights{}, want)
	}
}

// A stream that continued on another engine has one attempt, and more than one engine.
func TestHowOftenAStreamWentOn(t *testing.T) {
	for more, want := range map[string]string{
		`"attempts":1`:                         ", 1 attempt, 7 prompt",
		`"attempts":1,"continued":["d2"]`:      ", 1 attempt, continued once, 7 prompt",
		`"attempts":2,"continued":["d2","d3"]`: ", 2 attempts, continued 2 times, 7 prompt",
	} {
		says(t, `{"id":"8a51","config":{},"prompt_tokens":7,"output_tokens":9,`+more+`}`, why.Weights{}, want)
	}
}

// Unknown values are not shown as zero: for a request without a plan, for an answer that was not parsed, and
// for an answer that never came.
func TestWhatIsNotKnownIsNoZero(t *testing.T) {
	const planned = `"decision":{"predicted_ttft_ms":4.8}`
	for record, want := range map[string][2]string{
		`"outcome":"no_room","status":429`: {"\nno_room, status 429, 1 attempt in 30 ms\n", "handoff 0\n"},
		`"outcome":"ok","status":200,"prompt_tokens":7,` + planned: {
			", 7 prompt and unknown output tokens in 30 ms\n", ", TTFT not seen (predicted 4.8 ms)\n",
		},
		`"outcome":"broken","status":502,"streamed":false,"prompt_tokens":7,` + planned: {
			", 7 prompt and 0 output tokens in 30 ms\n", ", TTFT not seen (predicted 4.8 ms)\n",
		},
		`"outcome":"ok","status":200,"output_tokens":3`: {
			", unknown prompt and 3 output tokens in 30 ms\n", "handoff 0\n",
		},
	} {
		record = `{"id":"8a51","config":{},"attempts":1,"phases_ms":{"total":30},` + record + `}`
		says(t, record, why.Weights{}, want[0])
		says(t, record, why.Weights{}, want[1])
	}
}

// says checks that the page of a record, with other weights or without, contains texts.
func says(t *testing.T, record string, other why.Weights, want string) {
	t.Helper()
	var page strings.Builder
	if err := found(t, record).Page(&page, other); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(page.String(), want) {
		t.Errorf("%s: %q is not in\n%s", record, want, page.String())
	}
}

// found is the record, read from a file.
func found(t *testing.T, text string) *why.Record {
	t.Helper()
	file := filepath.Join(t.TempDir(), "decisions.jsonl")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var id struct{ ID string }
	if err := json.Unmarshal([]byte(text), &id); err != nil {
		t.Fatal(err)
	}
	r, err := why.InFiles(file, id.ID)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The newest record with an id of the client or of the router is found, also in rotated files and after
// incomplete lines.
func TestRecordsInFiles(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "d.jsonl")
	write := func(name string, lines ...string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("d-2026-11-21T10-00-00.000-size.jsonl", `{"id":"old","outcome":"first"}`,
		`{"id":"x","client_id":"mine","outcome":"1"}`)
	write("d-2026-11-22T10-00-00.000-size.jsonl", `{"id":"y","client_id":"mine","outcome":"2"}`,
		`{"id":"z","client_id":"mine","outcome":"3"}`)
	write("d.jsonl", `{"id":"new","reason":"\"old\" and \"mine\"","outcome":"now"}`, `{"id":"cut","client_`,
		`{"id":"last","outcome":"end"}`)
	for id, want := range map[string]string{"new": "now", "last": "end", "old": "first", "mine": "3", "x": "1"} {
		if r, err := why.InFiles(file, id); err != nil || r.Outcome != want {
			t.Errorf("%s: %+v, %v; want %s", id, r, err, want)
		}
	}
	if _, err := why.InFiles(file, "cut"); !errors.Is(err, why.ErrNotFound) {
		t.Errorf("of a line that was cut off: %v", err)
	}
	if _, err := why.InFiles(filepath.Join(folder, "none.jsonl"), "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of a file that is not there: %v", err)
	}
}

// A running router is asked for the record, with its token.
func TestRecordsOfARouter(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"error":"present the token"}`))
		case r.URL.Path == "/debug/decisions/8a51":
			_, _ = w.Write([]byte(line))
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"error":"no such decision"}`))
		}
	}))
	defer s.Close()
	if r, err := why.At(t.Context(), s.URL, "secret", "8a51"); err != nil || r.ClientID != "order-17" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := why.At(t.Context(), s.URL, "secret", "other"); !errors.Is(err, why.ErrNotFound) ||
		!strings.Contains(err.Error(), "decisions.file") || !strings.Contains(err.Error(), "X-Cache: HIT") {
		t.Errorf("of an id that it has not: %v", err)
	}
	for token, say := range map[string]string{"": "put it into TANDEM_ADMIN_TOKEN", "stale": "has another one"} {
		_, err := why.At(t.Context(), s.URL, token, "8a51")
		if !errors.Is(err, why.ErrToken) || !strings.Contains(err.Error(), say) {
			t.Errorf("with the token %q: %v", token, err)
		}
	}
}

// If another server answers than an admin listener, the error says so and names the next step. The same holds
// for an address without a server.
func TestAnAddressThatIsNoAdminListener(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"a front or an engine": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"detail":"Not Found"}`))
		},
		"an engine with a key": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"error":{"message":"Unauthorized"}}`))
		},
		"Prometheus":   http.NotFound,
		"a web server": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
	} {
		s := httptest.NewServer(answer)
		_, err := why.At(t.Context(), s.URL, "", "8a51")
		if !errors.Is(err, why.ErrNotAdmin) || !strings.Contains(err.Error(), "try port 9091") {
			t.Errorf("%s: %v", name, err)
		}
		s.Close()
	}
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	}))
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := why.At(ctx, silent.URL, "", "8a51")
	if err == nil || !strings.Contains(err.Error(), silent.URL+" is silent") ||
		!strings.Contains(err.Error(), "--admin") {
		t.Errorf("of a silent one: %v", err)
	}
	_, err = why.At(t.Context(), "http://127.0.0.1:1", "", "8a51")
	if err == nil || !strings.Contains(err.Error(), "see that the router runs there") {
		t.Errorf("where nobody listens: %v", err)
	}
}

// The costs with other weights, computed from a record, equal the planner's costs with these weights.
func TestOtherWeightsAsThePlannerHasThem(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	compared := 0
	for range 200 {
		was := scoring.Weights{
			Alpha: scoring.Alpha{Value: 0.5 + r.Float64()}, Beta: 0.5 + r.Float64(), Gamma: 0.5 + r.Float64(),
			DecodePenalty: 0.1,
		}
		now := was
		now.Alpha.Value = 3 * r.Float64()
		now.Beta = 3 * r.Float64()
		now.Gamma = 3 * r.Float64()
		seed := r.Uint64()
		d, then := explained(t, was, seed), explained(t, now, seed)
		text, err := json.Marshal(map[string]any{
			"id": "x", "decision": d,
			"config": map[string]any{
				"alpha": strconv.FormatFloat(was.Alpha.Value, 'g', -1, 64), "beta": was.Beta, "gamma": was.Gamma,
				"decode_penalty": 0.1,
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		totals, err := found(t, string(text)).Totals(
			why.Weights{Alpha: &now.Alpha.Value, Beta: &now.Beta, Gamma: &now.Gamma},
		)
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range totals {
			for _, p := range then.Plans {
				if p.Prefill != d.Plans[i].Prefill || p.Decode != d.Plans[i].Decode || p.Mode != planner.Split {
					continue
				}
				compared++
				if math.Abs(got-p.Total) > 1e-6*math.Abs(p.Total) {
					t.Fatalf("%s > %s costs %v by the record and %v by the planner; %+v, then %+v",
						p.Prefill, p.Decode, got, p.Total, d.Plans[i].Terms, p.Terms)
				}
			}
		}
	}
	if compared < 200 {
		t.Errorf("only %d plans were compared", compared)
	}
}

// What a decode replica alone was weighed with is in the record: a second of prefill there may count for
// hundreds. What its own decode steps take has no weight.
func TestTheAlphaOfADecodeReplicaAlone(t *testing.T) {
	text := strings.Replace(line, `"total":424.8}`,
		`"total":424.8,"on_decode":{"alpha":100,"beside_ms":27.1}}`, 1)
	one := 1.
	totals, err := found(t, text).Totals(why.Weights{Alpha: &one})
	if err != nil {
		t.Fatal(err)
	}
	if want := 424.8 - 300*0.99; math.Abs(totals[1]-want) > 1e-9 {
		t.Errorf("%v ms with alpha 1, want %v: 3 ms of prefill and 27.1 beside others", totals[1], want)
	}
}

// In the formula's raw units the terms are not seconds.
func TestInRawUnitsADecodeReplicaAloneHasNoAlpha(t *testing.T) {
	locals := 0
	for seed := range uint64(20) {
		d := explained(t, scoring.Weights{Units: scoring.InRaw, Alpha: scoring.Alpha{Auto: true}, Beta: 1}, seed)
		for _, p := range d.Plans {
			if p.Mode == planner.Local {
				locals++
				if p.OnDecode.Alpha != 0 || p.OnDecode.Beside != 0 {
					t.Fatalf("%s alone: %+v", p.Decode, p.OnDecode)
				}
			}
		}
	}
	if locals == 0 {
		t.Error("no plan is of a decode replica alone: this test tests nothing")
	}
}

// explained is the decision about one prompt in a random fleet.
func explained(t *testing.T, w scoring.Weights, seed uint64) *planner.Decision {
	t.Helper()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	facts := replica.Facts{
		Model: "m", Models: []string{"m"}, Version: "0.32.0", BlockSize: 16, Blocks: 20_000, MaxModelLen: 128_000,
	}
	prefills, decodes := prefill.New(prefill.Options{}), decode.New(decode.Options{})
	prefills.SetMembers([]replica.Replica{{ID: "p1", Facts: facts}, {ID: "p2", Facts: facts}}, at)
	decodes.SetMembers([]replica.Replica{{ID: "d1", Facts: facts}, {ID: "d2", Facts: facts}}, at)
	r := rand.New(rand.NewPCG(seed, 1))
	for i, id := range []replica.ID{"p1", "p2", "d1", "d2"} {
		load := replica.Load{
			Source: replica.Metrics, Running: r.IntN(20), Waiting: r.IntN(3), Usage: 0.8 * r.Float64(),
		}
		if i < 2 {
			prefills.Observe(id, load, at)
			continue
		}
		decodes.Observe(id, load, at)
	}
	pl := planner.New(prefills, decodes, planner.Policy{
		Weights: w, Links: [replica.Links]float64{100e9, 40e9, 4e9, 3e9}, Setup: 2 * time.Millisecond,
		KVBytesPerToken: 128 << 10,
		ExpectedOutput:  256, TieAbsolute: 2 * time.Millisecond, TieRelative: 0.02, PrefillLoadTTL: time.Minute,
		DecodeLoadTTL: time.Minute,
	}, rand.New(rand.NewPCG(seed, 2)))
	d, err := pl.Explain(&planner.Request{
		ID: "x", Model: "m", Tokens: 1000 + r.IntN(20_000), Exact: true, MaxTokens: 100, SplitOK: true,
		LocalOK: true,
	}, at)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Plans within the tie band are equal with other weights, too, whichever plan is the cheapest.
func TestOtherWeightsDrawAmongPlansAsGood(t *testing.T) {
	one := 1.
	for _, c := range []struct{ units, chosen, other, compared, want string }{
		{"seconds", "11.5", "10", "2", "as good: d1 alone, d2 alone; one of them is drawn\n"},
		{"seconds", "10", "11.5", "2", "as good: d1 alone, d2 alone; one of them is drawn\n"},
		{"seconds", "1019", "1000", "2", "as good: d1 alone, d2 alone; one of them is drawn\n"},
		{"seconds", "11.5", "10", "7", "as good: d1 alone, d2 alone; one of them is drawn; 2 plans stand " +
			"in the record, others may be as good\n"},
		{"seconds", "12.5", "10", "2", "d2 alone, ahead by 2.5; "},
		{"seconds", "1021", "1000", "2", "d2 alone, ahead by 21.0; "},
		{"seconds", "10", "12.5", "2", "the same, d1 alone\n"},
		{"raw", "11.5", "10", "2", "d2 alone, ahead by 1.5; "},
		{"raw", "10", "10", "2", "as good: d1 alone, d2 alone; one of them is drawn\n"},
	} {
		says(t, `{"id":"x","config":{"gamma":1},"decision":{"units":"`+c.units+`","compared":`+c.compared+`,`+
			`"plans":[{"mode":"local","decode":"d1","total":`+c.chosen+`},`+
			`{"mode":"local","decode":"d2","total":`+c.other+`}]}}`,
			why.Weights{Gamma: &one}, "\nwith gamma 1: "+c.want)
	}
	says(t, `{"id":"x","config":{"gamma":1},"decision":{"units":"raw","compared":2,`+
		`"plans":[{"mode":"split","prefill":"p1","decode":"d1","total":3},`+
		`{"mode":"local","decode":"d1","total":3}]}}`,
		why.Weights{Gamma: &one}, "\nwith gamma 1: the same, p1 > d1\n")
}

// A term whose weight was 0 is not in the record, so another weight cannot be applied.
func TestWeightsThatWereZero(t *testing.T) {
	r := found(t, strings.Replace(line, `"gamma":1`, `"gamma":0`, 1))
	two := 2.
	if _, err := r.Totals(why.Weights{Gamma: &two}); err == nil || !strings.Contains(err.Error(), "pressure") {
		t.Errorf("pressure was weighed: %v", err)
	}
}

// A client's model name cannot send control codes to the terminal of the reader.
func TestAPageHoldsNothingThatATerminalObeys(t *testing.T) {
	r := found(t, strings.Replace(line, `"model":"m"`, `"model":"m\u001b]0;owned\u0007"`, 1))
	var page strings.Builder
	if err := r.Page(&page, why.Weights{}); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(page.String(), "\x1b\x07") || !strings.Contains(page.String(), "model m?]0;owned?") {
		t.Errorf("got %q", page.String()[:200])
	}
}
