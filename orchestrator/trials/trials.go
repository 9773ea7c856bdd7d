// Package trials brings back ejected replicas and pairs, each through a canary: a request of the router's
// own, whose answer is known.
//
// A canary takes the whole way of a split request and costs no client anything. So a trial notices a prefill
// engine without a connector, a decode engine that loads nothing, and a cut path.
package trials

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/panics"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// Options is what trials need. Every field must be set.
//
// Long: a field for each thing that the router lends.
type Options struct {
	Log      *slog.Logger
	Panics   panics.Guard
	Fleet    *fleet.Fleet
	Outliers *outlier.Set
	Decode   *decode.Pool    // canaries have their room there
	Settings func() Settings // in force now

	EjectedReplicas *prometheus.CounterVec // pool, replica, leg
	EjectedPairs    *prometheus.CounterVec // prefill, decode
	Results         *prometheus.CounterVec // result of a trial

	RoomChanged func() // called when a canary has left a decode replica
	// GrewOld reports whether err says that a kept connection ended, of an engine that lives.
	GrewOld func(ctx context.Context, to *fleet.Endpoint, err error) bool
	// ClientMayCause reports whether a usual request can cause this status of an engine's answer.
	ClientMayCause func(status int) bool
	// GiveBack frees the blocks of a prefill that nobody will read, and counts the result. It does not ask the
	// decode replica avoid.
	GiveBack func(
		ctx context.Context, con connector.Connector, pair connector.Pair, reply *connector.Reply, avoid replica.ID,
	)
}

// Settings is the part of the configuration that concerns canaries.
type Settings struct {
	Connector     connector.Connector
	Lease, Margin time.Duration // of prefilled blocks, see connector.lease and connector.margin
	Probe         time.Duration // timeouts.probe
	DecodeFirst   time.Duration // timeouts.decode_first
}

// Trials announces ejections, and tries what is ejected. Safe for concurrent use.
type Trials struct {
	o         Options
	announced announcements
}

// New makes trials. They begin with [Trials.Run].
func New(o Options) *Trials { return &Trials{o: o} }

// MembersChanged keeps what was announced of pairs under the names that their replicas have now, and forgets
// the pairs of replicas that have left. member reports whether a replica is there.
func (t *Trials) MembersChanged(renames replica.Renames, member func(replica.ID) bool) {
	t.announced.rename(renames)
	t.announced.keep(member)
}

const (
	tick = 250 * time.Millisecond // between two looks for due trials
	once = 8                      // canaries at once
)

// Run makes the trials that are due until ctx ends, and waits for those that run.
func (t *Trials) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, once)
	every := time.NewTicker(tick)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		if !t.o.Outliers.Active(time.Now()) {
			continue
		}
		for _, due := range t.o.Outliers.Due(time.Now(), t.o.Fleet.MayTry) {
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
				return
			}
			wg.Go(func() {
				defer func() { <-places }()
				t.o.Panics.Contain("trial", func() { t.try(ctx, due) })
			})
		}
	}
}

// try makes one trial and reports its result. If the trial shows nothing, the next request is the trial.
func (t *Trials) try(ctx context.Context, due outlier.Trial) {
	if due.IsPair() && t.misfits(due.Pair) {
		t.o.Outliers.PutOff(due, time.Now())
		return
	}
	var got Finding // a panic shows nothing
	t.o.Panics.Contain("trial", func() { got = t.tryWhat(ctx, due) })
	t.o.Results.WithLabelValues(got.Result.String()).Inc()
	if got.Result != Fails {
		t.Announce(t.o.Outliers.Passed(due, time.Now()))
		return
	}
	of := []any{"replica", string(due.ID), "leg", due.Leg.String()}
	if due.IsPair() {
		of = []any{"prefill", string(due.Pair.Prefill), "decode", string(due.Pair.Decode)}
	}
	t.o.Log.Info("trial failed", append(of, "kind", got.Kind.String(), "why", got.Why)...)
	t.Announce(t.o.Outliers.Failed(due, got.Kind, time.Now()))
}

// misfits reports whether blocks of one end of the pair mean nothing to the other, as after a restart with
// another block size: such a handoff ends a decode engine (vLLM 0.32), a canary's too.
func (t *Trials) misfits(pair outlier.Pair) bool {
	p, d := t.o.Fleet.Endpoint(pair.Prefill), t.o.Fleet.Endpoint(pair.Decode)
	return p != nil && d != nil && planner.Incompatible(&p.Member, &d.Member) != ""
}

func (t *Trials) tryWhat(ctx context.Context, due outlier.Trial) Finding {
	if t.o.Settings().Connector.Traits().Order == connector.Shared {
		return Finding{}
	}
	switch {
	case due.IsPair():
		return t.Pair(ctx, t.o.Fleet.Endpoint(due.Pair.Prefill), t.o.Fleet.Endpoint(due.Pair.Decode), "")
	case due.Leg == outlier.Whole && !t.o.Settings().Connector.Traits().NoPlain:
		return t.Whole(ctx, t.o.Fleet.Endpoint(due.ID))
	}
	return t.tryLeg(ctx, due)
}
