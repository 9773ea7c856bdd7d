package orchestrator

import "github.com/tandem-router/tandem/orchestrator/trials"

// The rooms below get small values and functions of the router, never the router itself.

// newTrials makes the trials of replicas and pairs that are ejected.
func (o *Orchestrator) newTrials() *trials.Trials {
	return trials.New(trials.Options{
		Log: o.log, Panics: o.panics, Fleet: o.fleet, Outliers: o.planner.Outliers(), Decode: o.decode,
		Settings: o.trialSettings, RoomChanged: o.queue.wake, EjectedReplicas: o.m.ejections.replicas,
		EjectedPairs: o.m.ejections.pairs, Results: o.m.ejections.trials,
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
