package orchestrator

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/discovery"
	"github.com/tandem-router/tandem/internal/discovery/dns"
	"github.com/tandem-router/tandem/internal/discovery/kubernetes"
	"github.com/tandem-router/tandem/internal/panics"
	"github.com/tandem-router/tandem/orchestrator/admin"
	"github.com/tandem-router/tandem/orchestrator/answers"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/planner"
	"github.com/tandem-router/tandem/orchestrator/trials"
)

// The packages below get small values and functions of the router, never the router itself.

// Sources returns the sources of members besides the file, for a router and for commands that ask each source
// once. If two sources find a replica, the settings of the first source count: Kubernetes knows more than
// DNS.
func Sources(guard panics.Guard) []discovery.Source {
	return []discovery.Source{kubernetes.New(guard), dns.New(guard)}
}

// newMetrics makes the metrics in reg. The counters for this package's label values start at 0.
func newMetrics(reg prometheus.Registerer) *observe.Metrics {
	m := observe.NewMetrics(reg)
	observe.Begin(m.Failures.Continued, wentOn, wasComplete, notPossible, tooOften, noBudget, diverged, nobody,
		clientLeft)
	observe.Begin(m.Decisions.Pieces, pieceComputed, pieceFailed, pieceLost, pieceCut)
	answers.BeginMetrics(m.Answers)
	return m
}

// addRooms makes the parts that watch the pools and the fleet.
func (o *Orchestrator) addRooms() {
	o.giveBacks.places = make(chan struct{}, giveBacksOf(mostClients()))
	o.trials = o.newTrials()
	o.see, o.captures = o.newState(), &observe.Captures{}
	o.admin = o.newAdmin()
	o.answers = answers.New(answers.Options{
		Log: o.log, Fleet: o.fleet, Counts: o.m.Answers, Events: o.m.Requests.Events, OpenShared: o.opt.openShared,
	})
	o.reg.MustRegister(observe.NewCollector(o.see, observe.Collected{
		Peers: o.peers, Clock: o.clock, Answers: o.heldAnswers, Found: o.sources.Found,
		Goal: func() time.Duration { return o.Config().Limits.FirstToken }, Demand: o.m.Demand,
	}))
}

// newTrials returns the trials of ejected replicas and pairs.
func (o *Orchestrator) newTrials() *trials.Trials {
	return trials.New(trials.Options{
		Log: o.log, Panics: o.panics, Fleet: o.fleet, Outliers: o.planner.Outliers(), Decode: o.decode,
		Settings: o.trialSettings, RoomChanged: o.queue.wake, EjectedReplicas: o.m.Ejections.Replicas,
		EjectedPairs: o.m.Ejections.Pairs, Results: o.m.Ejections.Trials,
		GrewOld: o.grewOld, ClientMayCause: clientMayCause, GiveBack: o.giveBackNow,
	})
}

// trialSettings returns the settings of canaries.
func (o *Orchestrator) trialSettings() trials.Settings {
	snap := o.snap.Load()
	return trials.Settings{
		Connector: snap.connect, Lease: snap.cfg.Connector.Lease, Margin: snap.cfg.Connector.Margin,
		Probe: snap.cfg.Timeouts.Probe, DecodeFirst: snap.cfg.Timeouts.DecodeFirst,
	}
}

// newState returns the reader of the router's state.
func (o *Orchestrator) newState() *observe.State {
	return &observe.State{
		Prefill: o.prefill, Decode: o.decode, Planner: o.planner, Fleet: o.fleet,
		Draining:  func() bool { return o.ending.Load() >= unready },
		SplitOnly: func() bool { return o.Config().Local == config.LocalNever },
		Traffic: func() observe.Traffic {
			return observe.Traffic{
				InFlight: o.InFlight(), Waiting: o.queue.length(), Backlog: o.queue.backlog(),
				Retrying: o.retrying.Load(), RetryBudget: o.retryBudget(o.Config()),
			}
		},
	}
}

// heldAnswers returns the content of the answer cache; nil if there is none.
func (o *Orchestrator) heldAnswers() *observe.AnswerCache {
	snap := o.snap.Load()
	if snap == nil {
		return nil
	}
	return snap.answers.Held()
}

// newAdmin returns the handlers of the admin listener.
func (o *Orchestrator) newAdmin() *admin.Admin {
	return admin.New(admin.Options{
		Log: o.log, Metrics: o.reg, Fleet: o.fleet, State: o.see, Ring: o.ring, Captures: o.captures,
		Keys:     o.m.Requests.Recent,
		InFlight: func() []observe.InFlight { return o.requests.List(time.Now()) },
		Peers:    o.peers, Alive: o.front().alive(), Found: o.sources.Found, Config: o.Config,
		NeedsRestart: o.needsRestart,
		InForce:      func() *config.InForce { return o.snap.Load().inForce },
		Rejected:     o.reloads.rejected, Reload: o.opt.Reload, Preview: o.opt.Preview,
		Exclusive: &o.reloads.mu, KeepDrains: func() error { return o.state.writeNow() }, Explain: o.DryRun,
	})
}

// front returns the handlers of the public listener.
func (o *Orchestrator) front() *front { return &front{&o.env, &o.snap} }

// Front returns the handler of the public listener.
func (o *Orchestrator) Front() http.Handler { return o.front().routes(o.admin.FrontReady) }

// Picker returns a function that tells g the destination of r, and follows the answer to r. If the router
// refuses r or answers r itself, w gets this answer instead. The function panics with [http.ErrAbortHandler]
// if the client has left. The function is safe for concurrent use.
func (o *Orchestrator) Picker() func(w http.ResponseWriter, r *http.Request, g Gateway) {
	t, others := o.front(), o.Front()
	return func(w http.ResponseWriter, r *http.Request, g Gateway) { t.pick(w, r, g, others) }
}

// Admin returns the handler of the admin listener. [Orchestrator.Serve] checks which requests may use it.
func (o *Orchestrator) Admin() http.Handler { return o.admin.Handler() }

// Reload calls reload, which calls [Orchestrator.Apply] or [Orchestrator.Rejected], and writes an audit line.
// by is [admin.ByFile] or [admin.BySignal].
func (o *Orchestrator) Reload(by string, reload func() error) error {
	return o.admin.Reload(by, reload)
}

// Panicked logs the panic of a call that belongs to no client.
func (o *Orchestrator) Panicked(value any, stack []byte) { o.panics.Report("grpc", value, stack) }

// Record returns the record of a request; nil if the request has not ended or its record was dropped. Safe
// for concurrent use.
func (o *Orchestrator) Record(id string) *observe.Record { return o.ring.Find(id) }

// State returns the reader of the router's state. Safe for concurrent use.
func (o *Orchestrator) State() *observe.State { return o.see }

// Leases returns how many reservations have not ended; 0 if no request runs. Safe for concurrent use.
func (o *Orchestrator) Leases() int { return o.see.Leases() }

// Ready reports whether requests can be served.
func (o *Orchestrator) Ready() bool {
	ok, _ := o.see.Ready()
	return ok
}

// DryRun plans the request with this body as if it had just arrived. It books nothing, and sends only the
// question for token ids. It returns the decision with every plan, term and exclusion. Safe for concurrent
// use.
func (o *Orchestrator) DryRun(ctx context.Context, body []byte) (*planner.Decision, error) {
	return o.front().explain(ctx, body)
}

// WatchDecisions calls send for each new record, until ctx ends or send fails. It also passes how many
// records the caller has missed since the previous call because it was slow.
func (o *Orchestrator) WatchDecisions(
	ctx context.Context, send func(r *observe.Record, lost uint64) error,
) error {
	records, lost, stop := o.ring.Watch(256)
	defer stop()
	reported := uint64(0)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r := <-records:
			missed := lost()
			if err := send(r, missed-reported); err != nil {
				return err
			}
			reported = missed
		}
	}
}
