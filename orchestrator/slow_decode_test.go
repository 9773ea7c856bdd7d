package orchestrator

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// throng keeps atOnce chats of 40 tokens running until the time is over. Of the chats that came after
// settled, it returns how many went to the decode replica to, and how many there are.
func (w *world) throng(
	atOnce, from int, streamed func(n int) bool, until, settled time.Duration, to *simulated,
) (there, all int) {
	began := time.Now()
	var wg sync.WaitGroup
	for c := range atOnce {
		wg.Go(func() {
			for i := from + c; time.Since(began) < until; i += atOnce {
				p := nthChat(i, streamed(i))
				p.body = strings.Replace(p.body, `"max_tokens":12`, `"max_tokens":40`, 1)
				if got := w.ask(p); got.status != http.StatusOK || got.err != nil || got.text == "" {
					w.t.Errorf("chat %d: status %d, %v", i, got.status, got.err)
				}
			}
		})
	}
	wg.Wait()
	for _, r := range w.o.ring.Newest(10_000) {
		if r.Time.Before(began.Add(settled)) {
			continue
		}
		all++
		if r.Decode == to.addr {
			there++
		}
	}
	return there, all
}

// beforeAnyEnds is less than the duration of 40 steps that are twenty times slower.
const beforeAnyEnds = 7 * time.Second

// A decode replica becomes twenty times slower. The router avoids it long before any answer of it has
// ended, however many requests run: its streams show it within a few steps. For answers without streams,
// the streams beside them show it. Steps with a prefill show nothing, so the time until it is known
// depends on how many prompts went there first, which differs between runs. It is always less than the
// duration of an answer of 40 slow steps.
func TestASlowDecodeReplicaIsSeenByItsStreams(t *testing.T) {
	every := func(n int) func(int) bool { return func(i int) bool { return i%n == 0 } }
	for _, tt := range []struct {
		name     string
		streamed func(int) bool
		local    string
		atOnce   int
		known    time.Duration // the time until the slowness is known
	}{
		{"four streams", every(1), config.LocalAuto, 4, 5 * time.Second},
		{"twelve streams", every(1), config.LocalAuto, 12, beforeAnyEnds},
		{"twelve streams, all split", every(1), config.LocalNever, 12, 4 * time.Second},
		{"twelve answers, every second a stream", every(2), config.LocalAuto, 12, beforeAnyEnds},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in(t, setup{config: func(c *config.Config) {
				c.Local, c.Timeouts.Answer = tt.local, time.Minute
				c.Pools.Decode.PollInterval, c.Pools.Prefill.PollInterval = time.Second, time.Second
			}}, func(w *world) {
				w.throng(tt.atOnce, 0, tt.streamed, 2*time.Second, 0, w.d[0])
				fault(enginesim.Fault{Kind: "slow", Factor: 20})(w, w.d[0])
				there, all := w.throng(tt.atOnce, 100_000, tt.streamed, tt.known+6*time.Second, tt.known, w.d[0])
				if there > 0 && there*30 > all {
					t.Errorf("%d of the %d requests after %v went to the slow replica",
						there, all, tt.known)
				}
				if all < 10 {
					t.Errorf("only %d requests: this test shows nothing", all)
				}
				fault(enginesim.Fault{Kind: "clear"})(w, w.d[0])
				// The request that tests the replica may lose at most a tenth of the time since its last measurement.
				time.Sleep(2 * time.Minute)
				there, all = w.throng(tt.atOnce, 200_000, tt.streamed, 5*time.Second, 2*time.Second, w.d[0])
				if there*4 < all {
					t.Errorf("%d of %d requests went to the replica after it became fast again, want about half",
						there, all)
				}
			})
		})
	}
}
