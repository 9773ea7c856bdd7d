package orchestrator

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
)

// twoRouters is a slow pair in front of which there may be two routers that tell each other their bookings.
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

// restart ends the router and starts another one in its place.
func (w *world) restart() {
	w.t.Helper()
	w.stop()
	if err := <-w.ended; err != nil {
		w.t.Errorf("serve: %v", err)
	}
	w.mid.mu.Lock()
	w.asked = 0 // by clients of the new one
	w.mid.mu.Unlock()
	w.start(Options{Dial: w.dial, NoEvents: true, Seed: 3, Tracer: &w.mid})
}

// exactBeside checks that the second router answers p as an engine would that has cached nothing wrong.
func (w *world) exactBeside(p prompt) {
	w.t.Helper()
	got := <-w.askBeside(p).heard
	if want := w.right(p); got.status != 200 || got.text != want.text {
		w.t.Errorf("the other router's client got %d and %q, want %q", got.status, got.text, want.text)
	}
}

// One router's finding about an engine's cache reaches the other routers, and a newly started one: no router
// gives a client an answer from wrong blocks.
func TestRoutersShareDistrust(t *testing.T) {
	in(t, twoRouters(), func(w *world) {
		other, stop := w.beside()
		p := poisoned(w)
		time.Sleep(2 * w.cfg.Experimental.Routers.Interval)
		w.exactBeside(p)
		for _, watched := range other.fleet.Watchers() {
			if watched.Name() == w.d[0].addr && watched.CacheEpoch() != 1 {
				t.Errorf("the other router has epoch %d, want that of the one that found it", watched.CacheEpoch())
			}
		}
		w.restart() // has forgotten, and asks the other before its first request
		w.exact(p, w.ask(p))
		stop()
		_, stop = w.beside() // the same, the other way round
		defer stop()
		w.exactBeside(p)
	})
}

// With a state file a router remembers by itself, also if it is killed right after.
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
			t.Fatalf("the file is not written at once: %v", err)
		}
		w.restart()
		if err := os.WriteFile(name, data, 0o600); err != nil { // as if it had not written at its end
			t.Fatal(err)
		}
		w.restart()
		w.exact(p, w.ask(p))
		w.exact(p, w.ask(p))
	})
}

// An answer that is under way when its engine is found to have cached wrong blocks may rest on them: where
// its client has got nothing yet it is made again, and nobody is blamed.
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
