package orchestrator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// llmd sets engines up as llm-d's guide does: a hybrid model, blocks of 128 tokens and no KV events. The
// guide leaves prompt-token details out; details adds them. The configuration names no index.
func llmd(details bool) setup {
	return setup{prefill: 2, decode: 1, engine: func(_ string, o *enginesim.Options) {
		o.Core.BlockSize, o.ScaleOut = 128, false
		o.NoUsageDetails = !details
		o.Core.Groups = []core.Group{{Kind: "sliding_window", Window: 128}, {Kind: "full_attention"}}
	}, options: func(o *Options) { o.NoEvents = false }}
}

// The router chooses the approximate index for llm-d's unmodified engines by itself. Later turns of a
// conversation go where the first one was, with at most one block too many predicted: these engines compute
// the last block of a prompt again. When the caches are lost, what the engines report corrects the index.
// Without details in usage, the transfer parameters of the prefill engine report.
func TestUnmodifiedEnginesOfLLMD(t *testing.T) {
	for _, details := range []bool{false, true} {
		t.Run(fmt.Sprintf("details=%v", details), func(t *testing.T) {
			in(t, llmd(details), func(w *world) {
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
