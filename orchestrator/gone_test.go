package orchestrator

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// A decode engine dies during an answer, and a proxy in front of it still accepts connections and closes
// them. The router stops using the engine at once, long before its next load poll. Otherwise an answer
// that loses another engine could be sent there, and its request would be taken for deadly.
func TestAnEngineThatIsGoneBehindAProxyIsOut(t *testing.T) {
	in(t, setup{decode: 3}, func(w *world) {
		p := completion(true)
		var at []string // the engine that dies, and the one that continues
		w.at("decode", func(engine string) { at = append(at, engine) })
		w.exact(p, w.ask(p, func(event int) {
			if event == 3 {
				w.net.EndEach(at[0], true)
				w.net.Cut(at[0])
			}
		}))
		time.Sleep(50 * time.Millisecond)
		if w.o.fleet.MayTry(replica.ID(at[0])) {
			t.Error("the engine counts as up, though the proxy ends every connection")
		}
		w.net.EndEach(at[0], false)
		time.Sleep(10 * time.Second)
		if !w.o.fleet.MayTry(replica.ID(at[0])) {
			t.Error("the engine does not count as up, though it answers again")
		}
	})
}

// A single broken connection does not mean that an engine is gone.
func TestAnEngineWhoseConnectionsEndOnceStays(t *testing.T) {
	in(t, setup{decode: 3}, func(w *world) {
		p := completion(true)
		var at []string
		w.at("decode", func(engine string) { at = append(at, engine) })
		w.exact(p, w.ask(p, func(event int) {
			if event == 3 {
				w.net.Cut(at[0])
			}
		}))
		time.Sleep(50 * time.Millisecond)
		if !w.o.fleet.MayTry(replica.ID(at[0])) {
			t.Error("the engine is out of use, though it accepts connections and answers")
		}
	})
}
