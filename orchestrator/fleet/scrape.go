package fleet

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/engine"
)

// scrapes polls /metrics until ctx ends, or until the server must be probed again: it has been restarted, or
// serves another model.
func (w *Watcher) scrapes(ctx context.Context) {
	failed := 0
	for first := true; ; first = false {
		if !first && !w.life.sleep(ctx, jitter(w.interval(failed))) {
			return
		}
		w.doFollow(ctx)
		m, err := w.scrape(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failed = w.scrapeFailed(err, failed)
			w.judgeDrain(nil)
			continue
		case w.facts.restarted(m):
			w.restart(&m)
			return
		}
		failed = 0
		w.noteProcess(m.Started)
		if !first && w.facts.unmeasured() {
			w.probeAgain(ctx)
		}
		w.observe(&m)
		w.judgeDrain(&m)
		if !w.askModels(ctx) {
			w.logForgotten(slog.LevelWarn, w.Name(), "it serves another model")
			w.forget()
			return
		}
	}
}

// doFollow follows what the ranks publish, if that may have changed.
func (w *Watcher) doFollow(ctx context.Context) {
	switch {
	case w.due.todo.reindex.Swap(false):
		w.reindex(ctx)
	case w.due.todo.follow.Swap(false):
		w.follow(ctx)
	}
}

// scrapeFailed handles a failed scrape. failed is the number of failures in a row before. It returns the
// number now.
func (w *Watcher) scrapeFailed(err error, failed int) int {
	switch {
	case errors.Is(err, errUnreported):
		w.unreported(errUnreported)
		return 0
	case errors.Is(err, errNotAsked):
		if w.up.Load() {
			w.unreported(err)
		}
		return failed
	}
	failed++
	if gone(err) || failed >= w.set.Load().failures {
		w.markDown(err)
	}
	return failed
}

// restart voids the facts about the earlier process.
func (w *Watcher) restart(m *engine.Metrics) {
	w.scraped.leases.Store(nil)
	w.noteProcess(m.Started)
	w.forgetRestarted()
	for _, member := range w.Members() {
		w.fleet.opt.Outliers.Restarted(member.ID, time.Now())
	}
}

// noteProcess notes which process the server is now.
func (w *Watcher) noteProcess(started float64) {
	if w.fleet.processes.note(w.process, started) {
		w.log.Info("the engine was restarted: its cache is used again", "replica", w.Name())
	}
	w.showDistrust()
}

// interval is the time to the next scrape; a server in trouble is asked less often.
func (w *Watcher) interval(failed int) time.Duration {
	base := w.set.Load().pool.PollInterval
	if failed == 0 && w.due.todo.askModels.Load() {
		return min(base, LeastModelsInterval)
	}
	return min(base*time.Duration(1+failed/8), max(base, 10*time.Second))
}

// restarted compares the process start times. For engines that do not tell their start, only the sequence of
// their events shows a restart.
func (w *facts) restarted(m engine.Metrics) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.known.members) > 0 && w.known.members[0].Facts.Started > 0 && m.Started > 0 &&
		m.Started != w.known.members[0].Facts.Started
}

// forgetRestarted voids the blocks of all ranks of an engine that was restarted. Its streams may have seen
// the restart before, or will see it: only the first finding logs a warning.
func (w *Watcher) forgetRestarted() {
	level := slog.LevelWarn
	if w.scraped.restartLogged.Swap(true) {
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
	w.fleet.restarts.WithLabelValues(w.role.String(), w.Name()).Inc()
	w.forgetTokens()
	for _, m := range w.Members() {
		w.pool.Forget(m.ID)
	}
	for _, f := range w.Streams() {
		f.announced.Store(true)
		// Otherwise the blocks that it applies meanwhile would be forgotten, and never announced again.
		f.follower.Restarted("its process is another one")
	}
}

// markDown marks the server and its members unusable.
func (w *Watcher) markDown(err error) {
	now := time.Now()
	reason, do := engine.Explain(err, w.key.url, "pools."+w.role.String())
	if do != "" {
		reason += ": " + do
	}
	was := w.up.Swap(false)
	w.facts.mu.Lock()
	first := w.down.reason == NotProbed
	news := was || w.down.reason == "" || w.down.reasonAt.IsZero()
	if news {
		w.down.said = nil
	}
	unsaid := !slices.Contains(w.down.said, reason) && len(w.down.said) < mostReasons
	again := w.down.reasonLogged != reason && now.Sub(w.down.reasonAt) >= reasonEvery
	other := !news && (unsaid || again)
	if w.down.reason = reason; news || other {
		w.down.reasonLogged, w.down.reasonAt = reason, now
		w.down.said = append(w.down.said[:min(len(w.down.said), mostReasons-1)], reason)
	}
	members := w.facts.known.members
	w.facts.mu.Unlock()
	if first {
		w.fleet.judgeSetup()
	}
	for _, m := range members {
		w.pool.SetHealthy(m.ID, false, reason)
	}
	switch {
	case news && w.DrainStatus().Empty: // as it was meant to happen
		w.log.Info("replica that is drained has stopped", "replica", w.Name(), "pool", w.role.String(),
			"reason", reason)
	case news:
		w.log.Warn("replica is not usable", "replica", w.Name(), "pool", w.role.String(), "reason", reason)
	case other:
		w.log.Info("replica is not usable, for another reason", "replica", w.Name(), "pool", w.role.String(),
			"reason", reason)
	}
}

const (
	// reasonEvery is the least time between two log lines that repeat why a server is not usable. An engine
	// that starts, or a path that is cut, refuses, resets and times out in turn.
	reasonEvery = time.Minute
	// mostReasons is how many reasons of one outage are logged at once, when first seen.
	mostReasons = 8
)
