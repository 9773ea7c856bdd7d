package kvevents

import (
	"fmt"
	"time"
)

// This file is the tracker's second half: replays, and the audits that look for unnoticed losses.

// replays is the replay under way, and the results of earlier replays.
type replays struct {
	req      request
	answers  bool      // a replay was answered once
	silences int       // replays since then that were not
	auditAt  time.Time // zero: not planned
}

// request is the replay under way.
type request struct {
	open     bool
	quiet    bool // an audit: live batches are applied beside it
	whole    bool // an audit that asks for all history, since some is missing
	answered bool // a batch came
	progress bool // a batch was applied
	tries    int  // requests since the last progress
	deadline time.Time
	from     uint64
}

// sync starts a replay that live batches wait for.
func (t *tracker) sync(reason string) {
	t.phase = asking
	t.heard()
	t.say(Syncing, reason)
	t.request(false, false)
}

func (t *tracker) request(quiet, whole bool) {
	from := uint64(0)
	if t.at.known && !whole {
		from = t.at.seq
	}
	t.ask.req = request{open: true, quiet: quiet, whole: whole, tries: t.ask.req.tries + 1, from: from}
	t.ask.auditAt = time.Time{}
	t.stats.Replays++
	t.fx.ask(from)
}

func (t *tracker) closeReplay() {
	if t.ask.req.open {
		t.ask.req.open, t.ask.req.deadline = false, time.Time{}
		t.fx.closeReplay()
	}
}

// replayed takes a batch from the replay under way.
func (t *tracker) replayed(now time.Time, m message) {
	if !t.ask.req.open {
		return
	}
	t.ask.answers, t.ask.silences = true, 0
	t.ask.req.deadline = now.Add(min(t.settings.silent, midReplay))
	if m.seq < t.ask.req.from {
		return // not asked for
	}
	first := !t.ask.req.answered
	t.ask.req.answered = true
	switch {
	case t.ask.req.quiet:
		t.audited(m)
	case !t.at.known:
		t.take(m)
	case first:
		t.overlap(m)
	case m.seq == t.at.seq+1:
		t.take(m)
	case m.seq > t.at.seq+1: // ROUTER sockets drop what a slow reader has no room for
		t.retry(now, fmt.Sprintf("batches %d to %d missing in the replay", t.at.seq+1, m.seq-1))
		return
	}
	t.meet(now)
}

// meet ends a replay that has reached the live batches received meanwhile. The tracker has all later batches,
// and the replay's end marker may have been dropped.
func (t *tracker) meet(now time.Time) {
	if t.phase == asking && t.ask.req.open && t.at.known && len(t.backlog.held) > 0 &&
		t.backlog.held[0].seq <= t.at.seq+1 {
		t.closeReplay()
		t.drain(now)
	}
}

// overlap judges the first batch of a replay by the batch that we have under that number.
func (t *tracker) overlap(m message) {
	same, _ := t.at.compare(m)
	switch {
	case m.seq == t.at.seq && same:
		t.at.unbroken = true
	case m.seq == t.at.seq:
		t.restarted(fmt.Sprintf("another batch %d", m.seq))
	case m.seq == t.at.seq+1 && t.at.unbroken:
		t.take(m)
	default:
		t.lose(fmt.Sprintf("batch %d is no longer in the replay buffer, which begins with %d", t.at.seq, m.seq))
		t.take(m)
	}
}

// replayEnded takes the end marker.
func (t *tracker) replayEnded(now time.Time) {
	if !t.ask.req.open {
		return
	}
	t.ask.answers, t.ask.silences = true, 0
	t.closeReplay()
	switch {
	case t.ask.req.whole && t.ask.req.quiet: // no history there either
		t.quiet(now)
	case !t.ask.req.answered && t.at.known: // it has nothing as new as what we have
		t.restarted(fmt.Sprintf("its newest batch is older than %d", t.at.seq))
	case t.ask.req.quiet:
		t.quiet(now)
	default:
		t.drain(now)
	}
}

// drain applies the batches held during the replay and continues to follow. If batches between the replay
// and the held batches are missing, drain asks again.
func (t *tracker) drain(now time.Time) {
	for i, m := range t.backlog.held {
		switch {
		case !t.at.known:
			t.at.partial = t.at.partial || m.seq > 0
			t.take(m)
		case m.seq == t.at.seq+1:
			t.take(m)
		case m.seq <= t.at.seq:
			// One of the two is of an engine that has ended; only a new replay can tell which.
			if same, known := t.at.compare(m); known && !same {
				t.backlog.drop()
				t.restarted(fmt.Sprintf("another batch %d", m.seq))
				return
			}
			t.stats.Duplicates++
		default:
			t.backlog.held = t.backlog.held[i:]
			t.retry(now, fmt.Sprintf("batches %d to %d missing after the replay", t.at.seq+1, m.seq-1))
			return
		}
	}
	t.backlog.drop()
	t.follow(now, "in step with the engine")
}

func (t *tracker) follow(now time.Time, reason string) {
	t.phase = following
	t.say(Live, reason)
	t.planAudit(now, min(settle, t.settings.audit))
}

// retry asks once more within one sync, as long as that gets us anywhere.
func (t *tracker) retry(now time.Time, reason string) {
	t.closeReplay()
	switch {
	case t.ask.req.progress:
		t.ask.req.tries = 0
	// which did not help last time either
	case t.ask.req.tries >= maxTries, t.ask.silences > maxTries, t.at.partial:
		t.giveUp(now, reason)
		return
	}
	t.sync(reason)
}

// giveUp continues without the replay, and forgets the blocks that may be wrong without it.
func (t *tracker) giveUp(now time.Time, reason string) {
	t.ask.req.tries = 0
	t.at.partial = true
	if t.at.known && !t.seamless() {
		t.lose(reason + ", and replay does not help")
	}
	t.drain(now)
}

// seamless reports whether the held batches follow on the applied ones without a gap.
func (t *tracker) seamless() bool {
	return t.at.unbroken && (len(t.backlog.held) == 0 || t.backlog.held[0].seq <= t.at.seq+1)
}

// audited takes a batch of an audit. Live batches are applied at the same time, so most batches of an audit
// are known. A batch that is not known was lost on the way here.
func (t *tracker) audited(m message) {
	switch {
	case t.ask.req.whole || !t.at.known:
		if t.at.known {
			t.forget("history to be had after all")
		}
		t.ask.req.quiet = false
		t.at.partial = false
		t.phase = asking
		t.say(Syncing, "history to be had after all")
		t.take(m)
	case m.seq <= t.at.seq:
		if same, known := t.at.compare(m); known && !same {
			t.closeReplay()
			t.restarted(fmt.Sprintf("another batch %d", m.seq))
		}
	case m.seq == t.at.seq+1:
		t.stats.Gaps++
		t.take(m)
	default:
		t.stats.Gaps++
		t.closeReplay()
		t.sync(fmt.Sprintf("batches %d to %d missing", t.at.seq+1, m.seq-1))
	}
}

func (t *tracker) planAudit(now time.Time, mean time.Duration) {
	t.ask.req.tries = 0
	if !t.settings.replay || t.settings.audit <= 0 {
		return
	}
	t.ask.auditAt = now.Add(mean*3/4 + time.Duration(t.rnd.Int64N(int64(mean/2)+1)))
}

// tick does the work that is due.
func (t *tracker) tick(now time.Time) {
	switch {
	case due(t.down.patience, now):
		t.down.patience = time.Time{}
		if t.phase == down {
			t.say(Stale, "no connection")
		}
	case t.ask.req.open && due(t.ask.req.deadline, now):
		t.fellSilent(now)
	case due(t.ask.auditAt, now) && t.phase == following && !t.ask.req.open:
		t.request(true, t.at.partial)
	}
}

// fellSilent ends a replay that stopped before its end marker.
func (t *tracker) fellSilent(now time.Time) {
	t.stats.Timeouts++
	if !t.ask.req.answered {
		t.ask.silences++
	}
	if t.ask.req.quiet {
		if !t.ask.req.answered {
			t.judge()
		}
		t.closeReplay()
		t.planAudit(now, t.settings.audit<<min(t.ask.silences, rarely))
		return
	}
	t.retry(now, "replay fell silent")
}

// rarely is how often the time between two audits is doubled for an engine that leaves replays unanswered.
const rarely = 3

// standing returns the expectation for the next replay.
func (t *replays) standing() standing {
	switch {
	case t.silences > 0:
		return doubtful
	case t.answers:
		return proven
	}
	return unheard
}

func due(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }

// next returns when tick has something to do, zero for never.
func (t *tracker) next() time.Time {
	var next time.Time
	for _, at := range [...]time.Time{t.down.patience, t.ask.auditAt, t.ask.req.deadline} {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}
