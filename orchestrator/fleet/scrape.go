package fleet

import (
	"context"
	"errors"
	"log/slog"
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
		w.streams.update(ctx)
		m, err := w.pulse.scrape(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failed = w.scrapeFailed(err, failed)
			w.drain.judge(nil)
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
		w.drain.judge(&m)
		changed, same := w.models.ask(ctx)
		if changed {
			w.fleet.publish()
		}
		if !same {
			w.logForgotten(slog.LevelWarn, w.Name(), "it serves another model")
			w.forget()
			return
		}
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
		if w.pulse.up.Load() {
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
	w.counted.leases.Store(nil)
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
	if failed == 0 && w.models.due.Load() {
		return min(base, LeastModelsInterval)
	}
	return min(base*time.Duration(1+failed/8), max(base, 10*time.Second))
}

// forgetRestarted voids the blocks of all ranks of an engine that was restarted. Its streams may have seen
// the restart before, or will see it: only the first finding logs a warning.
func (w *Watcher) forgetRestarted() {
	level := slog.LevelWarn
	if w.streams.restartLogged.Swap(true) {
		level = slog.LevelDebug
	}
	w.logForgotten(level, w.Name(), "the engine was restarted")
	w.forget()
}

// forget voids the blocks of all ranks.
func (w *Watcher) forget() {
	w.fleet.restarts.WithLabelValues(w.role.String(), w.Name()).Inc()
	w.forgetTokens()
	for _, m := range w.Members() {
		w.pool.Forget(m.ID)
	}
	w.streams.forget()
}

// markDown marks the server and its members unusable.
func (w *Watcher) markDown(err error) {
	reason, do := engine.Explain(err, w.key.url, "pools."+w.role.String())
	if do != "" {
		reason += ": " + do
	}
	news := w.pulse.outage.note(reason, w.pulse.up.Swap(false), time.Now())
	if news.first {
		w.fleet.judge()
	}
	for _, m := range w.Members() {
		w.pool.SetHealthy(m.ID, false, reason)
	}
	about := []any{"replica", w.Name(), "pool", w.role.String(), "reason", reason}
	switch {
	case news.begins && w.DrainStatus().Empty: // as it was meant to happen
		w.log.Info("replica that is drained has stopped", about...)
	case news.begins:
		w.log.Warn("replica is not usable", about...)
	case news.other:
		w.log.Info("replica is not usable, for another reason", about...)
	}
}
