package orchestrator

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/trials"
)

// The rooms below get small values and functions of the router, never the router itself.

// newMetrics makes the metrics in reg. Words of this package begin at 0 from here.
func newMetrics(reg prometheus.Registerer) *observe.Metrics {
	m := observe.NewMetrics(reg)
	observe.Begin(m.Failures.Continued, wentOn, wasComplete, notPossible, tooOften, noBudget, diverged, nobody,
		clientLeft)
	observe.Begin(m.Decisions.Pieces, pieceComputed, pieceFailed, pieceLost, pieceCut)
	observe.Begin(m.Answers.Requests, cacheHit, cacheJoined, cacheMiss, cacheBypass)
	observe.Begin(m.Answers.Bypassed, bypassReasons()...)
	observe.Begin(m.Answers.Unkept, tooLong, notFinished, wasResumed, notTrusted, unknownFrom)
	return m
}

// newTrials makes the trials of replicas and pairs that are ejected.
func (o *Orchestrator) newTrials() *trials.Trials {
	return trials.New(trials.Options{
		Log: o.log, Panics: o.panics, Fleet: o.fleet, Outliers: o.planner.Outliers(), Decode: o.decode,
		Settings: o.trialSettings, RoomChanged: o.queue.wake, EjectedReplicas: o.m.Ejections.Replicas,
		EjectedPairs: o.m.Ejections.Pairs, Results: o.m.Ejections.Trials,
		GrewOld: o.grewOld, ClientMayCause: clientMayCause, GiveBack: o.giveBackNow,
	})
}

// trialSettings is what canaries go by.
func (o *Orchestrator) trialSettings() trials.Settings {
	snap := o.snap.Load()
	return trials.Settings{
		Connector: snap.connect, Lease: snap.cfg.Connector.Lease, Margin: snap.cfg.Connector.Margin,
		Probe: snap.cfg.Timeouts.Probe, DecodeFirst: snap.cfg.Timeouts.DecodeFirst,
	}
}
