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

// throng keeps so many chats of 40 tokens under way until the time is over, and returns how many of those
// that came later than settled were sent to a decode replica, and how many they are.
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

// beforeAnyEnds is before 40 steps that are twenty times slower are over.
const beforeAnyEnds = 7 * time.Second

// A decode replica that has become twenty times slower is avoided long before it has answered anything to
// its end, however many requests are under way: its streams show it, some steps after the first of them
// has begun there. Beside answers that are not streamed the others tell. While the replica computes prompts
// itself its steps tell nothing, so that how long it takes to be known goes by how many of those came to it
// first, which differs from run to run; yet it is before the first answer of 40 slow steps has ended.
func TestASlowDecodeReplicaIsSeenByItsStreams(t *testing.T) {
	every := func(n int) func(int) bool { return func(i int) bool { return i%n == 0 } }
	for _, tt := range []struct {
		name     string
		streamed func(int) bool
		local    string
		atOnce   int
		known    time.Duration // until it is known
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
					t.Errorf("%d of the %d requests that came later than %v went to the slow replica",
						there, all, tt.known)
				}
				if all < 10 {
					t.Errorf("%d requests: this test tests nothing", all)
				}
				fault(enginesim.Fault{Kind: "clear"})(w, w.d[0])
				// The request that tests it must lose no more than a tenth of the time since it was measured.
				time.Sleep(2 * time.Minute)
				there, all = w.throng(tt.atOnce, 200_000, tt.streamed, 5*time.Second, 2*time.Second, w.d[0])
				if there*4 < all {
					t.Errorf("%d of %d requests went to it when it was as fast as the other one again, want about half",
						there, all)
				}
			})
		})
	}
}
