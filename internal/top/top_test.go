package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/page"
)

// sample is a router with a replica in trouble and two requests.
func sample() *page.Live {
	l := &page.Live{
		Ready: true, InFlight: 4, Config: config.InForce{Revision: "0f12ab"},
		Profile: page.Speed{TokenUS: 16.8, StepMS: 6.6},
		Replicas: []page.Replica{
			{
				Pool: "prefill", Name: "p0", Up: true, Index: "live", Usage: 0.5, Queued: 1234, Free: -1,
				Speed: page.Speed{TokenUS: 33.6, Samples: 3},
			},
			{
				Pool: "decode", Name: "d0", Up: true, Index: "live", Usage: 0.1, Running: 7, Free: 3000,
				Capacity: 4000,
				Indexed:  1000, MaxSequences: 64, CutsPrompts: true,
			},
			{
				Pool: "decode", Name: "d1", Up: true, Usage: -1, Running: 2, Free: -1, Capacity: -1,
				States: []page.State{{State: "ejected_decode", Cause: "3 failures in a row"}},
			},
		},
		Pairs: []page.Pair{
			{Prefill: "p0", Decode: "d0", Sent: 9, GBps: 5.1, Samples: 4},
			{Prefill: "p0", Decode: "d1", State: "ejected", Cause: "no blocks came"},
		},
		Recent: page.Recent{
			Seconds: 60, Requests: 120, Errors: 1, Prompt: 1000, Available: 800, Captured: 600,
			Delivered: 600,
			First:     page.Quantiles{P50: 131, P90: 300}, Predicted: page.Quantiles{P50: 109},
			Token: page.Quantiles{P50: 8.3, P99: 9.7},
		},
		Newest: []page.Request{
			{
				ID: "abc", ClientID: "order-17", Prefill: "p0", Decode: "d0", Outcome: "ok", Attempts: 2,
				Prompt: 100,
				Cached: -1, First: 131, Total: 2310, Reason: "cached on p0",
			},
			{
				ID: "def", Decode: "d0", Outcome: "queue_timeout", Attempts: 1, Prompt: 5000, Total: 30000,
				Pieces: 6,
			},
		},
	}
	l.Keys = []page.Key{
		{
			Name: "team-a", Over: "tokens per minute",
			Minute: page.Usage{Requests: 3, Refused: 2, Prompt: 456},
			Hour:   page.Usage{Requests: 70, Refused: 2, Prompt: 7890, Cached: 6543, Generated: 21},
		},
		{Name: "team-b", Hour: page.Usage{Requests: 80, Prompt: 12}},
	}
	l.Classes = []page.Class{
		{Name: "interactive", Waiting: 11, Running: 12, Requests: 213, Refused: 14, Judged: 200, Kept: 190},
		{Name: "default", Running: 15},
	}
	l.Judge()
	return l
}

// shown is what is on the screen after some keys.
func shown(m *screen, keys ...string) string {
	for _, k := range keys {
		msg := tea.KeyPressMsg{Text: k}
		if named := map[string]rune{
			"enter": tea.KeyEnter, "esc": tea.KeyEscape, "down": tea.KeyDown, "backspace": tea.KeyBackspace,
			"tab": tea.KeyTab,
		}[k]; named != 0 {
			msg = tea.KeyPressMsg{Code: named}
		} else {
			msg.Code = rune(k[0])
		}
		_, cmd := m.Update(msg)
		if cmd != nil {
			_, _ = m.Update(cmd())
		}
	}
	return ansi.Strip(strings.Join(m.lines(), "\n"))
}

func started(base string) *screen {
	m := newScreen(context.Background(), Source{Base: base})
	_, _ = m.Update(tea.WindowSizeMsg{Width: 160, Height: 24})
	return m
}

// Each view says what it is for, those in trouble first; the filter and the order are the user's.
func TestViews(t *testing.T) {
	m := started("http://admin")
	if got := shown(m); !strings.Contains(got, "waiting for the router at http://admin") {
		t.Errorf("before the first snapshot:\n%s", got)
	}
	_, _ = m.Update(seen{live: sample()})
	fleet := shown(m)
	for _, want := range []string{
		"2 of 3 usable: d1", "4 in flight", "config 0f12ab", "2 requests/s", "1 failed",
		"80% of prompt tokens possible",
		"75% of that planned",
		"100% of that delivered", "TTFT 131 ms", "predicted 109 ms", "ITL 8.3 ms",
		"33.6 us x2", "ejected decode: 3 failures in a row", "25%", "3000", "1234",
		" 7/64 ", "gets prompts whole",
	} {
		if !strings.Contains(fleet, want) {
			t.Errorf("%q is not in\n%s", want, fleet)
		}
	}
	if strings.Index(fleet, "decode   d1") > strings.Index(fleet, "prefill  p0") {
		t.Errorf("the ejected replica does not come first:\n%s", fleet)
	}
	if got := shown(m, "s", "s", "s", "s", "s"); !strings.Contains(got, "RUNNING▾") ||
		strings.Index(got, "decode   d0") > strings.Index(got, "decode   d1") {
		t.Errorf("not sorted by running:\n%s", got)
	}
	if got := shown(m, "/", "p", "r", "e", "f", "x", "backspace", "enter"); strings.Contains(got, "d0") ||
		!strings.Contains(got, "p0") || !strings.Contains(got, "only pref") {
		t.Errorf("the filter:\n%s", got)
	}
	if got := shown(m, "esc", "2"); !strings.Contains(got, "no blocks came") ||
		!strings.Contains(got, "5.1") {
		t.Errorf("pairs:\n%s", got)
	}
	if got := shown(m, "tab"); !strings.Contains(got, "order-17") || !strings.Contains(got, "p0 > d0") ||
		!strings.Contains(got, "d0 alone, 6 pieces") || !strings.Contains(got, "ok x2") ||
		!strings.Contains(got, "queue_timeout") {
		t.Errorf("requests:\n%s", got)
	}
	keys := shown(m, "4")
	for _, want := range []string{"team-a", "456", "7890", "6543", "2 refused: tokens per minute", "team-b"} {
		if !strings.Contains(keys, want) {
			t.Errorf("%q is not among the keys\n%s", want, keys)
		}
	}
	keys = shown(m, "s", "s", "s", "s", "s", "s", "s")
	if strings.Index(keys, "team-b") > strings.Index(keys, "team-a") {
		t.Errorf("not sorted by the requests of the hour:\n%s", keys)
	}
	if got := shown(m, "5"); !strings.Contains(got, "interactive       11       12       213       14  95%") ||
		!strings.Contains(got, "default            0       15         0        0  -") {
		t.Errorf("classes:\n%s", got)
	}
	if got := shown(m, "enter", "tab"); !strings.Contains(got, "p0") {
		t.Errorf("behind the classes comes no fleet:\n%s", got)
	}
}

// Where replicas have several models, the fleet shows the model of each replica, and the filter finds a
// model.
func TestModelsOfReplicas(t *testing.T) {
	m, l := started("http://admin"), sample()
	l.Replicas[0].Model, l.Replicas[1].Model = "small", "big"
	_, _ = m.Update(seen{live: l})
	if got := shown(m); !strings.Contains(got, "p0 (small)") || !strings.Contains(got, "d0 (big)") {
		t.Errorf("the fleet:\n%s", got)
	}
	got := shown(m, "/", "b", "i", "g", "enter")
	if strings.Contains(got, "p0 (") || !strings.Contains(got, "d0 (big)") {
		t.Errorf("the filter:\n%s", got)
	}
}

// Whatever the size of the terminal, what is drawn fits into it.
func TestTheScreenFits(t *testing.T) {
	l := sample()
	for i := range 200 {
		l.Replicas = append(l.Replicas,
			page.Replica{Pool: "decode", Name: fmt.Sprintf("d%d", i+2), Up: true, Index: "live"})
	}
	for _, size := range [][2]int{{40, 8}, {80, 24}, {200, 60}, {5, 3}} {
		m := started("http://admin")
		_, _ = m.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		_, _ = m.Update(seen{live: l})
		for range 150 {
			shown(m, "down")
		}
		lines := strings.Split(shown(m), "\n")
		if size[1] > 6 && len(lines) != size[1] {
			t.Errorf("%d lines on a screen of %d", len(lines), size[1])
		}
		for _, line := range lines {
			if n := ansi.StringWidth(line); n > size[0] {
				t.Errorf("a line of %d on a screen of %d: %q", n, size[0], line)
			}
		}
		if size[1] > 6 && size[0] > 20 && !strings.Contains(strings.Join(lines, "\n"), "d149") {
			t.Errorf("the selected row is not on a screen of %v:\n%s", size, strings.Join(lines, "\n"))
		}
	}
}

// A request is explained, and what cannot be asked is said.
func TestOneRequest(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path != "/debug/decisions/def" {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"error":"no such decision"}`))
			return
		}
		_, _ = w.Write([]byte(
			`{"id":"def","outcome":"queue_timeout","status":429,"decode":"d0",` +
				`"reason":"no decode replica has room"}`,
		))
	}))
	defer s.Close()
	m := started(s.URL)
	_, _ = m.Update(seen{live: sample()})
	if got := shown(m, "3", "down", "enter"); !strings.Contains(got, "no decode replica has room") ||
		!strings.Contains(got, "status 429") {
		t.Errorf("the second request:\n%s", got)
	}
	if got := shown(m, "esc", "home", "k", "enter"); !strings.Contains(got, "no record of that request") {
		t.Errorf("a request that the router has forgotten:\n%s", got)
	}
}

// Snapshots come until the router ends; then why they do not, until it is there again.
func TestFollowing(t *testing.T) {
	var up bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"error":"present the token"}`))
			return
		}
		if up = !up; !up {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write([]byte(`{"error":"a fault"}`))
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("data: {\"in_flight\":3}\n\ndata: {\"in_flight\":4}\n\n"))
	}))
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var got []string
	Source{s.URL, "secret"}.follow(ctx, func(l *page.Live, err error) {
		if l != nil {
			got = append(got, fmt.Sprint(l.InFlight))
		} else if _, what, is := strings.Cut(err.Error(), "answers "); is {
			got = append(got, what[:3])
		} else {
			got = append(got, "end")
		}
		if len(got) == 7 {
			cancel()
		}
	})
	if all := strings.Join(got, " "); all != "3 4 end 502 3 4 end" {
		t.Errorf("seen: %s", all)
	}
	var refused error
	ctx, cancel = context.WithCancel(t.Context())
	Source{Base: s.URL}.follow(ctx, func(_ *page.Live, err error) { refused = err; cancel() })
	if refused == nil || !strings.Contains(refused.Error(), "put it into TANDEM_ADMIN_TOKEN") ||
		errors.Is(refused, context.Canceled) {
		t.Errorf("without the token: %v", refused)
	}
}

// At 80 columns the state of each replica is on the screen. Enter shows all of a replica, ? the keys, and esc
// leads back to where they were opened.
func TestANarrowScreenAndDetails(t *testing.T) {
	m := started("http://admin")
	_, _ = m.Update(tea.WindowSizeMsg{Width: 80, Height: 40})
	l := sample()
	l.Hints = []string{"the prefill pool is idle"}
	_, _ = m.Update(seen{live: l})
	if got := shown(m); !strings.Contains(got, "ejected decode: 3 failures in a…") ||
		!strings.Contains(got, "RUNNING") ||
		!strings.Contains(got, "the prefill pool is idle") {
		t.Errorf("at 80 columns:\n%s", got)
	}
	got := shown(m, "enter")
	for _, want := range []string{
		"d1", "ejected decode: 3 failures in a row", "2 running",
		"p0 > d1: 0 handoffs; ejected: no blocks came",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in the detail\n%s", want, got)
		}
	}
	if got := shown(m, "esc"); !strings.Contains(got, "REPLICA") {
		t.Errorf("esc behind the detail:\n%s", got)
	}
	if got := shown(m, "2", "?"); !strings.Contains(got, "inter-token latency") {
		t.Errorf("help:\n%s", got)
	}
	if got := shown(m, "?", "esc"); !strings.Contains(got, "HANDOFFS") {
		t.Errorf("esc behind the help:\n%s", got)
	}
}

// Without a terminal it is said what to do instead.
func TestWithoutATerminal(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = Run(t.Context(), Source{Base: "http://admin"}, f, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "ssh -t") ||
		!strings.Contains(err.Error(), "http://admin/debug/replicas") {
		t.Errorf("got %v", err)
	}
}
