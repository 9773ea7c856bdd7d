package kvevents

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cespare/xxhash/v2"
)

// effects is what a tracker wants done. The follower does it with sockets, tests write it down.
type effects interface {
	apply(m message) error // decode m and give it to the sink, or say why it must not have it
	forget(reason string)
	state(s State, reason string)
	ask(from uint64) // open a replay that begins with batch from, in place of one under way
	closeReplay()    // close the replay under way, if any
}

// tracker is the sequence logic of one stream: what to apply, what to drop, when to ask for a replay, when to
// forget. It has no socket, no clock and no goroutine.
//
//	       connected                    end of replay, what came meanwhile drained
//	down ------------> asking ------------------------------------------------------> following
//	  ^     (no replay endpoint: following at once)                                      |
//	  |                   ^---- gap, or sequence fallen back ----------------------------'
//	  '---- disconnected, from anywhere
//
// A replay begins with the newest batch that was applied, not with the one after it: the same bytes under the
// same number prove that engine and history are still the same, other bytes or nothing at all prove a
// restart. The numbers alone cannot: a restarted engine reaches the old number again.
//
// Owned by one goroutine.
type tracker struct {
	fx     effects
	replay bool          // there is a replay endpoint
	silent time.Duration // longest wait for the first batch of a replay
	audit  time.Duration // mean time between audits, 0 for none
	rnd    *rand.Rand
	stats  *Stats

	phase    phase
	said     bool // the sink knows of a state
	told     State
	known    bool      // seq is valid: a batch was applied since the last forget
	seq      uint64    // newest batch applied
	applied  bool      // the sink holds something
	unbroken bool      // the connection that seq came over, or was proven over, still stands
	remains  bool      // while down: batches of the connection before may still come, and may be believed
	away     time.Time // since when there has been no connection, zero where there is one
	partial  bool      // history is missing because no replay brought it
	recent   [256]imprint

	hasLive   bool // liveSeq is valid for this connection
	liveSeq   uint64
	held      []message // live batches waiting for the end of a replay, oldest first
	heldBytes int
	req       request
	answers   bool      // a replay was answered once
	silences  int       // replays since then that were not
	auditAt   time.Time // zero: not planned
	patience  time.Time // when being down becomes worth saying, zero: said
}

type phase uint8

const (
	down phase = iota
	asking
	following
)

// imprint remembers a batch by number and content.
type imprint struct {
	seq uint64
	sum uint64
	set bool
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

const (
	maxTries     = 3
	maxHeldBytes = 64 << 20
	firstPatient = 5 * time.Second
	// Longest silence between two batches of a replay: then its rest was dropped, the end marker too.
	midReplay     = time.Second
	quickestStart = 5 * time.Second // no engine loads its model and announces blocks sooner
	// The first audit comes this soon: a batch sent before our subscription took effect shows then.
	settle = time.Second
)

// start says that the stream is being looked for.
func (t *tracker) start(now time.Time) {
	t.patience = now.Add(firstPatient)
	t.say(Syncing, "connecting")
}

// connected says that the publisher answered and has our subscription, or will in a moment.
func (t *tracker) connected(now time.Time) {
	t.hasLive = false
	t.remains = false
	t.patience = time.Time{}
	t.drop()
	long := !t.away.IsZero() && now.Sub(t.away) >= quickestStart
	t.away = time.Time{}
	switch {
	case !t.replay && t.known && long:
		t.forget("gone for long enough to have been restarted, and there is no replay to tell")
		t.partial = false
		t.follow(now, "connected; without a replay endpoint history stays unknown")
	case t.replay:
		t.req.tries = 0
		t.sync("connected")
	case t.known: // only the next batch can tell whether this is the same engine still
		t.phase = following
	default:
		t.follow(now, "connected; without a replay endpoint history stays unknown")
	}
}

// disconnected says that the connection is gone, or has been silent for too long.
func (t *tracker) disconnected(now time.Time) {
	if t.away.IsZero() {
		t.away = now
	}
	t.remains = t.unbroken && t.known && !t.replay
	t.phase = down
	t.unbroken = false
	t.hasLive = false
	t.patience, t.auditAt = time.Time{}, time.Time{}
	t.drop()
	t.closeReplay()
	t.say(Stale, "connection lost")
}

// asked says that the replay request has gone out: its answer may be waited for from now on.
func (t *tracker) asked(now time.Time) { t.req.deadline = now.Add(t.silent) }

// live takes a batch from the subscription.
func (t *tracker) live(m message) {
	if t.phase == down {
		t.early(m)
		return
	}
	back := t.hasLive && m.seq <= t.liveSeq
	t.hasLive, t.liveSeq = true, m.seq
	switch {
	case back: // a publisher never repeats itself
		t.drop()
		t.restarted("sequence fell back", m)
	case t.phase == asking:
		t.hold(m)
	case !t.known:
		t.begin(m)
	case m.seq == t.seq+1:
		t.take(m)
	case m.seq > t.seq+1:
		t.gap(m)
	default:
		t.again(m)
	}
}

// early takes a batch while there is no connection: what was left of the one before. A replay brings it
// again; without one it saves us from a gap, if that connection had proven to be of the engine that we know.
func (t *tracker) early(m message) {
	if t.remains && m.seq == t.seq+1 {
		t.take(m)
		t.unbroken = false
	}
}

// begin takes the first batch of all.
func (t *tracker) begin(m message) {
	if t.replay && m.seq > 0 && !t.partial {
		t.hold(m)
		t.sync(fmt.Sprintf("batches before %d missing", m.seq))
		return
	}
	t.take(m)
}

func (t *tracker) gap(m message) {
	t.stats.Gaps++
	reason := fmt.Sprintf("batches %d to %d missing", t.seq+1, m.seq-1)
	if t.replay {
		t.hold(m)
		t.sync(reason)
		return
	}
	t.lose(reason + ", no replay endpoint")
	t.take(m)
}

// again takes a live batch with a number that was applied already. A replay that overtook the subscription
// leaves such; so does a restart.
func (t *tracker) again(m message) {
	switch same, known := t.compare(m); {
	case same:
		t.stats.Duplicates++
	case known || !t.replay:
		t.restarted("sequence fell back", m)
	default: // too old to tell: let the replay buffer decide
		t.hold(m)
		t.sync(fmt.Sprintf("batch %d again", m.seq))
	}
}

// restarted forgets the old engine and turns to the new one. carry is its first batch that we have, if any.
func (t *tracker) restarted(reason string, carry ...message) {
	t.stats.Restarts++
	t.forget(Restart + reason)
	t.partial = false
	if t.replay {
		for _, m := range carry {
			t.hold(m)
		}
		t.req.tries = 0
		t.sync("engine restarted")
		return
	}
	for _, m := range carry {
		t.take(m)
	}
}

// replaced says that somebody else has seen the engine restart: what was applied may be of either process, so
// all of it is void, and what was held too.
func (t *tracker) replaced(reason string) {
	t.drop()
	t.remains = false
	if t.phase != down {
		t.restarted(reason)
		return
	}
	t.stats.Restarts++
	t.partial = false
	t.forget(Restart + reason)
}

// lose forgets what can no longer be kept true.
func (t *tracker) lose(reason string) {
	t.stats.Lost++
	t.forget(reason)
	t.say(Stale, reason)
}

func (t *tracker) forget(reason string) {
	t.known, t.applied = false, false
	t.recent = [len(t.recent)]imprint{}
	t.fx.forget(reason)
}

// take applies the next batch.
func (t *tracker) take(m message) {
	t.known = true
	t.seq = m.seq
	t.unbroken = true
	t.recent[m.seq%uint64(len(t.recent))] = imprint{seq: m.seq, sum: xxhash.Sum64(m.payload), set: true}
	t.req.progress = true
	if err := t.fx.apply(m); err != nil {
		t.unreadable(fmt.Sprintf("batch %d %v", m.seq, err))
		return
	}
	t.applied = true
	if t.phase == following {
		t.say(Live, "following")
	}
}

// unreadable voids what was applied: the batch may have said that any of it is gone. The place in the
// sequence stays known.
func (t *tracker) unreadable(reason string) {
	if t.applied {
		t.applied = false
		t.fx.forget(reason)
	}
	t.say(Stale, reason)
}

// compare reports whether m is the batch that was applied under its number, and whether that can be told.
func (t *tracker) compare(m message) (same, known bool) {
	old := t.recent[m.seq%uint64(len(t.recent))]
	if !old.set || old.seq != m.seq {
		return false, false
	}
	return old.sum == xxhash.Sum64(m.payload), true
}

// hold keeps a live batch for the end of the replay. At the bound the older ones go, and show as a gap then.
func (t *tracker) hold(m message) {
	if t.heldBytes+len(m.payload) > maxHeldBytes {
		t.drop()
	}
	t.held = append(t.held, m)
	t.heldBytes += len(m.payload)
}

func (t *tracker) drop() { t.held, t.heldBytes = nil, 0 }

// say tells the sink of a state that it does not know of.
func (t *tracker) say(s State, reason string) {
	if t.said && t.told == s {
		return
	}
	t.said = true
	t.told = s
	t.stats.State = s
	t.fx.state(s, reason)
}
