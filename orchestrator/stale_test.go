package orchestrator

import (
	"strings"
	"testing"
	"time"

	"tandem/connector"
	"tandem/internal/config"
	"tandem/internal/enginesim"
)

// longPauses gives legs the time in which an engine may stand still.
func longPauses(c *config.Config) {
	longAnswers(c)
	c.Timeouts.Prefill = time.Minute
}

// outlastKept lets engines stand still for longer than they keep idle connections.
func outlastKept(w *world, e *simulated) {
	fault(enginesim.Fault{Kind: "freeze", For: 6 * time.Second})(w, e)
}

// keptOpen has connections kept to all engines.
func (w *world) keptOpen() {
	w.t.Helper()
	var all []*pending
	for range 4 * len(w.d) {
		all = append(all, w.begin(completion(false)))
	}
	for _, one := range all {
		if got := <-one.heard; got.status != 200 {
			w.t.Fatalf("status %d, %s", got.status, got.raw)
		}
	}
	w.wire.forget()
}

// An engine that stood still ends the connections that grew too old meanwhile, though a request has come on
// one. That is tried again, there where nobody else is, and nothing is held against the engine.
func TestAKeptConnectionThatEndsIsNoFailure(t *testing.T) {
	for _, order := range []connector.Order{connector.Sequential, connector.Concurrent} {
		for _, leg := range []string{"prefill", "decode"} {
			if order == connector.Concurrent && leg == "prefill" { // here its answer does not wait for that leg
				continue
			}
			in(t, setup{prefill: 1, decode: 1, order: order, config: longPauses}, func(w *world) {
				w.keptOpen()
				w.at(leg, func(replica string) {
					w.at(leg, nil)
					outlastKept(w, w.by(replica))
				})
				p := completion(true)
				w.exact(p, w.ask(p))
				if n := w.count("tandem_attempt_failures_total", ""); n != 0 {
					t.Errorf("%s: %d failed attempts are held against engines", leg, n)
				}
				if failed := w.o.ring.newest(1)[0].Failed; len(failed) != 1 || failed[0].Kind != "stale" {
					t.Errorf("%s: the record tells of %+v", leg, failed)
				}
			})
		}
	}
}

// Behind or before an engine that ended under the request it is no second one that did.
func TestAKeptConnectionThatEndsIsNoSecondOpinion(t *testing.T) {
	for _, stale := range []int{1, 2} {
		in(t, setup{decode: 2, config: longPauses}, func(w *world) {
			w.keptOpen()
			tries := 0
			w.at("decode", func(replica string) {
				e := w.by(replica)
				switch tries++; tries {
				case stale:
					outlastKept(w, e)
				case 3 - stale:
					go func() {
						time.Sleep(time.Millisecond) // it is sent by then
						fault(enginesim.Fault{Kind: "restart", For: time.Second})(w, e)
					}()
				}
			})
			p := completion(true)
			w.exact(p, w.ask(p))
			if tries != 3 {
				t.Errorf("it was tried %d times, want 3", tries)
			}
			time.Sleep(20 * time.Second) // who ended is back
		})
	}
}

// An engine that ends under a request, on however old a connection, is a failure of its own.
func TestAnEngineThatEndsUnderAKeptConnection(t *testing.T) {
	in(t, setup{decode: 1, config: longPauses}, func(w *world) {
		w.keptOpen()
		w.at("decode", func(replica string) {
			e := w.by(replica)
			go func() {
				time.Sleep(6 * time.Second)
				fault(enginesim.Fault{Kind: "restart", For: time.Minute})(w, e)
			}()
		})
		p := longPrompt(1500)
		w.failed(p, w.ask(p), 503) // nobody else is left
		if failed := w.o.ring.newest(1)[0].Failed; failed[0].Kind != "broken" {
			t.Errorf("the record tells of %+v", failed)
		}
		time.Sleep(2 * time.Minute) // it is back
	})
}

// What goes whole to an engine may do anything, and is not sent twice; nothing is held against the engine.
func TestAKeptConnectionThatEndsUnderAWholeRequest(t *testing.T) {
	in(t, setup{prefill: 1, decode: 1, config: longPauses}, func(w *world) {
		w.keptOpen()
		outlastKept(w, w.d[0])
		got := w.ask(post("/v1/embeddings", `{"model":"sim","input":"a b c"}`))
		if got.status != 502 || !strings.Contains(got.raw, "broke off") {
			t.Errorf("status %d, %s", got.status, got.raw)
		}
		if n := w.count("tandem_attempt_failures_total", ""); n != 0 {
			t.Errorf("%d failed attempts are held against the engine", n)
		}
	})
}
