package fleet

import (
	"slices"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/setup"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// This file has what a scrape says about the replicas of a server: their load, and their states.

// observe hands a scrape to the pool.
func (w *Watcher) observe(m *engine.Metrics) {
	now := time.Now()
	w.counted.leases.Store(leaseCounters(m, w.pulse.outages.Load()))
	w.checkTransfers(*m)
	w.streams.restartLogged.Store(false)
	w.pulse.outage.end()
	members := w.Members()
	back := !w.pulse.up.Swap(true)
	w.noteSleep(members, m.Asleep)
	for i := range members {
		if load, ok := m.Loads[members[i].Rank]; ok {
			load.At = now
			w.pool.Observe(members[i].ID, load, now)
			if w.role == replica.Decode {
				w.fleet.opt.Counted(members[i].ID, load.Reads, now)
			}
		}
		w.useUnlessAsleep(members[i].ID)
		w.states.set(members[i].ID, StateUnreported, "")
		w.judgeSpeed(members[i].ID)
		w.judgeSequences(members[i].ID, now)
		w.judgeOthers(members[i].ID)
		w.streams.judge(members[i].ID, now)
	}
	if back {
		w.log.Info("replica is back", "replica", w.Name(), "pool", w.role.String())
	}
	w.fleet.opt.RoomChanged()
}

// judgeSequences notes whether a decode replica is full by the number of its sequences.
func (w *Watcher) judgeSequences(id replica.ID, now time.Time) {
	if w.role == replica.Decode {
		w.states.set(id, StateSequences, w.fleet.opt.Decode.SequencesFull(id, now))
	}
}

// judgeSpeed notes whether a replica is slow beside the others of its pool.
func (w *Watcher) judgeSpeed(id replica.ID) {
	if cause, known := w.pool.Slow(id, w.states.has(id, StateSlow)); known {
		w.states.set(id, StateSlow, cause)
	}
}

// judgeOthers notes whether a replica has requests of others.
func (w *Watcher) judgeOthers(id replica.ID) {
	if _, sure := w.Unseen(id); sure {
		w.states.set(id, StateOthers, "another router? set `routers.peers`")
	} else {
		w.states.set(id, StateOthers, "")
	}
}

// Unseen returns how many requests of unknown origin a replica has on average: neither this router nor a
// known router has sent these requests. sure says that there are such requests for certain. A server in both
// pools is never judged, since each pool counts only its own requests.
func (w *Watcher) Unseen(id replica.ID) (mean float64, sure bool) {
	if w.set.Load().cfg.Shared {
		return 0, false
	}
	return w.pool.Unseen(id)
}

// NotePoolIdle sets or clears the state that the server's pool is idle. An empty cause clears it. It returns
// how many of the server's replicas could be used.
func (w *Watcher) NotePoolIdle(cause string) (usable int) {
	if !w.InUse() {
		cause = ""
	}
	for _, m := range w.Members() {
		if w.states.put(m.ID, StatePoolIdle, cause, time.Now()); cause != "" {
			usable++
		}
	}
	return usable
}

// checkTransfers asks for a trial of the pairs that read returns as doubtful.
func (w *Watcher) checkTransfers(m engine.Metrics) {
	if w.role != replica.Decode {
		return
	}
	pairs, why := w.counted.transfers.read(m)
	for _, p := range pairs {
		if w.fleet.opt.Outliers.Suspect(p, time.Now()) {
			w.log.Warn("a pair is tried, since nothing shows that its blocks move", "prefill", string(p.Prefill),
				"decode", string(p.Decode), "why", why)
		}
	}
}

// unreported keeps a replica in use that is up without a known load, for this cause.
func (w *Watcher) unreported(cause error) {
	for _, m := range w.Members() {
		w.useUnlessAsleep(m.ID)
		w.states.set(m.ID, StateUnreported, cause.Error())
	}
	w.fleet.opt.RoomChanged()
}

// showDistrust shows in the replicas' states whether the engine's cache is used.
func (w *Watcher) showDistrust() {
	cause := ""
	if w.process.epoch.Load() > 0 {
		cause = "it may have cached wrong blocks: restart it when you can"
	}
	for _, m := range w.Members() {
		w.states.set(m.ID, StateDistrusted, cause)
	}
}

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
				w.states.set(id, EjectedState(leg), "")
				w.states.set(id, HalfOpenState(leg), "")
			}
		}
		w.states.set(id, StateAsleep, cause)
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

// distrust makes everything that the engine has cached so far unreachable, in both pools. sent is the era of
// the request that may have read wrong blocks.
func (w *Watcher) distrust(sent uint32, cause error) {
	was := w.process.epoch.Load()
	w.fleet.eras(func() { w.fleet.processes.distrust(w.process, sent, time.Now()) })
	w.fleet.distrusted.WithLabelValues(w.role.String(), w.Name()).Inc()
	era := w.process.epoch.Load()
	if was > 0 { // it has been said, and holds until the restart
		w.log.Debug("a distrusted decode engine may have cached wrong blocks again", "replica", w.Name(), "era",
			era, "error", cause)
		return
	}
	w.log.Error("a decode engine may have cached wrong blocks; its requests are salted until it is restarted, "+
		"so that it uses none of them: restart it when you can, "+
		"and see that its lease and its machine are not too short "+
		"of time", "replica", w.Name(), "era", era, "error", cause)
}

// noteSetup makes the troubles of the server's replicas their states, and logs new troubles in one line.
// tried says that every server has been tried, so that the comparison with the others is complete.
func (w *Watcher) noteSetup(found map[replica.ID][]setup.Trouble, tried bool) {
	var names, seen, do []string
	for _, m := range w.Members() {
		if len(found[m.ID]) == 0 && !w.states.any(m.ID) {
			continue // as for most
		}
		for _, name := range setup.Names() {
			if !tried && (name == setup.OtherTokenizer || name == setup.OtherVersion) {
				continue
			}
			at := slices.IndexFunc(found[m.ID], func(t setup.Trouble) bool { return t.Name == name })
			if at < 0 {
				w.states.set(m.ID, name, "")
				continue
			}
			t := found[m.ID][at]
			if w.states.put(m.ID, name, t.String(), time.Now()) && !slices.Contains(names, name) {
				names, seen = append(names, name), append(seen, t.Seen)
				do = append(do, t.Do)
			}
		}
	}
	if len(names) > 0 {
		w.log.Warn("engine is not set up for this router; tandem doctor says more", "replica", w.Name(),
			"pool", w.role.String(), "states", strings.Join(names, ","), "seen", strings.Join(seen, "; "),
			"do", strings.Join(do, "; "))
	}
}
