package orchestrator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// withP2P gives every engine host memory, from which other engines pull, and splits every request.
func withP2P() setup {
	return setup{
		engine: func(name string, o *enginesim.Options) {
			o.Core.Tier, o.P2P = core.Tier{Blocks: 4096}, name+".internal:5710"
			o.Core.Cost.A = 100e-6 // a prompt takes long enough for a pull to be faster
		},
		config: func(c *config.Config) {
			c.Connector.PullPort, c.Scoring.KVBytesPerToken = 5710, 1024
			c.Local = config.LocalNever
			c.Timeouts.Prefill = time.Minute
		},
	}
}

// prefixed is a prompt of some thousand tokens with its own end.
func prefixed(end string) prompt { return prefixedOf(completion(false), end) }

func prefixedOf(p prompt, end string) prompt {
	var long strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&long, "word%d ", i%97)
	}
	p.body = strings.Replace(p.body, words(120), long.String()+end+" "+words(120), 1)
	return p
}

// prefillOnP1 lets p0 compute the beginning of the prompts, and then takes no more requests there.
func (w *world) prefillOnP1() { w.prefixOn(w.p, prefixed("first")) }

// prefixOn lets the first of two engines compute p, and then takes no more requests there.
func (w *world) prefixOn(of []*simulated, p prompt) {
	w.t.Helper()
	w.drain(of[1])
	w.exact(p, w.ask(p))
	w.undrain(of[1])
	w.drain(of[0])
	time.Sleep(time.Second) // the events have come
	w.wire.forget()
}

// legOf returns the body of the newest prefill leg of an engine.
func (w *world) legOf(e *simulated) (body string) {
	for _, s := range w.posts(false) {
		if s.engine == e.name {
			body = s.body
		}
	}
	return body
}

// A prefill replica without the prefix pulls it from a replica that has it, also from one that is drained.
// The answer is the same.
func TestAPrefillPullsItsPrefix(t *testing.T) {
	in(t, withP2P(), func(w *world) {
		w.prefillOnP1()
		p := prefixed("second")
		w.exact(p, w.ask(p))
		if leg := w.legOf(w.p[1]); !strings.Contains(leg, `"remote_kv_source":{"kv_request_id":"`) ||
			!strings.Contains(leg, `.internal","remote_port":5710}`) {
			t.Errorf("the prefill leg names no source: %.300s", leg[max(0, len(leg)-300):])
		}
		r := w.newest()
		on := r.Decision.Plans[0].OnPrefill
		if on.Matched != 0 || on.Pulled.Tokens < 2000 || on.Source == "" || r.Delivered < 2000 {
			t.Errorf("%d tokens matched, %d pulled from %q, %d cached by the engine's count; want 0, and 2000 each",
				on.Matched, on.Pulled.Tokens, on.Source, r.Delivered)
		}
		if want := " pulled from " + string(on.Source); !strings.Contains(r.Reason, want) {
			t.Errorf("the reason is %q, want %q in it", r.Reason, want)
		}
	})
}

// Nothing is pulled without the setting, nor by the literal formula, which knows no seconds.
func TestNothingIsPulled(t *testing.T) {
	for name, change := range map[string]func(s *setup){
		"no port": func(s *setup) { s.config = func(c *config.Config) { c.Local = config.LocalNever } },
		"raw units": func(s *setup) {
			with := s.config
			s.config = func(c *config.Config) { with(c); c.Experimental.Scoring.Units = config.Raw }
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := withP2P()
			change(&s)
			in(t, s, func(w *world) {
				w.prefillOnP1()
				p := prefixed("second")
				w.exact(p, w.ask(p))
				if leg := w.legOf(w.p[1]); leg == "" || strings.Contains(leg, "remote_kv_source") {
					t.Errorf("the prefill leg is %.300s", leg[max(0, len(leg)-300):])
				}
			})
		})
	}
}

// A gateway sends the legs itself, and does not ask for a pull: no plan counts on it.
func TestAPickPullsNothing(t *testing.T) {
	in(t, withP2P(), func(w *world) {
		w.prefillOnP1()
		w.pick(prefixed("second"), &gateway{say: []any{errGateway}}, 0)
		if on := w.newest().Decision.Plans[0].OnPrefill; on == nil || on.Pulled.Tokens != 0 {
			t.Errorf("the plan is %+v, want a prefill that pulls nothing", on)
		}
	})
}

// An engine whose core stands still never answers the question for blocks, and the question has no time
// limit. The leg is given up, and the prompt is computed.
func TestASourceThatStandsStill(t *testing.T) {
	for _, kind := range []string{"freeze_core", "freeze", "restart"} {
		t.Run(kind, func(t *testing.T) {
			in(t, withP2P(), func(w *world) {
				w.prefillOnP1()
				fault(enginesim.Fault{Kind: kind, For: 40 * time.Second})(w, w.p[0])
				began := time.Now()
				p := prefixed("second")
				w.exact(p, w.ask(p))
				failed := w.newest().Failed
				if kind == "freeze_core" && (len(failed) != 1 || failed[0].At != "p0.internal:8000") {
					t.Errorf("the failed attempts are %+v, want one that blames the source", failed)
				}
				if took := time.Since(began); took > 25*time.Second {
					t.Errorf("the answer took %v, want at most 25 s", took)
				}
				time.Sleep(time.Minute) // p0 goes on, and its late answer finds nobody
			})
		})
	}
}
