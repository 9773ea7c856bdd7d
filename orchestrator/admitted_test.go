package orchestrator

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// A stream whose engine breaks off finds the queue full of others: it waits for room all the same, since it
// has been admitted before.
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

// The only replica that could continue a stream is full for longer than requests wait for room: the client
// waits as long as for a first token.
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
			t.Errorf("%d streams went on, want 1", n)
		}
	})
}

// limits.first_token ends when a stream has begun: it does not refuse the rest of the stream, which waits
// behind another prompt.
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
			time.Sleep(time.Millisecond) // it is planned by then
		})
		got := w.ask(p)
		w.same(p, got)
		w.same(other, before.end())
		if n := w.count("tandem_continued_total", wentOn); n != 1 {
			t.Errorf("%d streams went on, want 1", n)
		}
	})
}

// manyPrompts is a request of more prompts than are on their way at once.
func manyPrompts(n, long int, stream bool) prompt {
	var all []string
	for i := range n {
		all = append(all, `"`+words(long+i)+`"`)
	}
	return post("/v1/completions", `{"model":"sim","max_tokens":12,"temperature":0,`+streaming(stream)+
		`"prompt":[`+strings.Join(all, ",")+`]}`)
}

// The prompts of a batch are one request: a router that drains, and a queue that is full, let those that have
// not begun yet go on as those that have.
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

// A batch is taken or refused as a whole: none of its prompts is refused for those that came with it.
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
