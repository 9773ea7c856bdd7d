package orchestrator

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// verifyLease decides whether the beginning of an answer was computed from the prompt's own blocks. It is
// called before any part of the answer is used.
//
// An answer that begins before a lease can have ended is right. A later answer is right if the prefill engine
// has ended no lease since, or if no engine has read from an ended lease. Otherwise the answer is not used,
// and the next attempt is not split.
//
// While both engines live, heartbeats keep the lease. A decode engine whose core stands still sends none, but
// its API process answers /metrics as before. When the core continues, it reads blocks that the prefill
// engine has given to other requests: 200 with wrong text, seen on vLLM 0.32.
func (a *answer) verifyLease() *failure {
	h := a.h
	if !a.mayCorrupt() || h.prefillLeg.age(a.j.clock, time.Now()) < a.j.cfg.Connector.Lease {
		return nil
	}
	h.clock.stop() // each of the following questions has its own time limit
	a.guard.Stop()
	verdict := a.readInTime(a.ctx)
	a.j.m.Handoffs.Late.WithLabelValues(verdict).Inc()
	if verdict == "believed" {
		return nil
	}
	return refuse(kindLate, site{phase: phaseDecode, at: h.b.Decode.ID, source: h.b.Prefill.ID})
}

// mayCorrupt reports whether the decode engine reads blocks under a lease, and also reads them too late.
func (a *answer) mayCorrupt() bool {
	return a.h.sentParams && a.j.connect.Traits().Late == connector.Corrupts
}

// readInTime asks the prefill engine whether a decode engine may have read blocks after the end of their
// lease. It returns believed, disbelieved, or unknown.
func (a *answer) readInTime(ctx context.Context) string {
	h := a.h
	from, before := h.prefillLeg.from, h.prefillLeg.leaseCounters
	now, err := askLeaseCounters(ctx, a.j.cfg, from, before)
	if err == nil && now.Expired != before.Expired && now.Late == before.Late {
		// The lease of some request has ended. The prefill engine knows of late reads only after their
		// notifications have arrived.
		if err = a.wordsHeard(ctx); err == nil {
			now, err = askLeaseCounters(ctx, a.j.cfg, from, before)
		}
	}
	switch {
	case err != nil:
		return "unknown"
	case now.Expired == before.Expired, now.Late == before.Late:
		return "believed"
	case math.IsNaN(now.Late):
		return "unknown"
	}
	return "disbelieved"
}

var (
	// errOtherProcess says that the engine has restarted since the earlier question: its counters say nothing
	// about the prompt's blocks.
	errOtherProcess = errors.New("the engine was restarted")
	errReadFailed   = errors.New("the decode engine failed to read some blocks, of whomever")
)

// askLeaseCounters returns the engine's present counters, if the engine is still the process that counted
// then.
func askLeaseCounters(
	ctx context.Context, cfg *config.Config, to *fleet.Endpoint, then *fleet.LeaseCounters,
) (*fleet.LeaseCounters, error) {
	ctx, cancel := context.WithTimeout(ctx, fleet.ProbePatience*cfg.Timeouts.Probe)
	defer cancel()
	now, err := to.AskLeaseCounters(ctx)
	if err != nil {
		return nil, err
	}
	if !now.SameProcess(then) {
		return nil, errOtherProcess
	}
	return now, nil
}

// wordsHeard returns nil if the prefill engine has received the notifications of all earlier reads of the
// decode engine. A decode engine sends a notification with each read and considers it sent when it leaves the
// socket. If the path is cut just then, the notification is under way for as long as TCP tries. If the
// connection ends, it is lost.
//
// So a canary is sent on the same path after the notifications, see [trials.Trials.Follow]. A new connection
// would be noticed: vLLM opens one only after a read over the old one has failed.
func (a *answer) wordsHeard(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, a.j.cfg.Timeouts.DecodeFirst)
	defer cancel()
	if err := a.j.trials.Follow(ctx, a.h.prefillLeg.from, a.to); err != nil {
		return err
	}
	reads, err := askLeaseCounters(ctx, a.j.cfg, a.to, a.before.reads)
	if err == nil && reads.Failed != a.before.reads.Failed {
		err = errReadFailed
	}
	return err
}

// maybeDistrust distrusts the decode engine of a split attempt that failed, if this engine may have read
// blocks that the prefill engine had given to others.
func (a *answer) maybeDistrust(f *failure) {
	h := a.h
	var still *unresponsive
	switch {
	case !a.mayCorrupt() || f.unused():
	case f.kind == kindLate, errors.As(f.err, &still) && still.at == a.to.Member.ID && !still.sleep:
		// This engine may continue in the middle of a read.
		a.to.Distrust(a.before.era, f)
	case h.prefillLeg.age(a.j.clock, time.Now()) >= a.j.cfg.Connector.Lease:
		// The queue is long, or the core stands still and has not read yet. The counters of leases decide.
		e := a.j.env
		e.giveBacks.running.Go(func() { // joined by Run, ended by a timeout
			late := true // also if the counters cannot be read
			e.panics.Contain("distrust", func() {
				now, err := askLeaseCounters(context.Background(), a.j.cfg, h.prefillLeg.from, h.prefillLeg.leaseCounters)
				late = err != nil || now.Expired != h.prefillLeg.leaseCounters.Expired
			})
			if late {
				e.panics.Contain("distrust", func() { a.to.Distrust(a.before.era, f) })
			}
		})
	}
}
