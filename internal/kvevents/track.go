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

// tracker is the sequence logic of one stream: what to apply, what to drop, when to ask for a replay, when
// to forget. It has no socket, no clock and no goroutine.
//
//	       connected                    end of replay, what came meanwhile drained
//	down ------------> asking ------------------------------------------------------> following
//	  ^     (no replay endpoint: following at once)                                      |
//	  |                   ^---- gap, or sequence fallen back ----------------------------'
//	  '---- disconnected, from anywhere
//
// A replay begins with the newest batch that was applied, not with the batch after it. The same bytes under
// the same number prove that engine and history are still the same. Other bytes, or nothing at all, prove a
// restart. The numbers alone cannot prove either: a restarted engine reaches the old number again.
//
// Owned by one goroutine.
type tracker struct {
	fx       effects
	settings trackSettings
	rnd      *rand.Rand
	stats    *Stats

	phase phase
	said  bool // the sink knows the state in stats
	at    position
	down  absence

	backlog backlog
	ask     replays
	mute    string // the evidence that the publisher is silent, see suspect; "" for none
}

// trackSettings is how a stream is followed.
type trackSettings struct {
	replay bool          // there is a replay endpoint
	silent time.Duration // longest wait for the first batch of a replay
	audit  time.Duration // mean time between audits, 0 for none
}

// position is how far the sink has come in the stream, and whether that can be proven of the engine that is
// there now.
type position struct {
	known    bool   // seq is valid: a batch was applied since the last forget
	seq      uint64 // newest batch applied
	applied  bool   // the sink holds something
	unbroken bool   // the connection that seq came over, or was proven over, still stands
	remains  bool   // while down: batches of the connection before may still come, and may be believed
	partial  bool   // history is missing because no replay brought it
	recent   [256]imprint
}

// backlog is what the connection brought while a replay was under way.
type backlog struct {
	hasLive   bool // liveSeq is valid for this connection
	liveSeq   uint64
	held      []message // live batches waiting for the end of a replay, oldest first
	heldBytes int
}

// absence is how long there has been no connection.
type absence struct {
	away     time.Time // since when there has been no connection, zero where there is one
	patience time.Time // when being down becomes worth saying, zero: said
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
	t.down.patience = now.Add(firstPatient)
	t.say(Syncing, "connecting")
}

// connected says that the publisher answered and has our subscription, or will in a moment.
func (t *tracker) connected(now time.Time) {
	t.backlog.hasLive = false
	t.at.remains = false
	t.down.patience = time.Time{}
	t.backlog.drop()
	long := !t.down.away.IsZero() && now.Sub(t.down.away) >= quickestStart
	t.down.away = time.Time{}
	switch {
	case !t.settings.replay && t.at.known && long:
		t.forget("absent for long enough to have been restarted, and without a replay endpoint")
		t.at.partial = false
		t.follow(now, "connected; without a replay endpoint history stays unknown")
	case t.settings.replay:
		t.ask.req.tries = 0
		t.sync("connected")
	case t.at.known: // only the next batch can tell whether this is the same engine still
		t.phase = following
	default:
		t.follow(now, "connected; without a replay endpoint history stays unknown")
	}
}

// disconnected says that the connection is gone, or has been silent for too long.
func (t *tracker) disconnected(now time.Time) {
	if t.down.away.IsZero() {
		t.down.away = now
	}
	t.at.remains = t.at.unbroken && t.at.known && !t.settings.replay
	t.phase = down
	t.at.unbroken = false
	t.backlog.hasLive = false
	t.down.patience, t.ask.auditAt = time.Time{}, time.Time{}
	t.backlog.drop()
	t.closeReplay()
	t.heard()
	t.say(Stale, "connection lost")
}

// asked says that the replay request has gone out: its answer may be waited for from now on.
func (t *tracker) asked(now time.Time) { t.ask.req.deadline = now.Add(t.settings.silent) }

// live takes a batch from the subscription.
func (t *tracker) live(m message) {
	if t.phase == down {
		t.early(m)
		return
	}
	back := t.backlog.hasLive && m.seq <= t.backlog.liveSeq
	t.backlog.hasLive, t.backlog.liveSeq = true, m.seq
	switch {
	case back: // a publisher never repeats itself
		t.backlog.drop()
		t.restarted("sequence fell back", m)
	case t.phase == asking:
		t.backlog.hold(m)
	case !t.at.known:
		t.begin(m)
	case m.seq == t.at.seq+1:
		t.take(m)
	case m.seq > t.at.seq+1:
		t.gap(m)
	default:
		t.again(m)
	}
}

// early takes a batch that comes while there is no connection: a rest of the connection before. A replay
// brings the batch again. Without a replay, taking it avoids a gap, if the old connection had proven to be
// of the known engine.
func (t *tracker) early(m message) {
	if t.at.remains && m.seq == t.at.seq+1 {
		t.take(m)
		t.at.unbroken = false
	}
}

// begin takes the first batch of all.
func (t *tracker) begin(m message) {
	if t.settings.replay && m.seq > 0 && !t.at.partial {
		t.backlog.hold(m)
		t.sync(fmt.Sprintf("batches before %d missing", m.seq))
		return
	}
	t.take(m)
}

func (t *tracker) gap(m message) {
	t.stats.Gaps++
	reason := fmt.Sprintf("batches %d to %d missing", t.at.seq+1, m.seq-1)
	if t.settings.replay {
		t.backlog.hold(m)
		t.sync(reason)
		return
	}
	t.lose(reason + ", no replay endpoint")
	t.take(m)
}

// again takes a live batch with a number that was applied already. A replay that overtook the subscription
// leaves such; so does a restart.
func (t *tracker) again(m message) {
	switch same, known := t.at.compare(m); {
	case same:
		t.stats.Duplicates++
	case known || !t.settings.replay:
		t.restarted("sequence fell back", m)
	default: // too old to tell: let the replay buffer decide
		t.backlog.hold(m)
		t.sync(fmt.Sprintf("batch %d again", m.seq))
	}
}

// restarted forgets the old engine and turns to the new one. carry is its first batch that we have, if any.
func (t *tracker) restarted(reason string, carry ...message) {
	t.stats.Restarts++
	t.forget(Restart + reason)
	t.at.partial = false
	if t.settings.replay {
		for _, m := range carry {
			t.backlog.hold(m)
		}
		t.ask.req.tries = 0
		t.sync("engine restarted")
		return
	}
	for _, m := range carry {
		t.take(m)
	}
}

// replaced is for a restart of the engine that another part of the router has seen. The applied batches may
// come from either process, so all blocks are void. The held batches are dropped too.
func (t *tracker) replaced(reason string) {
	t.backlog.drop()
	t.at.remains = false
	if t.phase != down {
		t.restarted(reason)
		return
	}
	t.stats.Restarts++
	t.at.partial = false
	t.forget(Restart + reason)
}

// lose forgets all blocks, because later batches can no longer keep them true.
func (t *tracker) lose(reason string) {
	t.stats.Lost++
	t.forget(reason)
	t.say(Stale, reason)
}

func (t *tracker) forget(reason string) {
	t.at.known, t.at.applied = false, false
	t.at.recent = [len(t.at.recent)]imprint{}
	t.fx.forget(reason)
}

// take applies the next batch.
func (t *tracker) take(m message) {
	t.at.known = true
	t.at.seq = m.seq
	t.at.unbroken = true
	t.at.recent[m.seq%uint64(len(t.at.recent))] = imprint{seq: m.seq, sum: xxhash.Sum64(m.payload), set: true}
	t.ask.req.progress = true
	t.heard()
	if err := t.fx.apply(m); err != nil {
		t.unreadable(fmt.Sprintf("batch %d %v", m.seq, err))
		return
	}
	t.at.applied = true
	if t.phase == following {
		t.say(Live, "following")
	}
}

// unreadable voids all applied batches, since the unreadable batch may have removed any block. The place in
// the sequence stays known.
func (t *tracker) unreadable(reason string) {
	if t.at.applied {
		t.at.applied = false
		t.fx.forget(reason)
	}
	t.say(Stale, reason)
}

// compare reports whether m is the batch that was applied under its number; known is false where it cannot
// tell.
func (t *position) compare(m message) (same, known bool) {
	old := t.recent[m.seq%uint64(len(t.recent))]
	if !old.set || old.seq != m.seq {
		return false, false
	}
	return old.sum == xxhash.Sum64(m.payload), true
}

// hold keeps a live batch for the end of the replay. At the bound the older ones go, and show as a gap then.
func (t *backlog) hold(m message) {
	if t.heldBytes+len(m.payload) > maxHeldBytes {
		t.drop()
	}
	t.held = append(t.held, m)
	t.heldBytes += len(m.payload)
}

func (t *backlog) drop() { t.held, t.heldBytes = nil, 0 }

// say tells the sink of a state that it does not know of.
func (t *tracker) say(s State, reason string) {
	if t.said && t.stats.State == s {
		return
	}
	t.said = true
	t.stats.State = s
	t.fx.state(s, reason)
}
