package orchestrator

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
)

// A drain by command survives a restart of the router, even if the replica joins only later, as a
// discovered replica does. An ended drain does not come back.
func TestTheDrainOfALateReplicaOutlivesTheRouter(t *testing.T) {
	name := filepath.Join(t.TempDir(), "state.json")
	keeping := setup{config: func(c *config.Config) { c.State.File = name }}
	in(t, keeping, func(w *world) { w.drain(w.d[0]) })
	var all config.Pool
	keeping.config = func(c *config.Config) {
		c.State.File = name
		all = c.Pools.Decode
		another := config.Replica{URL: "http://whole.internal:8000"}
		c.Pools.Decode.Replicas = []config.Replica{another, all.Replicas[1]}
	}
	in(t, keeping, func(w *world) {
		if err := w.o.state.writeNow(); err != nil { // writing the file again must not forget the drain
			t.Fatal(err)
		}
		kept, err := readStateFile(name)
		if err != nil || len(kept.Drained) != 1 {
			t.Errorf("the state file has %+v, %v; want one drain", kept, err)
		}
		cfg := *w.cfg
		cfg.Pools.Decode.Replicas = all.Replicas
		w.apply(&cfg)
		time.Sleep(5 * time.Second) // the replica joins and is probed
		if got := w.o.fleet.Drains(); len(got) != 1 || got[0].Name != w.d[0].addr {
			t.Errorf("drained: %v, want %s", got, w.d[0].addr)
		}
		w.wire.forget()
		for i := range 10 {
			p := numbered(i, true)
			w.exact(p, w.ask(p))
		}
		if n := w.sentTo(w.d[0]); n != 0 {
			t.Errorf("%d requests went to the drained replica", n)
		}
		w.undrain(w.d[0])
		w.apply(w.cfg)
		w.apply(&cfg)
		if got := w.o.fleet.Drains(); len(got) != 0 {
			t.Errorf("drained again: %v", got)
		}
	})
}

// The drain of a replica that does not come back is forgotten, in the file too. Otherwise a new replica
// with the former address or name would be drained years later.
func TestTheDrainOfAFormerReplicaIsForgotten(t *testing.T) {
	name := filepath.Join(t.TempDir(), "state.json")
	keeping := setup{config: func(c *config.Config) { c.State.File = name }}
	in(t, keeping, func(w *world) { w.drain(w.d[0]) })
	keeping.config = func(c *config.Config) {
		c.State.File = name
		another := config.Replica{URL: "http://whole.internal:8000"}
		c.Pools.Decode.Replicas = []config.Replica{another, c.Pools.Decode.Replicas[1]}
	}
	for _, left := range []int{1, 0} {
		in(t, keeping, func(w *world) {
			if left == 0 {
				w.o.state.mu.Lock()
				w.o.state.until = time.Now().Add(-time.Second)
				w.o.state.mu.Unlock()
			}
			if err := w.o.state.writeNow(); err != nil {
				t.Fatal(err)
			}
		})
		kept, err := readStateFile(name)
		if err != nil || len(kept.Drained) != left {
			t.Errorf("the state file has %+v, %v; want %d drains", kept.Drained, err, left)
		}
	}
}
