package orchestrator

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/trials"
)

// between is a connector that calls a function before it edits a leg of a canary.
type between struct {
	connector.NIXL
	at *func(leg string)
}

func (b between) EditPrefill(leg *connector.Leg, pair connector.Pair) error {
	b.tell("prefill", pair)
	return b.NIXL.EditPrefill(leg, pair)
}

func (b between) EditDecode(
	leg *connector.Leg, pair connector.Pair, reply *connector.Reply, use connector.Use,
) error {
	b.tell("decode", pair)
	return b.NIXL.EditDecode(leg, pair, reply, use)
}

func (b between) tell(leg string, pair connector.Pair) {
	if *b.at != nil && strings.HasPrefix(pair.AttemptID, "tandem-canary") {
		(*b.at)(leg)
	}
}

// If a kept connection ends during a trial because it was too old, the trial says nothing about its
// engines and is made once more.
func TestAKeptConnectionThatEndsUnderATrial(t *testing.T) {
	for _, c := range []struct {
		leg   string
		times int
		want  trials.Result
	}{
		{"alone", 1, trials.Works},
		{"prefill", 1, trials.Works},
		{"decode", 1, trials.Works},
		{"prefill", 2, trials.Unclear},
		{"decode", 2, trials.Unclear},
	} {
		var at func(leg string)
		options := func(o *Options) { o.Connector = between{at: &at} }
		in(t, setup{prefill: 1, decode: 1, config: longPauses, options: options}, func(w *world) {
			w.keptOpen()
			// Shorter than the timeout of a canary's decode leg.
			outlast := fault(enginesim.Fault{Kind: "freeze", For: 5500 * time.Millisecond})
			times := c.times
			at = func(leg string) {
				if leg != c.leg || times == 0 {
					return
				}
				times--
				e := map[string]*simulated{"alone": w.d[0], "prefill": w.p[0], "decode": w.d[0]}[leg]
				w.keep(replica.ID(e.addr))
				outlast(w, e)
			}
			at("alone")
			p, d := w.o.fleet.Endpoint(replica.ID(w.p[0].addr)), w.o.fleet.Endpoint(replica.ID(w.d[0].addr))
			got := w.o.trials.Pair(w.t.Context(), p, d, "")
			if got.Result != c.want || times != 0 {
				t.Errorf("ended %d times in leg %s: %v (%v, %s), want %v",
					c.times, c.leg, got.Result, got.Kind, got.Why, c.want)
			}
		})
	}
}

// The same for a trial of one replica alone.
func TestAKeptConnectionThatEndsUnderATrialOfOne(t *testing.T) {
	in(t, setup{prefill: 1, decode: 1, config: longPauses}, func(w *world) {
		w.keptOpen()
		outlastKept(w, w.d[0])
		got := w.o.trials.Whole(w.t.Context(), w.o.fleet.Endpoint(replica.ID(w.d[0].addr)))
		if got.Result != trials.Works {
			t.Errorf("%v (%v, %s)", got.Result, got.Kind, got.Why)
		}
	})
}

// An engine that dies during a trial fails it, even if the connection is old.
func TestAnEngineThatEndsUnderATrial(t *testing.T) {
	in(t, setup{prefill: 1, decode: 1, config: longPauses}, func(w *world) {
		w.keptOpen()
		fault(enginesim.Fault{Kind: "freeze_core", For: time.Minute})(w, w.d[0])
		go func() {
			time.Sleep(6 * time.Second)
			fault(enginesim.Fault{Kind: "restart", For: time.Minute})(w, w.d[0])
		}()
		got := w.o.trials.Whole(w.t.Context(), w.o.fleet.Endpoint(replica.ID(w.d[0].addr)))
		if got.Result != trials.Fails {
			t.Errorf("%v (%v, %s)", got.Result, got.Kind, got.Why)
		}
		time.Sleep(2 * time.Minute) // the engine is back
	})
}

// A canary has a lease in the ledger of its decode replica, as a client's request has.
func TestCanariesAreBooked(t *testing.T) {
	in(t, setup{prefill: 1, decode: 1, config: longPauses}, func(w *world) {
		d := w.o.fleet.Endpoint(replica.ID(w.d[0].addr))
		empty := w.o.decode.Status(time.Now())[0]
		fault(enginesim.Fault{Kind: "freeze", For: 2 * time.Second})(w, w.d[0])
		done := make(chan trials.Finding)
		go func() { done <- w.o.trials.Whole(w.t.Context(), d) }()
		time.Sleep(time.Second)
		if got := w.o.decode.Status(time.Now())[0]; got.Leases != 1 || got.Free >= empty.Free {
			t.Errorf("during the canary: %d leases, %d free blocks, before %d", got.Leases, got.Free, empty.Free)
		}
		if got := <-done; got.Result != trials.Works {
			t.Errorf("%v (%v, %s)", got.Result, got.Kind, got.Why)
		}
		if got := w.o.decode.Status(time.Now())[0]; got.Leases != 0 || got.Promised != 0 {
			t.Errorf("after the canary: %d leases, %d promised blocks", got.Leases, got.Promised)
		}
	})
}

// A canary does not ask for log-probabilities: an engine would have to compile a function first, and all
// its streams would stop meanwhile.
func TestCanariesLetNoEngineStandStill(t *testing.T) {
	compiles := func(_ string, o *enginesim.Options) { o.CompilesLogprobs = time.Minute }
	in(t, setup{prefill: 1, decode: 1, config: longPauses, engine: compiles}, func(w *world) {
		p, d := w.o.fleet.Endpoint(replica.ID(w.p[0].addr)), w.o.fleet.Endpoint(replica.ID(w.d[0].addr))
		begun := time.Now()
		got := w.o.trials.Pair(w.t.Context(), p, d, "")
		if took := time.Since(begun); got.Result != trials.Works || took > 5*time.Second {
			t.Errorf("%v (%v, %s) after %v", got.Result, got.Kind, got.Why, took)
		}
	})
}

// When the lease of a canary ends, a request that waits for room tries at once, not at the next tick or
// load report.
func TestCanariesGiveTheirRoomToWhoWaits(t *testing.T) {
	in(t, setup{prefill: 1, decode: 1, config: longPauses}, func(w *world) {
		d := w.o.fleet.Endpoint(replica.ID(w.d[0].addr))
		fault(enginesim.Fault{Kind: "freeze", For: 2300 * time.Millisecond})(w, w.d[0])
		done := make(chan trials.Finding)
		go func() { done <- w.o.trials.Whole(w.t.Context(), d) }()
		time.Sleep(time.Second)
		synctest.Wait()
		var admitted time.Time
		out := make(chan error, 1)
		go func() {
			out <- w.o.queue.enter(w.t.Context(), entry{patience: time.Minute, try: func() outcome {
				if w.o.decode.Status(time.Now())[0].Leases > 0 {
					return outcome{verdict: waitsInLine}
				}
				admitted = time.Now()
				return outcome{verdict: goesOn}
			}})
		}()
		<-done
		ended := time.Now()
		if err := <-out; err != nil || admitted.After(ended) {
			t.Errorf("admitted %v after the canary's lease ended (%v)", admitted.Sub(ended), err)
		}
	})
}
