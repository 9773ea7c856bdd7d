// Package orchestrator is the life of a request: admit, tokenize, plan, prefill, hand over, decode, stream.
// It watches the replicas and applies the configuration.
//
// The path, a file for each step: serve.go routes. request.go owns the request and body.go reads its body.
// generate.go serves what can be split, passthrough.go the rest, cached.go goes through the answer cache.
// tokens.go finds the token ids, plan.go plans and waits in admission.go for room, attempt.go tries,
// handoff.go sends the legs in the connector's order, answer.go reads the answer, delivery.go gives it to
// the client, and client.go writes. retry.go decides whether a failed attempt is repeated, continue.go
// whether another engine continues a stream.
//
// A file uses lower layers only. A job and its parts know the router as an env, the configuration as a
// snapshot and their request as an origin. The legs and the answer of one attempt know each other: handoff.go
// to verify_lease.go are one ring.
//
// Package fleet holds the facts of the replicas, package peers the bookings of other routers. Configuration
// comes in through apply.go. rooms.go makes the packages below: admin and observe show what happens, trials
// bring back ejected replicas, answers stores answers.
//
// These are the states of a request. One function ends each state, whatever the end is: the last event, a
// failure, a client that left or a panic. An inner state ends before the outer one.
//
//	request ................................................ request.end
//	│ admit, read, parse
//	▼
//	job, one for each prompt ............................... finish
//	│ tokenize
//	▼
//	attempt <────────────────┐ ............................. handoff.end
//	│ plan, queue, send legs │ job.again
//	├─ failed ───────────────┴───> failed
//	│ first content
//	▼
//	delivery <───────────────┐ ............................. delivery.settle
//	│ events                 │ delivery.goOn: the rest of the answer is a
//	│                        │ job with attempts of its own
//	├─ broke off ────────────┴───> failed
//	│ last event
//	▼
//	delivered
//
// The booking, the leases and the connections of an attempt end with the attempt. After a failure this is
// before the next attempt begins. After a stream broke off it is before another engine continues. Otherwise
// it is in the settling.
package orchestrator

import (
	"context"
	"crypto/tls"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/discovery"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/keys"
	"github.com/tandem-router/tandem/internal/liveness"
	"github.com/tandem-router/tandem/internal/panics"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/answers"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/peers"
	"github.com/tandem-router/tandem/orchestrator/planner"
	"github.com/tandem-router/tandem/orchestrator/policy"
	"github.com/tandem-router/tandem/prefill"
)

// Orchestrator serves requests over the two pools of its configuration. Make one with [New], start
// [Orchestrator.Run], and give [Orchestrator.Front] to a server.
//
// Its fields are grouped by owner and guard. The groups are embedded, so that code names the field, as in
// o.planner, and not the group.
type Orchestrator struct {
	opt Options // immutable

	env
	membership
	records
	configured
	answers *answers.Answers
}

// membership watches the set of members.
type membership struct {
	peers      *peers.Peers
	sources    *discovery.Set // of members beside the file
	departures *departures
	state      *stateFile
}

// records holds views of requests for people, besides the ring of records.
type records struct {
	file *observe.DecisionFile
	see  *observe.State
}

// configured holds what [Orchestrator.Apply] has put in force. Only Apply writes it.
type configured struct {
	snap        atomic.Pointer[snapshot]
	certificate atomic.Pointer[tls.Certificate] // certificate of the front listener; nil for plain HTTP
	reloads     *reloads
}

// New makes an orchestrator for cfg, which must have been validated. Nothing is dialled before Run.
func New(cfg *config.Config, opt Options) (*Orchestrator, error) {
	opt.complete()
	o := &Orchestrator{opt: opt, configured: configured{reloads: &reloads{}}}
	o.telemetry = telemetry{
		log: opt.Log, panics: panics.Guard{Log: opt.Log}, reg: opt.Registry, m: newMetrics(opt.Registry),
	}
	o.queue, o.clock = newAdmission(0), liveness.NewClock(time.Now())
	o.places = newPlaces(mostClients(), o.refusedClients)
	o.ring = observe.NewRing(cfg.Decisions.Ring)
	lost := o.m.Decisions.Unwritten
	o.file = observe.NewDecisionFile(o.ring, o.diskOf("decisions.file"), lost, opt.openDecisions)
	o.spans = observe.NewTracer(opt.Tracer)
	o.prefill = prefill.New(prefill.Options{IndexBytes: int64(cfg.Pools.Prefill.IndexBytes)})
	o.decode = decode.New(decode.Options{IndexBytes: int64(cfg.Pools.Decode.IndexBytes)})
	o.planner = planner.New(o.prefill, o.decode, policy.Of(cfg), rand.New(rand.NewPCG(opt.Seed, 0x7a6e)))
	o.fleet = fleet.New(fleet.Options{
		Panics: o.panics, Dial: opt.Dial, Kept: engine.NewKept(mostClients()), NoEvents: opt.NoEvents,
		Prefill: o.prefill, Decode: o.decode, Outliers: o.planner.Outliers(), Counted: o.planner.Counted,
		Clock: o.clock, Registry: opt.Registry,
		MembersChanged: o.membersChanged, RoomChanged: o.queue.wake, ForgetTokens: o.forgetTokens,
		DistrustChanged: func() { o.state.writeSoon() },
	})
	o.peers = peers.New(peers.Options{
		Log: o.log, Dial: opt.Dial, Prefill: o.prefill, Decode: o.decode, RoomChanged: o.queue.wake,
		Distrusts: o.fleet, Panics: o.panics, Registry: opt.Registry,
		Keys: new(keys.Accounts),
	})
	o.departures = new(departures)
	o.sources = discovery.New(o.log, o.panics, Sources(o.panics)...)
	o.addRooms()
	o.state = &stateFile{
		log: o.log, planner: o.planner, fleet: o.fleet, sources: o.sources, disk: o.diskOf("state.file"),
		replace: opt.replaceState, asked: make(chan chan error), soon: make(chan struct{}, 1),
	}
	if err := o.Apply(cfg); err != nil {
		return nil, err
	}
	o.state.restore()
	return o, nil
}

// newUsageFile returns the writer of usage.file.
func (o *Orchestrator) newUsageFile() *usageFile {
	return &usageFile{
		log: o.log, disk: o.diskOf("usage.file"), used: o.m.Requests.Used,
		name: func() string { return o.Config().Usage.File }, open: openUsage,
	}
}

// diskOf returns an executor of calls on the file that field names.
func (o *Orchestrator) diskOf(field string) liveness.Disk {
	stalled := o.m.Config.Stalled.WithLabelValues(field)
	return liveness.Disk{Field: field, Log: o.log, Panics: o.panics, Stalled: stalled}
}

// membersChanged is called by the fleet after the members of the pools have changed.
func (o *Orchestrator) membersChanged(
	renames replica.Renames, member func(replica.ID) bool, arrived []*fleet.Endpoint, servers []string,
) {
	o.trials.MembersChanged(renames, member)
	for id := range o.fleet.Endpoints() {
		servers = append(servers, string(id))
	}
	o.departures.arrive(servers, time.Now())
	for _, e := range arrived {
		o.m.Ejections.Begin(&e.Member)
	}
	o.state.arrived(time.Now())
	o.queue.moved()
}

// forgetTokens drops the token ids that a server's process made, because its next process may have another
// tokenizer or template.
func (o *Orchestrator) forgetTokens(server string) {
	if r := o.tokens.Load(); r != nil {
		r.Forget(server)
	}
}

// Run watches the replicas and exchanges bookings with other routers until ctx ends. Then it waits for
// everything that it started. Requests must have ended before: see [Orchestrator.Drain].
func (o *Orchestrator) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for where, run := range map[string]func(context.Context){
		"stall": o.clock.Run, "expiry": o.expire, "trials": o.trials.Run, "decisions": o.file.Run,
		"state": o.state.run, "history": o.admin.Run, "usage": o.newUsageFile().run,
	} {
		wg.Go(func() { o.panics.KeepRunning(ctx, where, func() { run(ctx) }) })
	}
	wg.Go(func() { o.sources.Run(ctx, o.rejoin) })
	wg.Go(func() { o.peers.Run(ctx) }) // Run keeps each peer running
	o.sources.WaitForRouters(ctx)
	o.peers.WaitForFirst(ctx) // no request may go to an engine that a peer distrusts
	err := o.fleet.Run(ctx)
	wg.Wait()
	o.giveBacks.running.Wait()
	o.answers.Wait()
	if c := o.snap.Load().answers; c != nil {
		c.Close()
	}
	return err
}

// expire drops expired guesses from both indexes. It also wakes the queue, in case time alone made room.
func (o *Orchestrator) expire(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			now := time.Now()
			o.prefill.Expire(now)
			o.decode.Expire(now)
			o.forgetDeparted(now)
			o.queue.wake()
		}
	}
}

// Unready makes readiness fail from now on. New requests are still served, but each answer asks its client to
// close the connection.
func (o *Orchestrator) Unready() { o.ending.CompareAndSwap(0, unready) }

// Drain stops admitting requests: new requests get 503, waiting ones are refused, and running ones continue.
// Readiness fails from now on.
func (o *Orchestrator) Drain() {
	o.ending.Store(draining)
	o.queue.close()
}

// forgetDeparted deletes the series of replicas that left so long ago that only long streams can still run
// there.
func (o *Orchestrator) forgetDeparted(now time.Time) {
	o.departures.forget(o.Config().Timeouts.Answer+time.Minute, now, func(name string) {
		o.m.Families.Forget(name)
		o.fleet.ForgetSeries(name)
	})
}
