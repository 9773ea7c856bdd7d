package orchestrator

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/page"
)

// The page shows the fleet, the last minute, the replicas of requests, and problems.
func TestWhatThePageShows(t *testing.T) {
	in(t, setup{}, func(w *world) {
		for range 5 {
			w.ask(chat(true))
		}
		w.ask(chat(false))
		time.Sleep(5 * time.Second)
		l := w.o.admin.Live()
		if !l.Ready || len(l.Replicas) != 4 || l.Config.Gamma != 1 || l.Profile.StepMS <= 0 {
			t.Errorf("ready %v with %d replicas, %+v, %+v", l.Ready, len(l.Replicas), l.Config, l.Profile)
		}
		for _, r := range l.Replicas {
			if !r.Up || r.Model != "" || r.Capacity <= 0 || r.Usage < 0 || r.Speed.TokenUS <= 0 {
				t.Errorf("%+v", r)
			}
		}
		r := l.Recent
		if r.Requests != 6 || r.Errors != 0 || r.Split != 6 || r.First.P50 <= 0 || r.Predicted.P50 <= 0 ||
			r.Token.P50 < 9 || r.Token.P50 > 11 || r.Prompt == 0 {
			t.Errorf("last minute: %+v", r)
		}
		sent := 0
		for _, p := range l.Pairs {
			sent += p.Sent
		}
		if sent != 6 || len(l.Newest) != 6 || l.Newest[0].ID != w.o.ring.Newest(1)[0].ID {
			t.Errorf("%d handoffs, %d requests: %+v", sent, len(l.Newest), l.Pairs)
		}
		time.Sleep(2 * time.Minute)
		if old := w.o.admin.Live().Recent; old.Requests != 0 || old.First.P50 != -1 {
			t.Errorf("two minutes later: %+v", old)
		}
	})
}

// When a replica becomes unreachable, its load is unknown at once: in the status, on the page and in the
// metrics.
func TestTheLoadOfADeadReplicaIsUnknown(t *testing.T) {
	in(t, setup{}, func(w *world) {
		shown := func(e *simulated) (r page.Replica, free, running bool) {
			for _, r = range w.o.admin.Live().Replicas {
				if r.Name == e.addr {
					break
				}
			}
			metrics := w.get("admin", "/metrics").raw
			return r, strings.Contains(metrics, `tandem_decode_free_blocks{replica="`+e.addr+`"}`),
				strings.Contains(metrics, fmt.Sprintf(`tandem_replica_running{pool=%q,replica=%q}`, r.Pool, e.addr))
		}
		w.exact(completion(true), w.ask(completion(true)))
		time.Sleep(10 * time.Second)
		if r, free, running := shown(w.d[0]); r.Running < 0 || r.Usage < 0 || r.Free < 0 || !free || !running {
			t.Fatalf("alive: %+v %v %v", r, free, running)
		}
		w.p[0].Close()
		w.d[0].Close()
		for w.count("tandem_replica_up", "") > 2 {
			time.Sleep(time.Millisecond)
		}
		for _, e := range []*simulated{w.p[0], w.d[0]} {
			if r, free, running := shown(e); r.Up || r.Running != -1 || r.Waiting != -1 || r.Usage != -1 ||
				r.Free != -1 || r.Age != -1 || free || running {
				t.Errorf("dead: %+v %v %v", r, free, running)
			}
		}
	})
}

// The page shows an ejected replica with its cause.
func TestThePageShowsTrouble(t *testing.T) {
	in(t, setup{prefill: 2, decode: 3, config: auto}, func(w *world) {
		fault(enginesim.Fault{Kind: "fail", Count: -1})(w, w.d[0])
		w.crowd(60, 12, 0)
		w.o.Rejected(errors.New("line 3 is wrong"))
		l := w.o.admin.Live()
		if l.Rejected != "line 3 is wrong" || l.Recent.Retried == 0 {
			t.Errorf("rejected %q, %d retries", l.Rejected, l.Recent.Retried)
		}
		for _, r := range l.Replicas {
			if (r.Name == w.d[0].addr) != (len(r.States) > 0) {
				t.Errorf("%s has %+v", r.Name, r.States)
			}
		}
	})
}

// The page's static files need no token and no known host name, because they contain nothing secret. The
// data that the page loads needs them.
func TestThePageAndTheToken(t *testing.T) {
	in(t, setup{config: func(c *config.Config) { c.Admin.Token = config.Secret{Value: "secret"} }},
		func(w *world) {
			for path, want := range map[string]int{
				"/": 200, "/page.js": 200, "/page.css": 200, "/icon.svg": 200, "/debug/live": 401,
				"/-/config/changes": 401, "/index.html": 401,
			} {
				if got := w.get("admin", path); got.status != want {
					t.Errorf("%s: %d, want %d", path, got.status, want)
				}
			}
		})
}

// The page shows what a reload would change before it is done.
func TestWhatAReloadWouldChange(t *testing.T) {
	var changes []config.Change
	var problem error
	in(t, setup{
		options: func(o *Options) { o.Preview = func() ([]config.Change, error) { return changes, problem } },
	}, func(w *world) {
		ask := func(want int) string {
			t.Helper()
			got := w.get("admin", "/-/config/changes")
			if got.status != want {
				t.Errorf("status %d, want %d", got.status, want)
			}
			return got.raw
		}
		if got := ask(200); got != "" {
			t.Errorf("without a change: %q, want nothing", got)
		}
		changes = []config.Change{{Field: "scoring.gamma", Old: "1", New: "3", Effect: config.AtOnce}}
		if got := ask(200); got != "scoring.gamma: 1 -> 3 (applies at once)\n" {
			t.Errorf("got %q", got)
		}
		problem = errors.New("scoring.gamma: is -1")
		var said struct{ Error string }
		if got := ask(400); json.Unmarshal([]byte(got), &said) != nil || !strings.Contains(said.Error, "gamma") {
			t.Errorf("got %q", got)
		}
	})
}
