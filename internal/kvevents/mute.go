package kvevents

import "time"

// Mute is the end of the reason of [Stale] when the engine serves and its publisher is silent. A silent
// publisher announces no blocks, although the engine must have stored some, and answers no request for a
// replay.
const Mute = ": its event publisher is dead or hangs; restart the engine"

// suspect notes for the given reason that the engine stored blocks without an event. The tracker asks the
// publisher for a replay, and stops believing a publisher that does not answer. A publisher without a replay
// endpoint is not believed from now on.
func (t *tracker) suspect(reason string) {
	if t.phase != following || t.stats.State != Live {
		return
	}
	t.mute = reason
	switch {
	case !t.settings.replay:
		t.judge()
	case !t.ask.req.open:
		t.request(true, t.at.partial)
	}
}

// judge makes a suspected stream stale: neither a batch nor a replay has come.
func (t *tracker) judge() {
	if t.mute != "" {
		t.say(Stale, t.mute+Mute)
	}
}

// heard notes that the publisher lives.
func (t *tracker) heard() { t.mute = "" }

// quiet ends an audit that found nothing new. A stream that was mute before is live again.
func (t *tracker) quiet(now time.Time) {
	if t.mute != "" {
		t.say(Live, "its event publisher answers again")
	}
	t.heard()
	t.planAudit(now, t.settings.audit)
}
