package fleet

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"tandem/internal/engine"
)

// scrapes polls /metrics until ctx ends, or until the server has been restarted and has to be probed anew.
func (w *Watcher) scrapes(ctx context.Context) {
	failed := 0
	for first := true; ; first = false {
		if !first && !w.sleep(ctx, jitter(w.interval(failed))) {
			return
		}
		switch {
		case w.reindexed.Swap(false):
			w.reindex(ctx)
		case w.resourced.Swap(false):
			w.follow(ctx)
		}
		m, err := w.scrape(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errUnreported):
			failed = 0
			w.unreported(errUnreported)
			continue
		case errors.Is(err, errNotAsked):
			if w.up.Load() {
				w.unreported(err)
			}
			continue
		case err != nil:
			failed++
			if engine.Unreachable(err) || failed >= w.set.Load().failures {
				w.down(err)
			}
			continue
		case w.restarted(m):
			w.leases.Store(nil)
			w.see(m.Started)
			w.forgetRestarted()
			for _, m := range w.Members() {
				w.f.opt.Outliers.Restarted(m.ID, time.Now())
			}
			return
		}
		w.see(m.Started)
		failed = 0
		if !first && w.undescribed() {
			w.describe(ctx)
		}
		w.take(m)
		if !w.relist(ctx) {
			w.logForgotten(slog.LevelWarn, w.Name(), "it serves another model")
			w.forget()
			return
		}
	}
}

// see notes which process the server is now.
func (w *Watcher) see(started float64) {
	if w.f.processes.see(w.process, started) {
		w.log.Info("the engine was restarted: its cache is used again", "replica", w.Name())
	}
	w.showTrust()
}

// interval is the time to the next scrape; a server in trouble is asked less often.
func (w *Watcher) interval(failed int) time.Duration {
	base := w.set.Load().pool.PollInterval
	if failed == 0 && w.doubted.Load() {
		return min(base, LeastModelsInterval)
	}
	return min(base*time.Duration(1+failed/8), max(base, 10*time.Second))
}

// restarted tells by the process start time. Engines that do not say it are told by their event sequence
// alone.
func (w *Watcher) restarted(m engine.Metrics) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.facts) > 0 && w.facts[0].Facts.Started > 0 && m.Started > 0 &&
		m.Started != w.facts[0].Facts.Started
}

// take hands a scrape to the pool.
func (w *Watcher) take(m engine.Metrics) {
	now := time.Now()
	w.leases.Store(w.leaseCounters(&m))
	w.checkTransfers(m)
	w.toldRestart.Store(false)
	w.mu.Lock()
	w.reason = ""
	members := w.facts
	w.mu.Unlock()
	back := !w.up.Swap(true)
	for i := range members {
		if load, ok := m.Loads[members[i].Rank]; ok {
			load.At = now
			w.pool.Observe(members[i].ID, load, now)
		}
		w.pool.SetHealthy(members[i].ID, true, "")
		w.setState(members[i].ID, StateUnreported, "")
		w.judgeSpeed(members[i].ID)
	}
	if back {
		w.log.Info("replica is back", "replica", w.Name(), "pool", w.role.String())
	}
	w.f.opt.RoomChanged()
}

// forgetRestarted voids the blocks of all ranks of an engine that was restarted. Its streams may have shown that
// before, or will: one of them warns.
func (w *Watcher) forgetRestarted() {
	level := slog.LevelWarn
	if w.toldRestart.Swap(true) {
		level = slog.LevelDebug
	}
	w.logForgotten(level, w.Name(), "the engine was restarted")
	w.forget()
}

func (w *Watcher) logForgotten(level slog.Level, name, reason string) {
	w.log.Log(context.Background(), level, "replica's blocks are forgotten", "replica", name,
		"pool", w.role.String(), "reason", reason)
}

// forget voids the blocks of all ranks.
func (w *Watcher) forget() {
	w.f.restarts.WithLabelValues(w.role.String(), w.Name()).Inc()
	w.forgetTokens()
	for _, m := range w.Members() {
		w.pool.Forget(m.ID)
	}
	for _, f := range w.Streams() {
		f.announced.Store(true)
		// Or what it applied meanwhile would be forgotten, and never heard of again.
		f.follower.Restarted("its process is another one")
	}
}

// down marks the server and its members unusable.
func (w *Watcher) down(err error) {
	reason := engine.Explain(err)
	was := w.up.Swap(false)
	w.mu.Lock()
	changed := w.reason != reason
	w.reason = reason
	members := w.facts
	w.mu.Unlock()
	for _, m := range members {
		w.pool.SetHealthy(m.ID, false, reason)
	}
	if was || changed {
		w.log.Warn("replica is not usable", "replica", w.Name(), "pool", w.role.String(), "reason", reason)
	}
}
