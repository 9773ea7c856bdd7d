package enginesim

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// mustFault injects f.
func mustFault(t *testing.T, s *Server, f Fault) {
	t.Helper()
	if err := s.Fault(f); err != nil {
		t.Fatal(err)
	}
}

// reachable reports whether the server answers /health on a new connection.
func reachable(s *Server) bool {
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(s.URL() + "/health")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == 200
}

// Requests of one leg fail as often as configured; the other leg is not affected.
func TestFaultFail(t *testing.T) {
	noLeaks(t)
	s := fastServer(t, core.Config{})
	mustFault(t, s, Fault{Kind: "fail", Leg: "prefill", Count: 2, Status: 503})
	plain, leg1 := completionBody(prompt(1, 20), 1, "null"), completionBody(prompt(1, 20), 1, askPrefill)
	var got []int
	for _, body := range []string{plain, leg1, plain, leg1, leg1} {
		status, _ := post(t, s, "/v1/completions", body)
		got = append(got, status)
	}
	if want := []int{200, 503, 200, 503, 200}; !equalInts(got, want) {
		t.Errorf("statuses %v, want %v", got, want)
	}
	mustFault(t, s, Fault{Kind: "null_params"})
	if _, a := post(t, s, "/v1/completions", leg1); string(a.Params) != "null" {
		t.Errorf("params %s, want null", a.Params)
	}
}

func equalInts(a, b []int) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

// A cut stream ends without its terminator, and its request leaves the engine.
func TestFaultCutStream(t *testing.T) {
	noLeaks(t)
	s := fastServer(t, core.Config{})
	mustFault(t, s, Fault{Kind: "cut_stream", After: 3})
	resp, err := http.Post(s.URL()+"/v1/completions", "application/json",
		strings.NewReader(`{"prompt":"x","stream":true,"max_tokens":1000}`))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if n := strings.Count(string(raw), "data: "); n != 3 || err == nil ||
		strings.Contains(string(raw), "[DONE]") {
		t.Errorf("%d events, error %v, want 3 and a cut", n, err)
	}
	eventually(t, "request gone", func() bool { return s.OpenRequests() == 0 && s.HeldBlocks() == 0 })
}

// A frozen server sends nothing during the freeze, and everything afterwards.
func TestFaultFreeze(t *testing.T) {
	noLeaks(t)
	s := fastServer(t, core.Config{})
	began := time.Now()
	mustFault(t, s, Fault{Kind: "freeze", For: 60 * time.Millisecond})
	if status, _ := post(t, s, "/v1/completions", completionBody(prompt(1, 20), 3, "null")); status != 200 {
		t.Errorf("status %d", status)
	}
	if took := time.Since(began); took < 55*time.Millisecond {
		t.Errorf("answered after %v", took)
	}
}

// A restart cuts running requests, refuses connections for a while, and comes back as a new engine with an
// empty cache.
func TestFaultRestart(t *testing.T) {
	noLeaks(t)
	s := startServer(t,
		Options{EventsEndpoint: "tcp://127.0.0.1:0", Core: core.Config{Cost: core.Cost{D0: 0.005, T0: 0.005}}})
	body := completionBody(prompt(1, 100), 2, "null")
	post(t, s, "/v1/completions", body)
	if _, a := post(t, s, "/v1/completions", body); a.Usage.Details.Cached != 96 {
		t.Fatalf("cached %d, want 96", a.Usage.Details.Cached)
	}
	cut := make(chan error, 1)
	go func() {
		resp, err := http.Post(s.URL()+"/v1/completions", "application/json",
			strings.NewReader(completionBody(prompt(2, 100), 5000, "null")))
		if err == nil {
			resp.Body.Close()
		}
		cut <- err
	}()
	eventually(t, "request in the engine", func() bool { return s.OpenRequests() == 1 })
	before := s.EngineID(0)
	mustFault(t, s, Fault{Kind: "restart", For: 50 * time.Millisecond})
	if err := <-cut; err == nil {
		t.Error("the running request was answered, want an error")
	}
	if reachable(s) {
		t.Error("reachable while down")
	}
	eventually(t, "server back", func() bool { return reachable(s) })
	_, a := post(t, s, "/v1/completions", body)
	if a.Usage.Details.Cached != 0 || s.EngineID(0) == before {
		t.Errorf("cached %d, engine id %s before %s", a.Usage.Details.Cached, s.EngineID(0), before)
	}
}

// Each new process reports its start time. A server that only refused connections for a while reports the
// former one.
func TestRestartTellsItsTime(t *testing.T) {
	noLeaks(t)
	for _, f := range []Fault{
		{Kind: "restart"},
		{Kind: "restart", For: 20 * time.Millisecond},
		{Kind: "die"},
		{Kind: "refuse", For: 20 * time.Millisecond},
	} {
		t.Run(fmt.Sprint(f.Kind, f.For), func(t *testing.T) {
			s := startServer(t, Options{ZeroLatency: true})
			before, id := startTime(t, s), s.EngineID(0)
			time.Sleep(2 * time.Millisecond) // the gauge's resolution is a millisecond
			mustFault(t, s, f)
			if f.Kind == "die" {
				mustFault(t, s, Fault{Kind: "accept"})
			}
			eventually(t, "server back", func() bool { return reachable(s) })
			after, fresh := startTime(t, s), f.Kind != "refuse"
			if (after != before) != fresh || (s.EngineID(0) != id) != fresh {
				t.Errorf("start time %s then %s, engine id %s then %s: want new ones: %t",
					before, after, id, s.EngineID(0), fresh)
			}
		})
	}
}

func startTime(t *testing.T, s *Server) string {
	t.Helper()
	_, _, body := getRaw(t, s, "/metrics")
	_, rest, ok := strings.Cut(body, "\nprocess_start_time_seconds ")
	if !ok {
		t.Fatal("no start time")
	}
	value, _, _ := strings.Cut(rest, "\n")
	return value
}

// A dead core answers 500 once and then refuses connections, until it is revived.
func TestFaultDie(t *testing.T) {
	noLeaks(t)
	s := startServer(t, Options{Core: core.Config{Cost: core.Cost{D0: 0.005, T0: 0.005}}})
	dead := make(chan int, 1)
	go func() {
		resp, err := http.Post(s.URL()+"/v1/completions", "application/json",
			strings.NewReader(completionBody(prompt(2, 100), 5000, "null")))
		if err != nil {
			dead <- 0
			return
		}
		resp.Body.Close()
		dead <- resp.StatusCode
	}()
	eventually(t, "request in the engine", func() bool { return s.OpenRequests() == 1 })
	mustFault(t, s, Fault{Kind: "die"})
	if status := <-dead; status != 500 {
		t.Errorf("status %d, want 500", status)
	}
	if reachable(s) {
		t.Error("reachable although dead")
	}
	mustFault(t, s, Fault{Kind: "accept"})
	if status, _ := post(t, s, "/v1/completions", completionBody(prompt(2, 100), 5, "null")); status != 200 {
		t.Errorf("after the revival: %d", status)
	}
}

// Connections are accepted again after the time of refuse.
func TestFaultRefuse(t *testing.T) {
	noLeaks(t)
	s := fastServer(t, core.Config{})
	mustFault(t, s, Fault{Kind: "refuse", For: 30 * time.Millisecond})
	if reachable(s) {
		t.Error("reachable")
	}
	eventually(t, "server back", func() bool { return reachable(s) })
}

// The control listener accepts faults as JSON and reports the state.
func TestControl(t *testing.T) {
	noLeaks(t)
	s := startServer(t, Options{ZeroLatency: true, Control: "127.0.0.1:0", Faults: []Fault{{Kind: "no_orca"}}})
	for body, want := range map[string]int{
		`{"kind":"slow_metrics","for":"30ms"}`: 204, `{"kind":"lease","for":20000000}`: 204,
		`{"kind":"nonsense"}`: 400, `{`: 400, `{"kind":"freeze","for":"soon"}`: 400,
	} {
		resp, err := http.Post(s.ControlURL()+"/fault", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", body, resp.StatusCode, want)
		}
	}
	began := time.Now()
	getRaw(t, s, "/metrics")
	if took := time.Since(began); took < 30*time.Millisecond {
		t.Errorf("metrics took %v", took)
	}
	_, header, raw := postRaw(t, s, "/v1/completions", completionBody(prompt(1, 20), 1, askPrefill),
		map[string]string{"endpoint-load-metrics-format": "JSON"})
	if h := header.Get("endpoint-load-metrics"); h != "" || !strings.Contains(raw, "remote_engine_id") {
		t.Errorf("ORCA %q, answer %s", h, raw)
	}
	eventually(t, "the short lease over", func() bool { return s.HeldBlocks() == 0 })
	resp, err := http.Get(s.ControlURL() + "/stats")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var state struct {
		Ranks []core.Stats
		Calls map[string]int
	}
	if err := json.NewDecoder(resp.Body).Decode(&state); err != nil || len(state.Ranks) != 1 ||
		state.Calls["/v1/completions"] != 1 {
		t.Errorf("stats %+v: %v", state, err)
	}
}

func TestParseFault(t *testing.T) {
	got, err := ParseFault("cut_stream,leg=decode,after=7,count=-1,for=1.5s,factor=2")
	if want := (Fault{
		Kind: "cut_stream", Leg: "decode", After: 7, Count: -1, For: 1500 * time.Millisecond, Factor: 2,
	}); got != want || err != nil {
		t.Errorf("got %+v %v, want %+v", got, err, want)
	}
	for _, bad := range []string{"fail,count=x", "fail,count", "fail,colour=red", "freeze,for=3"} {
		if _, err := ParseFault(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
