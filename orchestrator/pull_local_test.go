package orchestrator

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// pullsLocally is withP2P with decode replicas that compute all prompts themselves.
func pullsLocally(more func(*config.Config)) setup {
	s := withP2P()
	with := s.config
	s.config = func(c *config.Config) {
		with(c)
		c.Local, c.Scoring.PrefillPiece = config.LocalAlways, 10*time.Millisecond
		c.Timeouts.DecodeFirst, c.Timeouts.Answer = time.Minute, time.Minute
		if more != nil {
			more(c)
		}
	}
	return s
}

// asking returns which of the requests that an engine got asks another engine for blocks, and how many it
// got.
func (w *world) asking(e *simulated) (which []int, of int) {
	for _, s := range w.posts(false) {
		if s.engine != e.name {
			continue
		}
		if strings.Contains(s.body, `"remote_kv_source":{"kv_request_id":"`) &&
			strings.Contains(s.body, `.internal","remote_port":5710}`) {
			which = append(which, of)
		}
		of++
	}
	return which, of
}

// A decode replica that computes a prompt by itself pulls its beginning from a replica that has it. Only the
// first of its legs asks: a piece, or without pieces the request itself. The answer is the same.
func TestADecodeReplicaPullsItsPrefix(t *testing.T) {
	for name, of := range map[string]struct {
		p      prompt
		rest   string
		pieces int // at least
	}{
		"completion, no pieces": {completion(true), "", 0},
		"chat, no pieces":       {chat(true), "", 0},
		"completion":            {completion(true), "", 1},
		"chat":                  {chat(true), "", 1},
		"long rest":             {completion(true), words(1500), 3},
		"chat, long rest":       {chat(true), words(1500), 3},
		"no stream":             {completion(false), "", 1},
		"chat, no stream":       {chat(false), "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			more := func(c *config.Config) {
				if of.pieces == 0 {
					c.Scoring.PrefillPiece = 0
				}
			}
			in(t, pullsLocally(more), func(w *world) {
				w.prefixOn(w.d, prefixedOf(of.p, "first"))
				p := prefixedOf(of.p, "second"+of.rest)
				got := w.ask(p)
				w.exact(p, got)
				which, legs := w.asking(w.d[1])
				if len(which) != 1 || which[0] != 0 || legs-1 < of.pieces || of.pieces == 0 && legs != 1 {
					t.Errorf("of %d legs those ask for blocks: %v; want the first of at least %d", legs, which, of.pieces+1)
				}
				r := w.newest()
				on := r.Decision.Plans[0].OnDecode
				if on.Matched != 0 || on.Pulled.Tokens < 2000 || on.Source != "d0.internal:8000" || r.Pieces < of.pieces {
					t.Errorf("%d tokens matched, %d pulled from %q, %d pieces; want 0, 2000 and at least %d",
						on.Matched, on.Pulled.Tokens, on.Source, r.Pieces, of.pieces)
				}
				if got.usage.Details.Cached < 2000 || r.Delivered < 2000 {
					t.Errorf("%d tokens cached by the answer and %d by the record, want 2000",
						got.usage.Details.Cached, r.Delivered)
				}
				if want := " pulled from d0.internal:8000"; !strings.Contains(r.Reason, want) {
					t.Errorf("the reason is %q, want %q in it", r.Reason, want)
				}
			})
		})
	}
}

// An answer whose begin nobody sees pulls only by a piece; without pieces it pulls nothing. Of several
// sequences, each would put the same question.
func TestNothingIsPulledUnwatched(t *testing.T) {
	twice := completion(true)
	twice.body = strings.Replace(twice.body, `"temperature":0`, `"temperature":1,"seed":3,"n":2`, 1)
	for name, p := range map[string]prompt{
		"no stream": completion(false), "two sequences": twice,
	} {
		t.Run(name, func(t *testing.T) {
			in(t, pullsLocally(func(c *config.Config) { c.Scoring.PrefillPiece = 0 }), func(w *world) {
				w.prefixOn(w.d, prefixedOf(p, "first"))
				p := prefixedOf(p, "second")
				w.exact(p, w.ask(p))
				which, legs := w.asking(w.d[1])
				if on := w.newest().Decision.Plans[0].OnDecode; len(which) > 0 || legs != 1 || on.Pulled.Tokens > 0 {
					t.Errorf("legs %v of %d ask for blocks, and the plan has %+v", which, legs, on.Pulled)
				}
			})
		})
	}
}

// A gateway sends the request itself, without the name of a source.
func TestAPickPullsNothingLocally(t *testing.T) {
	in(t, pullsLocally(nil), func(w *world) {
		w.prefixOn(w.d, prefixedOf(completion(true), "first"))
		w.pick(prefixedOf(completion(true), "second"), &gateway{say: []any{errGateway}}, 0)
		if on := w.newest().Decision.Plans[0].OnDecode; on.Pulled.Tokens != 0 {
			t.Errorf("the plan is %+v, want no pull", on)
		}
	})
}

// A source that stands still holds up neither a request of its own nor a piece: the leg is given up, and the
// next attempt pulls nothing, and does not go to the source.
func TestASourceThatStandsStillHoldsNoLocalPrefill(t *testing.T) {
	for name, p := range map[string]prompt{
		"no pieces": prefixedOf(completion(true), "second"),
		"piece":     prefixedOf(completion(true), "second"+words(1500)),
		"no stream": prefixedOf(completion(false), "second"),
	} {
		for _, kind := range []string{"freeze_core", "freeze", "restart"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				more := func(c *config.Config) {
					if name == "no pieces" {
						c.Scoring.PrefillPiece = 0
					}
				}
				in(t, pullsLocally(more), func(w *world) {
					w.prefixOn(w.d, prefixedOf(completion(true), "first"))
					fault(enginesim.Fault{Kind: kind, For: 40 * time.Second})(w, w.d[0])
					if kind == "freeze_core" { // then only the failed attempt keeps the next one away from d0
						time.AfterFunc(time.Second, func() { w.undrain(w.d[0]) })
					}
					began := time.Now()
					w.exact(p, w.ask(p))
					r := w.newest()
					if kind == "freeze_core" && (len(r.Failed) != 1 || r.Failed[0].At != "d0.internal:8000" ||
						r.Failed[0].Kind != "source_silent" || r.Decode != "d1.internal:8000") {
						t.Errorf("%+v failed, and %s answered; want one attempt that blames the source, and d1",
							r.Failed, r.Decode)
					}
					if took := time.Since(began); took > 25*time.Second {
						t.Errorf("the answer took %v, want at most 25 s", took)
					}
					time.Sleep(time.Minute) // d0 goes on, and its late answer finds nobody
				})
			})
		}
	}
}
