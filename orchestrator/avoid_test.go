package orchestrator

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// ailing makes one replica of each pool fail its attempts in random ways, and makes some handoffs too
// late.
type ailing struct {
	w    *world
	mu   sync.Mutex // guards the following
	rnd  *rand.Rand
	ill  map[string]bool
	late int // how many handoffs may still be too late
}

// fail disturbs the attempt that reaches this replica now, if the replica is ill.
func (x *ailing) fail(at string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.ill[at] || x.rnd.IntN(5) == 0 {
		return
	}
	e := x.w.by(at)
	switch x.rnd.IntN(4) {
	case 0:
		vanish(x.w, e)
		later(time.Duration(x.rnd.IntN(400))*time.Millisecond,
			func(w *world, e *simulated) { w.net.Refuse(e.addr, false) })(x.w, e)
	case 1:
		reset(x.w, e)
	case 2:
		fail(500)(x.w, e)
	case 3:
		fail(503)(x.w, e)
	}
}

// handOver makes some handoffs take longer than KV transfer params are valid.
func (x *ailing) handOver(string) {
	x.mu.Lock()
	tooLate := x.late > 0 && x.rnd.IntN(4) == 0
	if tooLate {
		x.late--
	}
	x.mu.Unlock()
	if tooLate {
		time.Sleep(16 * time.Second)
	}
}

// In each pool one replica works, and the other fails every request or dies and comes back. A request
// finds the two that work after any number of retries, whatever its failures were blamed on. No client
// hears that no replica is left.
func TestARequestFindsTheReplicasThatWork(t *testing.T) {
	often := func(c *config.Config) {
		c.Retry.Min, c.Retry.Attempts = 64, 10
		c.Pools.Prefill.PollInterval, c.Pools.Decode.PollInterval = time.Second, time.Second
		c.Health.Ejection.Failures = 0 // otherwise the router would soon know and avoid the ill replica
	}
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			in(t, setup{config: often}, func(w *world) {
				x := &ailing{w: w, rnd: rand.New(rand.NewPCG(seed, 1)), late: 2}
				x.ill = map[string]bool{w.p[x.rnd.IntN(2)].addr: true, w.d[x.rnd.IntN(2)].addr: true}
				w.at("prefill", x.fail)
				w.at("decode", x.fail)
				w.at("handoff", x.handOver)
				for i := range 4 {
					p := nthChat(int(seed)*10+i, i%2 == 0)
					w.exact(p, w.ask(p))
					for _, e := range w.all() {
						fault(enginesim.Fault{Kind: "clear"})(w, e)
					}
					time.Sleep(2 * time.Second)
				}
			})
		})
	}
}

// If no other replica is left, the replica of the newest attempt is tried again, but only after a while:
// the request may have waited long for room, and the replica may be another process by then.
func TestWhoFailedIsAskedAgainAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &job{}
		j.attempts.avoid(&j.plan, "d0", replica.Decode, false)
		j.attempts.tries = 1
		none := &planner.NoReplica{Pool: "decode"}
		time.Sleep(notAtOnce - time.Millisecond)
		if j.attempts.relent(&j.plan, none) || len(j.plan.AvoidDecode) != 1 {
			t.Error("the replica is tried again at once")
		}
		time.Sleep(time.Millisecond)
		if !j.attempts.relent(&j.plan, none) || len(j.plan.AvoidDecode) != 0 {
			t.Error("the replica is not tried again, though no other is left")
		}
	})
}

// A retry waits for room on the other decode replica for longer than predicted, so that it is first of its
// line. A new request with room on the first replica goes there at once all the same.
func TestARetryKeepsNoOtherRequestFromRoom(t *testing.T) {
	in(t, setup{}, func(w *world) {
		empty := replica.ID(w.d[0].addr)
		come := func(a *admission, avoid ...replica.ID) error {
			j := &job{env: &w.o.env, plan: planner.Request{Model: "sim", AvoidDecode: avoid}}
			return a.enter(w.t.Context(), entry{patience: 10 * time.Second, place: j.place, try: func() outcome {
				if slices.Contains(avoid, empty) {
					return outcome{verdict: waitsInLine, room: 5 * time.Second, every: time.Second}
				}
				return outcome{verdict: goesOn}
			}})
		}
		a, retry := newAdmission(10), make(chan error)
		go func() { retry <- come(a, empty) }()
		time.Sleep(6 * time.Second)
		began := time.Now()
		if err := come(a); err != nil || time.Since(began) > 0 || a.length() != 1 {
			w.t.Errorf("the new request: %v after %v, %d requests wait; want nil at once, 1",
				err, time.Since(began), a.length())
		}
		if err := <-retry; !errors.Is(err, errQueueTime) {
			w.t.Errorf("the retry: %v", err)
		}
	})
}
