package orchestrator

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// eventsPath is a world whose prefill replicas send their events at a path of their own server, to who has
// their key.
func eventsPath(served string) setup {
	return setup{
		prefill: 3, decode: 1,
		engine: func(name string, o *enginesim.Options) {
			if strings.HasPrefix(name, "p") {
				o.EventsPath, o.APIKey = served, "of-the-pool"
			}
		},
		config: undrawn(func(c *config.Config) {
			c.Pools.Prefill.APIKey = config.Secret{Value: "of-the-pool"}
			for i := range c.Pools.Prefill.Replicas {
				c.Pools.Prefill.Replicas[i].Events = config.Events{Endpoint: "/v1/kv_events"}
			}
		}),
		options: func(o *Options) { o.NoEvents = false },
	}
}

// believes reports whether the index of a replica is believed so far, and its stream stands so.
func (w *world) believes(p *simulated, trust, stream string) {
	w.t.Helper()
	for _, s := range w.o.Status().Replicas {
		if s.Name != p.addr {
			continue
		}
		book, err := json.Marshal(s.Book)
		index := `"index":"` + trust + `"`
		if err != nil || !bytes.Contains(book, []byte(index)) || !strings.Contains(s.Events, stream) {
			w.t.Errorf("%s: %s, %s, %v, want %s and %s", p.name, s.Events, book, err, trust, stream)
		}
		return
	}
	w.t.Errorf("%s is not in the status", p.addr)
}

// Prefixes are found by events that engines send at a path of their own, as true as answers tell.
func TestPrefixesAreFoundByEventsOfAPath(t *testing.T) {
	in(t, eventsPath("/v1/kv_events"), func(w *world) {
		for _, p := range w.p {
			w.believes(p, "live", "live: connected")
		}
		home(w, func(r *Record) bool { return r.Captured > 0 && r.Captured == r.Delivered })
		if n := w.count("tandem_events_blocks_total", "stored"); n == 0 {
			w.t.Error("no block was stored by events: the test shows nothing")
		}
	})
}

// What is missing, by a lost event, a lost connection or another process, is never believed to be there.
func TestLossesOfEventsOfAPath(t *testing.T) {
	fault := func(f enginesim.Fault) func(w *world) {
		return func(w *world) {
			for _, p := range w.p {
				if err := p.Fault(f); err != nil {
					w.t.Fatal(err)
				}
			}
		}
	}
	for name, lose := range map[string]func(w *world){
		"events":     fault(enginesim.Fault{Kind: "drop_events", Count: 1}),
		"the stream": fault(enginesim.Fault{Kind: "restart_events"}),
		"the process": func(w *world) {
			fault(enginesim.Fault{Kind: "restart"})(w)
			time.Sleep(10 * time.Second) // until the replicas have joined again
		},
		"the connections": func(w *world) {
			for _, p := range w.p {
				w.net.Cut(p.addr)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, eventsPath("/v1/kv_events"), func(w *world) {
				for _, c := range conversations {
					w.tell(c, 1)
				}
				lose(w)
				time.Sleep(time.Second)
				for n := 2; n <= 4; n++ {
					for _, c := range conversations {
						if r := w.tell(c, n); r.Captured > r.Delivered {
							w.t.Errorf("turn %d of %s: %d tokens believed, %d delivered", n, c, r.Captured, r.Delivered)
						}
					}
					forgetful()
				}
				// What begins behind the losses, of which there is one at each replica, is known.
				for n := 1; n <= 5; n++ {
					for _, c := range conversations {
						r := w.tell("not "+c, n)
						if n == 5 && (r.Captured == 0 || r.Captured > r.Delivered) {
							w.t.Errorf("not %s: %d tokens believed, %d delivered", c, r.Captured, r.Delivered)
						}
					}
					forgetful()
				}
			})
		})
	}
}

// A server without the path serves as well as any. Its index is unknown, which the status says.
func TestReplicasWithoutTheirPathOfEvents(t *testing.T) {
	in(t, eventsPath(""), func(w *world) {
		for n := 1; n <= 2; n++ {
			for _, c := range conversations {
				w.tell(c, n)
			}
		}
		for _, p := range w.p {
			w.believes(p, "stale", "status 404")
		}
	})
}
