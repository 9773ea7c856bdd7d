package orchestrator

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/capture"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// A capture has arrival times, lengths and shared prefixes of requests. It has no prompt text, and its
// names for sessions, tenants and blocks differ from those of another capture.
func TestCapture(t *testing.T) {
	in(t, setup{}, func(w *world) {
		w.ask(guardedPrompt(idPrompt(1, 100), "")) // before the capture begins: left out
		bodies := make([]string, 2)
		done := make(chan int)
		for i := range bodies {
			go func() {
				rec := httptest.NewRecorder()
				w.o.Admin().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/debug/capture?for=20s", nil))
				bodies[i] = rec.Body.String()
				done <- rec.Code
			}()
		}
		time.Sleep(2 * time.Second)
		first := guardedPrompt(idPrompt(1, 100), "")
		first.header = http.Header{"X-Session-Id": {"alice"}, "Authorization": {"Bearer alices-key"}}
		first.body = strings.Replace(first.body, "{", `{"stop":["x"],"nvext":{"agent_hints":{"osl":7}},`, 1)
		w.exact(first, w.ask(first))
		time.Sleep(3 * time.Second)
		w.ask(guardedPrompt(idPrompt(1, 130), ""))
		w.ask(guardedPrompt(idPrompt(2, 40), ""))
		w.ask(guardedPrompt(`[1,2`, "")) // refused: left out
		for range bodies {
			if code := <-done; code != 200 {
				w.t.Errorf("status %d", code)
			}
		}
		got := captured(w, bodies[0])
		if len(got) != 3 || got[0].T < 1.9 || got[0].T > 2.1 || got[1].T < 5 || got[0].Input != 100 ||
			got[0].Output != 6 || got[0].Model != "sim" {
			w.t.Fatalf("captured %+v", got)
		}
		if got[0].Session == "" || strings.Contains(bodies[0], "alice") || got[1].Session != "" {
			w.t.Errorf("sessions %q and %q, want a name that is not the client's and none",
				got[0].Session, got[1].Session)
		}
		asked := got[0].Asked
		if asked.Tenant == "" || strings.Contains(bodies[0], "alices-key") || got[1].Tenant != "" {
			w.t.Errorf("tenants %q and %q, want a name that is not the key and none", asked.Tenant, got[1].Tenant)
		}
		asked.Tenant = ""
		if want := (capture.Asked{API: "completions", Stops: true, Expects: 7}); asked != want {
			w.t.Errorf("captured %+v, want %+v", asked, want)
		}
		if len(got[0].Blocks) != 6 || len(got[1].Blocks) != 8 || !slices.Equal(got[0].Blocks, got[1].Blocks[:6]) ||
			slices.Contains(got[0].Blocks, got[2].Blocks[0]) {
			w.t.Errorf("blocks %v, %v, %v; want 6, then 8 that begin with the same 6, then different ones",
				got[0].Blocks, got[1].Blocks, got[2].Blocks)
		}
		if other := captured(w, bodies[1]); len(other) != 3 ||
			slices.Contains(got[0].Blocks, other[0].Blocks[0]) || other[0].Session == got[0].Session ||
			other[0].Tenant == got[0].Tenant {
			w.t.Errorf("another capture uses the same names: %+v", other)
		}
		w.o.captures.Note(func() observe.Served {
			w.t.Error("a capture goes on after its end")
			return observe.Served{}
		})
	})
}

// captured checks the first and last line of a capture and returns the requests between them.
func captured(w *world, body string) (lines []capture.Request) {
	all := strings.Split(strings.TrimSpace(body), "\n")
	var header capture.Header
	var end struct{ Lost *uint64 }
	if json.Unmarshal([]byte(all[0]), &header) != nil || header.Version != capture.Version ||
		header.BlockSize != 16 {
		w.t.Fatalf("first line %s", all[0])
	}
	if last := all[len(all)-1]; json.Unmarshal([]byte(last), &end) != nil || end.Lost == nil || *end.Lost != 0 {
		w.t.Fatalf("last line %s", last)
	}
	for _, text := range all[1 : len(all)-1] {
		var one capture.Request
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			w.t.Fatalf("%s: %v", text, err)
		}
		lines = append(lines, one)
	}
	return lines
}

func TestCaptureForHowLong(t *testing.T) {
	in(t, setup{}, func(w *world) {
		for _, bad := range []string{"ten", "-1s", "0s"} {
			rec := httptest.NewRecorder()
			w.o.Admin().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/debug/capture?for="+bad, nil))
			if rec.Code != http.StatusBadRequest || !strings.Contains(rec.Body.String(), "10m") {
				w.t.Errorf("for=%s: %d %s", bad, rec.Code, rec.Body)
			}
		}
	})
}
