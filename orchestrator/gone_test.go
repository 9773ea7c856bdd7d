package orchestrator

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// A decode engine dies under an answer, and a proxy before it still takes connections and ends them: no
// request is sent there any more, long before its load is asked for again. Else an answer that loses another
// engine next would be sent there, and be taken for what ended both.
func TestAnEngineThatIsGoneBehindAProxyIsOut(t *testing.T) {
	in(t, setup{decode: 3}, func(w *world) {
		p := completion(true)
		var at []string // the engine that dies, and the one that goes on
		w.at("decode", func(engine string) { at = append(at, engine) })
		w.exact(p, w.ask(p, func(event int) {
			if event == 3 {
				w.net.EndEach(at[0], true)
				w.net.Cut(at[0])
			}
		}))
		time.Sleep(50 * time.Millisecond)
		if w.o.fleet.MayTry(replica.ID(at[0])) {
			t.Error("it is up, though every connection to it is ended")
		}
		w.net.EndEach(at[0], false)
		time.Sleep(10 * time.Second)
		if !w.o.fleet.MayTry(replica.ID(at[0])) {
			t.Error("it is not up, though it answers again")
		}
	})
}

// A connection that ends once is no sign that an engine is gone.
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
			t.Error("it is out, though it takes connections and answers")
		}
	})
}
