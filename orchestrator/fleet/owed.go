package fleet

import (
	"sync/atomic"
	"time"
)

// Many engines can say which token ids a prompt has. An engine that stands still is not asked while another
// can be. A request that asks it would wait for timeouts.tokenize, and the engine may be known as down only
// much later.

// owedLong is how long an engine may owe the answer to a question about tokens. Usual answers take some
// milliseconds, and answers for the longest prompts a tenth of a second.
const owedLong = 250 * time.Millisecond

// owed is since when an engine has owed an answer, if it has given no sign of life since then. The times are
// times of [liveness.Clock.Running], at least 1; 0 is never. Safe for concurrent use.
type owed struct{ since atomic.Int64 }

// asked notes that the engine is asked something now. silence is the time since its last sign of life.
func (o *owed) asked(now, silence time.Duration) {
	since := o.since.Load()
	if since == 0 || silence <= now-time.Duration(since) {
		o.since.CompareAndSwap(since, int64(max(now, 1)))
	}
}

// long reports whether the engine has owed an answer for longer than owedLong.
func (o *owed) long(now, silence time.Duration) bool {
	since := o.since.Load()
	age := now - time.Duration(since)
	return since > 0 && age > owedLong && silence > age
}

// promptly extends skip, which may be nil: it also leaves out the engines that owe an answer now.
func promptly(skip func(*Endpoint) bool) func(*Endpoint) bool {
	now := time.Now()
	return func(e *Endpoint) bool { return skip != nil && skip(e) || e.Owes(now) }
}
