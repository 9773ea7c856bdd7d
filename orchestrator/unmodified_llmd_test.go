package orchestrator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// guide is what tests change about the engines of llm-d's guide, which have one rank on prefill, four on
// decode and no prompt-token details.
type guide struct {
	details         bool
	prefill, decode int // ranks
}

// llmd sets engines up as llm-d's guide does: a hybrid model, blocks of 128 tokens and no KV events. The
// configuration names no index.
func llmd(g guide) setup {
	return setup{prefill: 2, decode: 1, engine: func(name string, o *enginesim.Options) {
		o.Core.BlockSize, o.ScaleOut = 128, false
		o.Core.TensorParallel = g.decode
		if strings.HasPrefix(name, "p") {
			o.Core.TensorParallel = g.prefill
		}
		o.NoUsageDetails = !g.details
		o.Core.Groups = []core.Group{{Kind: "sliding_window", Window: 128}, {Kind: "full_attention"}}
	}, options: func(o *Options) { o.NoEvents = false }}
}

// The router chooses the approximate index for llm-d's unmodified engines by itself. Later turns of a
// conversation go where the first one was, with at most one block too many predicted: these engines compute
// the last block of a prompt again. When the caches are lost, what the engines report corrects the index.
// Without details in usage, the transfer parameters of the prefill engine report.
func TestUnmodifiedEnginesOfLLMD(t *testing.T) {
	for _, g := range []guide{{true, 1, 1}, {false, 1, 4}, {true, 1, 4}, {false, 4, 1}} {
		t.Run(fmt.Sprintf("%+v", g), func(t *testing.T) {
			in(t, llmd(g), func(w *world) {
				w.undrawn()
				w.guideIsApproximated()
				first := map[string]string{}
				for n := 1; n <= 3; n++ {
					for _, c := range conversations {
						place, predicted, delivered := w.longTurn(c, n)
						if n == 1 {
							first[c] = place
							continue
						}
						over := predicted - delivered
						if place != first[c] || delivered <= 0 || delivered%128 != 0 || over != 0 && over != 128 {
							t.Errorf("turn %d of %s: at %s with %d tokens predicted and %d delivered, first turn at %s",
								n, c, place, predicted, delivered, first[c])
						}
					}
				}
				if len(distinct(first)) < 2 {
					t.Error("every conversation went to one replica: the test shows nothing")
				}
				if n := w.d[0].Stats()[0].NixlTransfers; n == 0 || n%uint64(max(g.prefill, g.decode)) != 0 {
					t.Errorf("%d transfers, want some of each rank", n)
				}
				for _, e := range w.p {
					w.send(w.t.Context(), e.addr, prompt{path: "/reset_prefix_cache"})
				}
				if _, predicted, delivered := w.longTurn("Ada", 2); predicted == 0 || delivered != 0 {
					t.Errorf("after the loss: %d tokens predicted, %d delivered", predicted, delivered)
				}
				if _, predicted, delivered := w.longTurn("Ada", 3); delivered <= 0 || predicted != delivered {
					t.Errorf("corrected: %d tokens predicted, %d delivered", predicted, delivered)
				}
			})
		})
	}
}

// guideIsApproximated wants the status to say of each replica that it is approximated, and why.
func (w *world) guideIsApproximated() {
	w.t.Helper()
	for _, s := range w.o.State().Status().Replicas {
		book, err := json.Marshal(s.Book)
		if err != nil || !bytes.Contains(book, []byte(`"index":"approximate"`)) ||
			!bytes.Contains(book, []byte("publishes no events")) {
			w.t.Errorf("%s: %s", s.Name, book)
		}
	}
}

// longTurn asks the n-th turn of a conversation of several blocks each, and returns where it was prefilled,
// and how many cached tokens were predicted and delivered. The answer must be exact.
func (w *world) longTurn(conversation string, n int) (place string, predicted, delivered int) {
	w.t.Helper()
	p := prompt{path: "/v1/completions", body: `{"model":"sim","max_tokens":4,"temperature":0,"prompt":"` +
		strings.Repeat(conversation+" asks ", n*200) + `"}`}
	w.exact(p, w.ask(p))
	forgetful()
	r := w.o.ring.Newest(1)[0]
	return r.Prefill, r.Captured, r.Delivered
}

// One prefill replica of two has more ranks than its model has KV heads, and the decode replicas have fewer
// ranks. vLLM refuses such pairs at the handshake, and no engine says its ranks beforehand. No client sees a
// refusal: the router retries, and ejects what refuses.
func TestPairsWhoseRanksRefuse(t *testing.T) {
	s := llmd(guide{prefill: 1, decode: 4})
	s.decode = 2
	usual := s.engine
	s.engine = func(name string, o *enginesim.Options) {
		usual(name, o)
		if o.Core.KVHeads = 4; name == "p1" {
			o.Core.TensorParallel = 8
		}
	}
	synctest.Test(t, func(t *testing.T) { // without an end in which nothing is held: trials go on
		w := newWorld(t, s)
		defer w.close()
		w.crowd(40, 4, 0).want(t, "40 chats", 0)
		out := w.count("tandem_ejections_total", w.p[1].addr) + w.count("tandem_pair_ejections_total", w.p[1].addr)
		if out == 0 {
			t.Error("nothing of the refused replica was ejected")
		}
		all := w.count("tandem_ejections_total", "") + w.count("tandem_pair_ejections_total", "")
		if all != out {
			t.Errorf("%d ejections, and only %d of the refused replica", all, out)
		}
		w.crowd(40, 4, 100).want(t, "40 chats more", 0)
		for _, d := range w.d {
			if n := d.Stats()[0].NixlTransfers; n == 0 || n%4 != 0 || d.Dead() != nil {
				t.Errorf("%s: %d transfers, dead %v", d.addr, n, d.Dead())
			}
		}
	})
}
