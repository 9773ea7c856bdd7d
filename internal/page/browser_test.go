//go:build browser

package page

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Tests of the page in a real browser: `make test-page` installs one and runs them.

// drawn is the document of a browser some seconds after it opened the page, with the snapshots of live. A
// browser waits for the last picture of a page, and one picture is slow on purpose.
func drawn(t *testing.T, live http.HandlerFunc) string {
	t.Helper()
	return played(t, live, "", nil)
}

// played is drawn with a script of the test after the script of the page, and with handlers for more paths.
func played(t *testing.T, live http.HandlerFunc, script string, more map[string]http.HandlerFunc) string {
	t.Helper()
	mux := http.NewServeMux()
	for _, file := range Files[1:] {
		if file == "/page.js" {
			mux.HandleFunc("GET "+file, func(w http.ResponseWriter, r *http.Request) {
				to := httptest.NewRecorder()
				New(nil).ServeHTTP(to, r)
				w.Header().Set("Content-Type", "text/javascript")
				_, _ = w.Write(append(to.Body.Bytes(), script...))
			})
			continue
		}
		mux.Handle("GET "+file, New(nil))
	}
	for path, h := range more {
		mux.HandleFunc(path, h)
	}
	mux.HandleFunc("GET /debug/live", live)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		to := httptest.NewRecorder()
		New(nil).ServeHTTP(to, r)
		w.Header().Set("Content-Security-Policy", to.Header().Get("Content-Security-Policy"))
		_, _ = w.Write(
			[]byte(strings.Replace(to.Body.String(), "</main>", `<img src="slow.svg" alt=""></main>`, 1)),
		)
	})
	mux.HandleFunc("GET /slow.svg", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(5 * time.Second):
		}
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	defer s.CloseClientConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	text, err := exec.CommandContext(ctx, "chromium", "--headless=new", "--no-sandbox", "--disable-gpu",
		"--disable-dev-shm-usage",
		"--user-data-dir="+t.TempDir(), "--dump-dom", s.URL+"/").Output()
	if err != nil {
		t.Fatalf("chromium: %v; make test-page installs it", err)
	}
	return string(text)
}

// fleet is a snapshot of n replicas per side: d0 is ejected, p0's name is markup, and a pair is ejected.
func fleet(t *testing.T, n int, requests int32) *Live {
	t.Helper()
	var replicas []map[string]any
	for _, pool := range []string{"prefill", "decode"} {
		for i := range n {
			r := map[string]any{
				"pool": pool, "name": fmt.Sprintf("%c%d", pool[0], i), "url": "http://engine:8000",
				"up":    true,
				"index": "live", "usage": 0.25, "running": 2,
				"waiting": 0, "requests": 1, "queued_tokens": 1234, "wait_ms": 22, "free_blocks": 3000,
				"capacity_blocks": 4000, "indexed_blocks": 1000,
				"speed": map[string]any{"token_us": 33.6, "step_ms": 13.2, "samples": 9},
			}
			switch {
			case pool == "prefill" && i == 0:
				r["name"] = `<img src=x onerror=alert(1)>`
			case pool == "decode" && i == 0:
				r["states"] = []map[string]any{{"state": "ejected_decode", "cause": "3 failures in a row"}}
			case pool == "decode" && i == 1:
				r["max_num_seqs"], r["cuts_prompts"] = 64, true
			}
			replicas = append(replicas, r)
		}
	}
	q := map[string]float64{"p50": 120, "p90": 300, "p99": 900}
	text, err := json.Marshal(map[string]any{
		"time": time.Now(), "ready": true, "in_flight": requests, "waiting": 0,
		"config": map[string]any{
			"revision": "0f12ab", "alpha": "auto", "beta": 1, "gamma": 1, "decode_penalty": 0.1,
		},
		"profile": map[string]any{"token_us": 16.8, "step_ms": 6.6}, "replicas": replicas,
		"pairs": []map[string]any{{
			"prefill": "p1", "decode": "d1", "sent": 7, "tokens": 900, "gb_s": 5.13, "samples": 8,
			"failures": 2.5,
			"state":    "ejected", "cause": "no blocks came",
		}},
		"recent": map[string]any{
			"seconds": 60, "requests": 120, "errors": 1, "split": 60, "retried": 2, "first_ms": q,
			"predicted_ms":  q,
			"token_ms":      q,
			"prompt_tokens": 1000, "available_tokens": 800, "captured_tokens": 600, "delivered_tokens": 600,
		},
		"newest": []map[string]any{{
			"id": "abc", "client_id": "order-17", "time": time.Now(), "mode": "split", "prefill": "p1",
			"decode":        "d1",
			"reason":        "cached on p1",
			"prompt_tokens": 1000, "output_tokens": 20, "cached_tokens": -1, "first_ms": 131,
			"predicted_ms": 109,
			"total_ms":     2310, "attempts": 2, "outcome": "ok",
		}, {
			"id": "def", "time": time.Now(), "mode": "local", "decode": "d1", "reason": "shorter there",
			"prompt_tokens": 9000, "output_tokens": 20, "cached_tokens": 0, "first_ms": 900,
			"predicted_ms": 880,
			"total_ms":     1310, "attempts": 1, "outcome": "ok", "pieces": 6,
		}},
		"classes": []map[string]any{
			{
				"class": "interactive", "waiting": 1011, "running": 12, "requests": 400, "refused": 2014,
				"judged": 200, "kept": 186,
			},
			{"class": "default"},
		},
		"more_keys": 7,
		"keys": []map[string]any{{
			"key": "team-a", "over": "tokens per minute",
			"minute": map[string]any{"requests": 3, "refused": 2, "prompt_tokens": 456},
			"hour": map[string]any{
				"requests": 70, "prompt_tokens": 7890, "cached_tokens": 6543, "generated_tokens": 21,
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	l := &Live{}
	if err := json.Unmarshal(text, l); err != nil {
		t.Fatal(err)
	}
	l.Judge()
	return l
}

// With two replicas per side, everything is shown, problems are highlighted, and no text from a router runs
// as a script.
func TestThePageInABrowser(t *testing.T) {
	var seconds atomic.Int32
	page := drawn(t, New(func() *Live { return fleet(t, 2, 40+seconds.Add(1)) }).Live)
	for _, want := range []string{
		`class="warn"`, `3 of 4 usable: <a href="#replica-d0">d0</a>`, `id="replica-d0"`,
		"TTFT, median", "order-17", "p1 → d1", "✕ ejected decode: 3 failures in a row", "2 attempts",
		"5.13 GB/s", "✕ ejected", "13.2 ms (2.0×)",
		"33.6 µs (2.0×)", "1,234", "80 %", "75 %", "100 %", "&lt;img src=x onerror=alert(1)&gt;",
		"Revision 0f12ab",
		"unknown", "131 ms", "d1 alone, 6 pieces", ">2 of 64<",
		"in use, gets prompts whole: it cuts them itself",
		"team-a", "7,890", "6,543", "▲ 2 refused: tokens per minute", "7 more keys",
		"interactive", "1,011", "▲ 2,014", "93 %", `<a href="#classes">`, `<a href="#keys">`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
	if strings.Contains(page, "<img src=\"x") {
		t.Error("a name became markup")
	}
	if !strings.Contains(page, fmt.Sprintf("%d in flight", 40+seconds.Load())) &&
		!strings.Contains(page, fmt.Sprintf("%d in flight", 39+seconds.Load())) || seconds.Load() < 3 {
		t.Errorf("the page does not follow: %d snapshots were sent", seconds.Load())
	}
}

// With two hundred replicas, all are listed, replicas with problems first, and pairs are a list, not a
// matrix.
func TestThePageOfAFleet(t *testing.T) {
	page := drawn(t, New(func() *Live { return fleet(t, 100, 1) }).Live)
	if n := strings.Count(page, `title="http://engine:8000"`); n != 200 {
		t.Errorf("%d replicas are listed", n)
	}
	if !strings.Contains(page, "of 10000") && !strings.Contains(page, "of 10,000") {
		t.Error("pairs are no list")
	}
	if !strings.Contains(page, "199 of 200 usable") {
		t.Error("the head does not say how many are usable")
	}
	table := page[strings.Index(page, "decode: 99 of 100 usable"):]
	if first := strings.Index(table, ">d0<"); first < 0 || first > strings.Index(table, ">d1<") {
		t.Error("the ejected replica does not come first")
	}
}

// The page asks for the token of a router that has one.
func TestThePageAsksForTheToken(t *testing.T) {
	asked := atomic.Int32{}
	page := drawn(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusUnauthorized)
	})
	if asked.Load() != 1 || !strings.Contains(page, `<form id="login" class="banner">`) {
		t.Errorf("asked %d times; the form is hidden", asked.Load())
	}
}

// idle is an idle fleet with an ejected replica, d0.
func idle(t *testing.T, n int) *Live {
	l := fleet(t, n, 0)
	for i := range l.Replicas {
		l.Replicas[i].Running, l.Replicas[i].Requests = 0, 0
	}
	return l
}

// Idle replicas of a large fleet share one row. A click on it shows a row for each.
func TestIdleReplicasAreFolded(t *testing.T) {
	live := New(func() *Live { return idle(t, 32) }).Live
	page := drawn(t, live)
	if n := strings.Count(page, `title="http://engine:8000"`); n != 1 {
		t.Errorf("%d replicas have a row, want d0 alone", n)
	}
	if !strings.Contains(page, "31 replicas are in use and idle: d1, d2, d3") ||
		!strings.Contains(page, "63 of 64 usable: ") {
		t.Error("the others are not said")
	}
	page = played(t, live, `
setTimeout(() => document.querySelector('[data-fold=decode]').click(), 1500);`, nil)
	n := strings.Count(page, `title="http://engine:8000"`)
	if n != 32 || !strings.Contains(page, "Fold the idle replicas") {
		t.Errorf("%d replicas have a row after a click, want all of the decode pool", n)
	}
}

// The button of a row drains its replica after the operator has confirmed. It forces the drain only after a
// second confirmation.
func TestTheButtonDrains(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	answer := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.String())
		if r.URL.Query().Get("force") == "" {
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"error":"d1 is the last usable one; --force drains it all the same"}`))
			return
		}
		const reply = `{"replicas":[{"pool":"decode","replica":"d1","state":"draining"}],"notes":["a note"]}`
		_, _ = w.Write([]byte(reply))
	}
	page := played(t, New(func() *Live { return fleet(t, 2, 1) }).Live, `
const questions = [];
window.confirm = text => { questions.push(text); return true; };
setTimeout(() => document.querySelector('[data-act=drain][data-replica=d1]').click(), 1500);
setTimeout(() => { document.title = questions.join(' / '); }, 3500);`,
		map[string]http.HandlerFunc{"POST /-/drain": answer})
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(asked, " "); got != "/-/drain?replica=d1 /-/drain?replica=d1&force=true" {
		t.Errorf("asked %q", got)
	}
	for _, want := range []string{"Send no new requests to d1?",
		"d1 is the last usable one.\nDrain it all the same?",
		"d1 (decode) is draining. Note: a note."} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
}

// hour is a history in which answers became slower and failed 10 minutes ago. It has no data for one minute.
func hour(replicas []Replica) *History {
	h := NewHistory()
	now := time.Now().Add(-time.Hour)
	for step := range HistoryPoints {
		now = now.Add(HistoryStep)
		if step >= 200 && step < 206 {
			continue
		}
		slow := 1.0
		if step > 300 {
			slow = 3
		}
		for i := range 30 {
			wave := 1 + 0.3*math.Sin(float64(step)/20) + 0.05*float64(i)
			r := &replicas[(step+i)%len(replicas)]
			h.Add(Ended{
				Prefill: "p1", Decode: r.Name, Split: i%2 == 0, Failed: step > 300 && i == 0,
				First: 120 * slow * wave,
				Token: 9 * slow * (1 + wave/20), Prompt: 1000, Available: 800, Delivered: 600 + 10*i,
			})
		}
		h.Close(now, replicas)
	}
	return h
}

// served serves a history as a router does.
func served(h *History) map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{"GET /debug/history": func(w http.ResponseWriter, r *http.Request) {
		p := h.Fleet()
		if name := r.URL.Query().Get("replica"); name != "" {
			p, _ = h.Of(name)
		}
		_ = json.NewEncoder(w).Encode(p)
	}}
}

// The last hour is drawn when the page opens. A click on a replica's name draws the replica's last hour.
func TestTheLastHourIsDrawn(t *testing.T) {
	l := fleet(t, 2, 1)
	page := played(t, New(func() *Live { return l }).Live, `
setTimeout(() => document.querySelector('[data-open=d1]').click(), 1500);`, served(hour(l.Replicas)))
	for _, want := range []string{
		"TTFT in the last hour: p50 now ", "ITL in the last hour: p50 now ",
		"Failed a minute in the last hour",
		"Prefix hits in the last hour: delivered now ", "KV in use, prefill in the last hour",
		"In the engine in the last hour: running now ", `aria-expanded="true"`, "–60 min",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
	if n := strings.Count(page, "<figure"); n != 8+6 {
		t.Errorf("%d charts, want 8 of all and 6 of the replica", n)
	}
	if strings.Contains(page, "NaN") || strings.Contains(page, "undefined") {
		t.Error("something on the page is no number")
	}
	ttft := page[strings.Index(page, `aria-label="TTFT`):]
	if n := strings.Count(ttft[:strings.Index(ttft, "</figure>")], "M"); n < 3 {
		t.Errorf("the gap of a minute is not seen: %d strokes", n)
	}
}
