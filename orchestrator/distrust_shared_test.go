package orchestrator

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
)

// twoRouters is a slow pair, configured for two routers that exchange their bookings.
func twoRouters() setup {
	s := slowPair(30 * time.Second)
	change := s.config
	s.config = func(c *config.Config) {
		change(c)
		c.Routers.Peers = []string{"http://admin:80", "http://admin-b:80"}
		c.Admin.Hosts = []string{"admin", "admin-b"}
	}
	return s
}

// restart ends the router and starts a new one in its place.
func (w *world) restart() {
	w.t.Helper()
	w.stop()
	if err := <-w.ended; err != nil {
		w.t.Errorf("serve: %v", err)
	}
	w.mid.mu.Lock()
	w.asked = 0 // counts the clients of the new router
	w.mid.mu.Unlock()
	w.start(Options{Dial: w.dial, NoEvents: true, Seed: 3, Tracer: &w.mid})
}

// exactBeside checks the second router's answer to p: no wrongly cached block may have been used.
func (w *world) exactBeside(p prompt) {
	w.t.Helper()
	got := <-w.askBeside(p).heard
	if want := w.right(p); got.status != 200 || got.text != want.text {
		w.t.Errorf("the other router's client got %d and %q, want %q", got.status, got.text, want.text)
	}
}

// One router finds that an engine may have cached wrong blocks. It tells the other routers, also one that
// has just started. No router gives a client an answer from wrong blocks.
func TestRoutersShareDistrust(t *testing.T) {
	in(t, twoRouters(), func(w *world) {
		other, stop := w.beside()
		p := poisoned(w)
		time.Sleep(2 * w.cfg.Experimental.Routers.Interval)
		w.exactBeside(p)
		for _, watched := range other.fleet.Watchers() {
			if watched.Name() == w.d[0].addr && watched.CacheEpoch() != 1 {
				t.Errorf("the other router has epoch %d, want 1 from the router that found it", watched.CacheEpoch())
			}
		}
		w.restart() // the new router has forgotten, and asks the other one before its first request
		w.exact(p, w.ask(p))
		stop()
		_, stop = w.beside() // the same with the roles exchanged
		defer stop()
		w.exactBeside(p)
	})
}

// With a state file, a router remembers the distrust by itself, even if it is killed right after the
// finding.
func TestDistrustOutlivesTheRouter(t *testing.T) {
	name := filepath.Join(t.TempDir(), "state.json")
	s := slowPair(30 * time.Second)
	change := s.config
	s.config = func(c *config.Config) {
		change(c)
		c.State.File, c.State.Interval = name, time.Hour
	}
	in(t, s, func(w *world) {
		p := poisoned(w)
		time.Sleep(time.Millisecond)
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatalf("the state file was not written at once: %v", err)
		}
		w.restart()
		if err := os.WriteFile(name, data, 0o600); err != nil { // as if the router had not written at its end
			t.Fatal(err)
		}
		w.restart()
		w.exact(p, w.ask(p))
		w.exact(p, w.ask(p))
	})
}

// While an answer is generated, its engine is found to have cached wrong blocks. The answer may be based
// on them. If the client has received nothing yet, the request is tried again without blame.
func TestAnswerOfAFormerEraIsMadeAgain(t *testing.T) {
	for _, stream := range []bool{true, false} {
		in(t, setup{prefill: 1, decode: 1, config: func(c *config.Config) { c.Local = config.LocalAlways }},
			func(w *world) {
				p := completion(stream)
				w.once(func() {
					to := w.o.fleet.Endpoints()[w.o.fleet.Watchers()[1].Members()[0].ID]
					later(decodeStep, func(*world, *simulated) {
						to.Distrust(to.CacheEpoch(), refuse(kindLate, site{phase: "decode"}))
					})(w, nil)
				})
				w.exact(p, w.ask(p))
				if n := len(w.posts(false)); n != 2 {
					t.Errorf("the engine was asked %d times, want twice", n)
				}
				w.blamed(0, 0)
				w.exact(p, w.ask(p))
				if n := len(w.posts(false)); n != 3 {
					t.Errorf("the engine was asked %d times, want once more", n)
				}
			})
	}
}
