package orchestrator

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// The engine of a stream breaks off while the queue is full. The stream waits for room all the same: it
// was admitted before.
func TestAStreamGoesOnThoughTheQueueIsFull(t *testing.T) {
	s := setup{
		prefill: 1, decode: 2,
		config: func(c *config.Config) { c.Scoring.ExpectedOutput, c.Limits.Queue = fullForLong, 1 },
		engine: func(name string, o *enginesim.Options) {
			if name[0] == 'd' {
				o.Core.Blocks = 30
			}
		},
	}
	in(t, s, func(w *world) {
		p := greedy("/v1/completions", 12, "")
		w.dies(enginesim.Fault{Kind: "cut_stream", After: 4}, enginesim.Fault{})
		first := w.begin(p)
		time.Sleep(time.Millisecond)
		second := w.begin(p)
		time.Sleep(time.Millisecond)
		third := w.begin(p) // waits
		time.Sleep(time.Millisecond)
		w.same(p, first.end())
		w.same(p, second.end())
		w.same(p, third.end())
	})
}

// The only replica that could continue a stream stays full for longer than timeouts.queue. The stream
// waits as long as a request waits for a first token.
func TestAStreamGoesOnBehindTheQueueDeadline(t *testing.T) {
	s := narrow(func(c *config.Config) { c.Timeouts.Queue = 100 * time.Millisecond })
	s.decode = 2
	s.engine = func(name string, o *enginesim.Options) {
		if name[0] == 'd' {
			o.Core.Blocks = 30
		}
	}
	in(t, s, func(w *world) {
		at := ""
		w.at("decode", func(replica string) {
			w.at("decode", nil)
			at = replica
		})
		p, other := greedy("/v1/completions", 12, ""), greedy("/v1/completions", 50, "")
		var second *pending
		w.same(p, w.ask(p, func(event int) {
			switch event {
			case 1:
				second = w.begin(other)
			case 6:
				vanish(w, w.by(at))
			}
		}))
		w.same(other, second.end())
		if n := w.count("tandem_continued_total", wentOn); n != 1 {
			t.Errorf("%d streams were continued, want 1", n)
		}
	})
}

// limits.first_token no longer applies after a stream has begun: a continuation that waits behind another
// prompt is not refused.
func TestAStreamGoesOnBehindItsFirstToken(t *testing.T) {
	s := setup{prefill: 1, decode: 2, config: func(c *config.Config) {
		c.Limits.FirstToken = 414 * time.Millisecond
		c.Experimental.Scoring.Speed = config.Speed{Prefill: 1000, Local: 1000, Decode: 1000}
	}}
	in(t, s, func(w *world) {
		w.dies(enginesim.Fault{Kind: "cut_stream", After: 4}, enginesim.Fault{}, enginesim.Fault{})
		asked := func(seed, n int) prompt {
			return post("/v1/completions",
				`{"model":"sim","max_tokens":12,"temperature":0,"stream":true,"prompt":`+idPrompt(seed, n)+`}`)
		}
		p, other := asked(1, 150), asked(2, 390)
		var before *pending
		w.at("continue", func(string) {
			before = w.begin(other)
			time.Sleep(time.Millisecond) // by then the other request has a plan
		})
		got := w.ask(p)
		w.same(p, got)
		w.same(other, before.end())
		if n := w.count("tandem_continued_total", wentOn); n != 1 {
			t.Errorf("%d streams were continued, want 1", n)
		}
	})
}

// manyPrompts returns one request with n prompts; n is more than the router sends at once.
func manyPrompts(n, long int, stream bool) prompt {
	var all []string
	for i := range n {
		all = append(all, `"`+words(long+i)+`"`)
	}
	return post("/v1/completions", `{"model":"sim","max_tokens":12,"temperature":0,`+streaming(stream)+
		`"prompt":[`+strings.Join(all, ",")+`]}`)
}

// The prompts of a batch are one request. After the batch has begun, a draining router still serves its
// remaining prompts.
func TestABatchThatHasBegunGoesOn(t *testing.T) {
	for _, stream := range []bool{false, true} {
		in(t, setup{}, func(w *world) {
			p := manyPrompts(batchWidth+8, 20, stream)
			batch := w.begin(p)
			time.Sleep(50 * time.Millisecond)
			w.o.Drain()
			got := batch.end()
			if want := w.right(p); got.status != 200 || got.fail.Message != "" || len(got.text) != len(want.text) {
				t.Errorf("status %d, %.300s", got.status, got.raw)
			}
		})
	}
}

// A batch is accepted or refused as a whole: no limit refuses a prompt because of the other prompts of its
// batch.
func TestABatchThatHasBegunIsRefusedByNoLimit(t *testing.T) {
	limits := map[string]func(*config.Config){
		"queue":          func(c *config.Config) { c.Limits.Queue = 1 },
		"timeouts.queue": func(c *config.Config) { c.Timeouts.Queue = 200 * time.Millisecond },
		"first_token":    func(c *config.Config) { c.Limits.FirstToken = 150 * time.Millisecond },
	}
	for name, limit := range limits {
		t.Run(name, func(t *testing.T) {
			in(t, narrow(limit), func(w *world) {
				p := manyPrompts(5, 100, false)
				w.exact(p, w.ask(p))
			})
		})
	}
}
