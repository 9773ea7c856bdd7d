package enginesim

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/kvevents"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// rank is one engine core, with the goroutine that drives the core in real time, and the side channel for
// peers.
//
// Long: a rank has as many parts in vLLM.
type rank struct {
	srv    *Server
	n      int
	began  time.Time
	wake   chan struct{} // capacity 1
	open   atomic.Int32  // requests in the core
	side   *side
	p2p    *side // of the P2P tier; nil for none
	events rankEvents
	cfg    core.Config // the core's configuration at its start

	handshakes moriioHandshakes

	mu    sync.Mutex // guards the following
	core  *core.Engine
	deaf  bool              // the thread that answers handshakes has died
	sinks map[string]target // by internal request id
}

// rankEvents publishes a rank's events.
type rankEvents struct {
	pub  atomic.Pointer[kvevents.Publisher] // nil without events or while the process is down
	bind kvevents.PublisherOptions          // addresses of pub, with real ports; written by start only
}

func (r *rank) now() time.Duration { return time.Since(r.began) }

func (r *rank) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// add adds a request to the core. Its outputs go to the sink.
func (r *rank) add(q *core.Request, to target) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.core.Add(r.now(), q); err != nil {
		return err
	}
	r.sinks[q.ID] = to
	r.open.Add(1)
	r.poke()
	return nil
}

// abort ends a request that is still in the core. The request gets no outputs afterwards.
func (r *rank) abort(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.sinks[id]; !ok {
		return
	}
	r.forget(id)
	r.core.Abort(r.now(), id)
	r.poke()
}

// forget needs mu.
func (r *rank) forget(id string) {
	delete(r.sinks, id)
	r.open.Add(-1)
}

// reject tells the core that the API layer refused a request with these params.
func (r *rank) reject(t *core.Transfer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.core.Reject(r.now(), t)
	r.poke()
}

func (r *rank) stats() core.Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.Stats()
}

func (r *rank) histograms() []core.Histogram {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.Histograms()
}

// drive steps the core until ctx ends. A step's events go out before its outputs: a subscriber knows a block
// before the client has the answer.
func (r *rank) drive(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		r.srv.waitEngineFrozen(ctx.Done())
		r.mu.Lock()
		now := r.now()
		step := r.core.Step(now)
		dead := r.core.Dead()
		r.mu.Unlock()
		if dead != nil {
			r.srv.die(dead)
		}
		r.meetInStep(ctx, step.Orders)
		sleep(ctx, step.Took)
		r.publish(step.Events)
		r.deliver(step.Outputs)
		r.execute(ctx, step.Orders)
		if step.Idle {
			r.rest(ctx, timer, step.Wake)
		}
	}
}

// rest waits for a call of poke, or until the time at which the core needs a step.
func (r *rank) rest(ctx context.Context, timer *time.Timer, until time.Duration) {
	var due <-chan time.Time
	if until > 0 {
		timer.Reset(max(until-r.now(), 0))
		due = timer.C
	}
	select {
	case <-r.wake:
	case <-due:
	case <-ctx.Done():
	}
}

func (r *rank) publish(events []kv.Event) {
	if len(events) == 0 {
		return
	}
	b := kvevents.EncodeBatch{At: r.srv.now(), Rank: r.n, Events: r.srv.o.Wrong.told(events)}
	if f := r.srv.o.OnEvents; f != nil {
		f(&b)
	}
	r.srv.faults.publish(r, &b)
}

// deliver passes outputs to their sinks and wakes each sink once.
func (r *rank) deliver(outs []core.Output) {
	if len(outs) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range outs {
		o := &outs[i]
		to, ok := r.sinks[o.ID]
		if !ok {
			continue
		}
		if o.Finished {
			r.forget(o.ID)
		}
		d := delivery{seq: to.seq, out: *o}
		if o.Params != nil {
			d.params = r.srv.appendTransfer(nil, o.Params)
			d.out.Params = nil
		}
		to.sink.mu.Lock()
		to.sink.got = append(to.sink.got, d)
		to.sink.mu.Unlock()
		to.sink.signal()
	}
}

// failAll ends every request with p. The caller must not hold mu.
func (r *rank) failAll(p *problem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, to := range r.sinks {
		r.forget(id)
		to.sink.mu.Lock()
		to.sink.fail = p
		to.sink.mu.Unlock()
		to.sink.signal()
	}
}

// restart replaces the process by a new one: requests are cut, the cache is empty, the engine id changes, and
// events begin at 0.
func (r *rank) restart() {
	r.failAll(restarted)
	r.mu.Lock()
	r.core.Restart()
	r.deaf = false
	r.mu.Unlock()
	r.side.cut()
	if r.p2p != nil {
		r.p2p.cut()
	}
	if p := r.events.pub.Load(); p != nil {
		p.Restart()
	}
	r.poke()
}
