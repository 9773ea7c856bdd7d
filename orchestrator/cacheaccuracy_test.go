package orchestrator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// For a request that makes the engine compute every prompt token, the predicted match is 0, whatever the
// index knows.
func TestNothingIsPredictedWhereNoCacheIsRead(t *testing.T) {
	for body, want := range map[string]int{`{"prompt":[1,2]}`: 64, `{"prompt":[1,2],"prompt_logprobs":1}`: 0} {
		req, err := openai.Parse(openai.Completions, []byte(body), openai.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		e := &env{telemetry: telemetry{m: newMetrics(prometheus.NewRegistry())}}
		j := (&request{env: e, snapshot: &snapshot{}}).newJob(req, 0)
		recordPlan(j, &planner.Booking{Decision: &planner.Decision{Matched: 64}})
		if j.rec.Captured != want {
			t.Errorf("%s: predicted %d cached tokens, want %d", body, j.rec.Captured, want)
		}
	}
}

// All kinds of cached tokens are counted over the same requests; requests with an unknown number are
// counted apart.
func TestJudge(t *testing.T) {
	const lost, short = "tandem_match_loss_tokens", "tandem_prediction_error_tokens"
	for _, tt := range []struct {
		name  string
		rec   observe.Record
		split bool
		want  string // samples other than zero
	}{
		{
			"all is known",
			observe.Record{Mode: "split", Prompt: 1000, Available: 900, Captured: 640, Delivered: 600},
			true,
			`available,split,true 900; captured,split,true 640; delivered,split,true 600; prompt,split,true 1000; ` +
				`loss split 260; error over,prefill 40`,
		},
		{
			"the index knew too little",
			observe.Record{Mode: "local", Prompt: 1000, Available: 640, Captured: 640, Delivered: 656},
			false,
			`available,local,true 640; captured,local,true 640; delivered,local,true 656; prompt,local,true 1000; ` +
				`loss local 0; error under,decode 16`,
		},
		{
			"exactly nothing",
			observe.Record{Mode: "split", Prompt: 10},
			true,
			`prompt,split,true 10; loss split 0; error exact,prefill 0`,
		},
		{
			"the engine does not say",
			observe.Record{Mode: "local", Prompt: 1000, Available: 900, Captured: 640, Delivered: -1},
			false,
			`available,local,false 900; captured,local,false 640; prompt,local,false 1000; unmeasured not_told 1; ` +
				`loss local 260`,
		},
		{
			"the index of the chosen one is unknown",
			observe.Record{Mode: "split", Prompt: 1000, Available: 900, Captured: -1, Delivered: 600},
			true,
			`unmeasured blind 1`,
		},
		{
			"there are no token ids",
			observe.Record{Mode: "unsplit", Prompt: 1000, Available: -1, Captured: -1, Delivered: 600},
			false,
			`unmeasured no_ids 1`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			newMetrics(reg).Cache.Observe(&tt.rec, tt.split)
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range families {
				name := map[string]string{
					"tandem_cached_tokens_total": "", "tandem_cached_unmeasured_total": "unmeasured ", lost: "loss ",
					short: "error ",
				}
				for _, m := range f.GetMetric() {
					var labels []string
					for _, l := range m.GetLabel() {
						labels = append(labels, l.GetValue())
					}
					value := m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum()
					if value != 0 || m.GetHistogram().GetSampleCount() > 0 {
						got = append(got, fmt.Sprintf("%s%s %g", name[f.GetName()], strings.Join(labels, ","), value))
					}
				}
			}
			if text := strings.Join(got, "; "); text != tt.want {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
		})
	}
}

// With several samples, the tokens that each sample found in the cache are unknown.
func TestSamplesTellNothing(t *testing.T) {
	in(t, setup{prefill: 1, decode: 1, config: func(c *config.Config) { c.Response.Headers = true }},
		func(w *world) {
			two := completion(false)
			two.body = strings.Replace(two.body, `"temperature":0,`, `"n":2,"seed":7,"temperature":1,`, 1)
			if r := w.reported(two); r.Delivered != -1 || r.Captured != 0 {
				t.Errorf("%d captured, %d delivered, want nothing and unknown", r.Captured, r.Delivered)
			}
			if n := w.count("tandem_cached_unmeasured_total", "not_told"); n != 1 {
				t.Errorf("%d requests have an unreported number, want 1", n)
			}
		})
}

// A request's record, its header and the counters agree on three numbers: available, captured and
// delivered tokens. They also agree if a number is unknown.
func TestTruthOfARequest(t *testing.T) {
	in(t, setup{prefill: 1, decode: 1, config: func(c *config.Config) { c.Response.Headers = true }},
		func(w *world) {
			first, again := w.reported(chat(false)), w.reported(chat(false))
			if first.Available != 0 || first.Captured != 0 || first.Delivered != 0 {
				t.Errorf("the first request has %d, %d, %d cached tokens, want 0 each",
					first.Available, first.Captured, first.Delivered)
			}
			whole := (again.Prompt - 1) / 16 * 16
			if again.Available != whole || again.Captured != whole || again.Delivered != whole || again.Blind != 0 {
				t.Errorf("second request: %d, %d, %d cached tokens, %d blind replicas; want 3 times %d, and 0",
					again.Available, again.Captured, again.Delivered, again.Blind, whole)
			}
			for kind, want := range map[string]int{
				"available": whole, "captured": whole, "delivered": whole, "prompt": 2 * again.Prompt,
			} {
				if n := w.count("tandem_cached_tokens_total", kind); n != want {
					t.Errorf("%d tokens of kind %s in total, want %d", n, kind, want)
				}
			}
			w.o.prefill.SetTrust(replica.ID(w.p[0].addr), replica.Stale)
			blind := w.reported(chat(false))
			if blind.Available != 0 || blind.Captured != -1 || blind.Delivered != whole || blind.Blind != 1 {
				t.Errorf("while p0 is stale: %d, %d, %d cached tokens, %d blind replicas",
					blind.Available, blind.Captured, blind.Delivered, blind.Blind)
			}
			explained := w.explained(chat(false))
			for _, say := range []string{
				`"blind": 1`, `"guessed": true`, `"index_note": "blind: `, `"prefix on ` + w.p[0].addr,
				"an unknown number of ",
			} {
				if !strings.Contains(explained, say) {
					t.Errorf("/debug/explain does not say %s:\n%s", say, explained)
				}
			}
			if n := w.count("tandem_cached_unmeasured_total", "blind"); n != 1 {
				t.Errorf("counted %d requests as blind, want 1", n)
			}
			words := map[string]int{}
			for _, r := range []observe.Record{first, again, blind} {
				words[r.Decision.Why]++
			}
			for word, want := range words { // the metric's label is the decision's own word
				if n := w.count("tandem_decisions_total", word); n != want {
					t.Errorf("counted %d decisions by %q, want %d", n, word, want)
				}
			}
		})
}

// explained returns the answer of /debug/explain for a request.
func (w *world) explained(p prompt) string {
	answer := httptest.NewRecorder()
	w.o.Admin().ServeHTTP(answer,
		httptest.NewRequest(http.MethodPost, "/debug/explain", strings.NewReader(p.body)))
	return answer.Body.String()
}

// An unknown number has no span attribute: 0 would mean that no token was cached.
func TestTruthAttributes(t *testing.T) {
	for _, tt := range []struct {
		rec  observe.Record
		want string
	}{
		{
			observe.Record{Available: 900, Captured: 640, Delivered: 0},
			"[{tandem.available_tokens 900} {tandem.captured_tokens 640} {tandem.delivered_tokens 0}]",
		},
		{observe.Record{Available: 900, Captured: -1, Delivered: -1}, "[{tandem.available_tokens 900}]"},
		{observe.Record{Available: -1, Captured: -1, Delivered: -1}, "[]"},
	} {
		type pair struct {
			Key   string
			Value int64
		}
		got := []pair{}
		for _, a := range observe.TruthAttributes(&tt.rec) {
			got = append(got, pair{string(a.Key), a.Value.AsInt64()})
		}
		if fmt.Sprint(got) != tt.want {
			t.Errorf("got %v, want %s", got, tt.want)
		}
	}
}

// reported sends p, checks the header of the answer, and returns the record as the admin listener shows
// it.
func (w *world) reported(p prompt) observe.Record {
	w.t.Helper()
	got := w.ask(p)
	w.exact(p, got)
	answer := httptest.NewRecorder()
	w.o.Admin().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/debug/decisions?n=1", nil))
	var shown []struct {
		Available int `json:"available_tokens"`
		Captured  int `json:"captured_tokens"`
		Delivered int `json:"delivered_tokens"`
		Prompt    int `json:"prompt_tokens"`
		Blind     int `json:"blind"`
		Decision  struct {
			Why string `json:"why"`
		} `json:"decision"`
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &shown); err != nil || len(shown) != 1 {
		w.t.Fatal(err, answer.Body)
	}
	r := observe.Record{
		Available: shown[0].Available, Captured: shown[0].Captured, Delivered: shown[0].Delivered,
		Prompt: shown[0].Prompt, Blind: shown[0].Blind,
	}
	r.Decision = &planner.Decision{Why: shown[0].Decision.Why}
	want := fmt.Sprint(r.Captured)
	if r.Captured < 0 {
		want = ""
	}
	if h := got.header.Get("X-Tandem-Matched-Tokens"); h != want {
		w.t.Errorf("the header says %q, the record %d", h, r.Captured)
	}
	return r
}
