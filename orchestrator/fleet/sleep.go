package fleet

import (
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// An engine in vLLM's sleep mode (POST /sleep) lives: it answers /health, /metrics and questions about
// tokens. It queues every request until it is woken, and its metric vllm:engine_sleep_state says so. Such a
// replica gets no requests, and its failures count against no replica.

// SleepCause is the cause that people read for a sleeping replica.
const SleepCause = "the engine is in sleep mode: POST /wake_up to the engine ends that"

// noteSleep notes whether the server sleeps. Failures since it fell asleep were noted before the sleep was
// known, so they are forgotten once.
func (w *Watcher) noteSleep(members []replica.Replica, asleep bool) {
	cause := ""
	if asleep {
		cause = SleepCause
	}
	for i := range members {
		id := members[i].ID
		if asleep && !w.HasState(id, StateAsleep) {
			w.fleet.opt.Outliers.Forgive(id)
			for _, leg := range []outlier.Leg{outlier.Prefill, outlier.Decode, outlier.Whole} {
				w.setState(id, EjectedState(leg), "")
				w.setState(id, HalfOpenState(leg), "")
			}
		}
		w.setState(id, StateAsleep, cause)
	}
}

// useUnlessAsleep lets the replica be chosen, unless it sleeps.
func (w *Watcher) useUnlessAsleep(id replica.ID) {
	if w.HasState(id, StateAsleep) {
		w.pool.SetHealthy(id, false, SleepCause)
		return
	}
	w.pool.SetHealthy(id, true, "")
}

// Asleep reports whether the server is in sleep mode, by the newest scrape.
func (w *Watcher) Asleep() bool { return w.whyAsleep() != "" }

func (w *Watcher) whyAsleep() string {
	for _, m := range w.Members() {
		if w.HasState(m.ID, StateAsleep) {
			return SleepCause
		}
	}
	return ""
}

// Asleep reports whether the replica's engine is in sleep mode.
func (e *Endpoint) Asleep() bool { return e.w.HasState(e.Member.ID, StateAsleep) }

// Asleep reports whether the replica is there, and its engine is in sleep mode.
func (f *Fleet) Asleep(id replica.ID) bool {
	e := f.Endpoint(id)
	return e != nil && e.Asleep()
}
