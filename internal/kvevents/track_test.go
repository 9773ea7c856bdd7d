package kvevents

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world is an engine, a network and a sink around a tracker. It has no goroutines and no real clock.
type world struct {
	now   time.Time
	track *tracker
	stats Stats

	// The engine.
	life   int  // number of restarts
	fresh  bool // no batch of this life has arrived yet
	next   uint64
	buffer []message
	steps  int // limit of batches in buffer
	bad    bool

	// The network.
	up      bool
	live    []message // batches on the way to the follower
	wanted  bool      // a replay request is on the way to the engine
	from    uint64
	replies []reply // replies on the way to the follower
	serving bool

	// The sink.
	applied []message
	told    State
	log     []string
}

type reply struct {
	message
	end bool
}

func newWorld(replay bool, steps int) *world {
	w := &world{now: time.Unix(1000, 0), steps: steps}
	w.track = &tracker{
		fx: w, stats: &w.stats, rnd: rand.New(rand.NewPCG(1, 2)),
		settings: trackSettings{replay: replay, silent: 5 * time.Second, audit: 30 * time.Second},
	}
	w.track.start(w.now)
	return w
}

func (w *world) apply(m message) error {
	if strings.HasSuffix(string(m.payload), "bad") {
		return errUnread
	}
	w.applied = append(w.applied, m)
	w.note("apply %s", m.payload)
	return nil
}

func (w *world) forget(reason string) {
	w.applied = nil
	w.note("forget (%s)", reason)
}

func (w *world) ask(from uint64) {
	w.closeReplay()
	w.wanted, w.from = true, from
	w.note("ask %d", from)
}

func (w *world) closeReplay() {
	w.wanted = false
	w.serving = false
	w.replies = nil
}

func (w *world) note(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func (w *world) state(s State, reason string) {
	w.told = s
	w.note("%s (%s)", s, reason)
}

// publish makes a batch. arrives says whether the network delivers the batch live.
func (w *world) publish(arrives, bad bool) {
	if !w.track.settings.replay && w.fresh && !(w.up && arrives) {
		return // without replay, no follower could notice a restart whose first batch is lost
	}
	payload := fmt.Sprintf("life %d batch %d", w.life, w.next)
	if bad {
		payload += " bad"
		w.bad = true
	}
	m := message{seq: w.next, payload: []byte(payload)}
	w.next++
	w.buffer = append(w.buffer, m)
	w.buffer = w.buffer[max(0, len(w.buffer)-w.steps):]
	if w.up && arrives {
		w.live = append(w.live, m)
	}
}

func (w *world) deliver() bool {
	if len(w.live) == 0 {
		return false
	}
	m := w.live[0]
	w.live = w.live[1:]
	w.fresh = w.fresh && life(m) != fmt.Sprint("life ", w.life)
	w.track.live(m)
	return true
}

// serve makes the engine receive the replay request and prepare its answer.
func (w *world) serve() bool {
	if !w.wanted {
		return false
	}
	w.wanted, w.serving = false, true
	w.track.asked(w.now)
	if !w.up {
		return true
	}
	for _, m := range w.buffer {
		if m.seq >= w.from {
			w.replies = append(w.replies, reply{message: m})
		}
	}
	w.replies = append(w.replies, reply{end: true})
	return true
}

func (w *world) reply() bool {
	if len(w.replies) == 0 {
		return false
	}
	r := w.replies[0]
	w.replies = w.replies[1:]
	if r.end {
		w.track.replayEnded(w.now)
	} else {
		w.track.replayed(w.now, r.message)
	}
	return true
}

// pass advances the time until a timer of the tracker is due.
func (w *world) pass() bool {
	next := w.track.next()
	if next.IsZero() {
		return false
	}
	if next.After(w.now) {
		w.now = next
	}
	w.track.tick(w.now)
	return true
}

func (w *world) connect() {
	if !w.up {
		w.up = true
		w.live = nil // the follower drops the remaining messages of the old connection
		w.note("connected")
		w.track.connected(w.now)
	}
}

func (w *world) disconnect() {
	if w.up {
		for w.fresh && w.deliver() {
		}
		w.up = false
		w.note("disconnected")
		w.track.disconnected(w.now)
	}
}

func (w *world) restart() {
	w.disconnect()
	w.life++
	w.next = 0
	w.buffer = nil
	w.fresh = true
	w.note("engine restarts")
}

// lose drops one reply of a replay. It may drop the end marker, but never the first reply: a ROUTER socket
// drops messages only when its queue is full.
func (w *world) lose(i int) {
	if i < len(w.replies) {
		w.replies = append(w.replies[:i:i], w.replies[i+1:]...)
	}
}

// check tests what must be true after every step.
func (w *world) check(t *rapid.T) {
	for i := 1; i < len(w.applied); i++ {
		if a, b := w.applied[i-1], w.applied[i]; b.seq != a.seq+1 || life(a) != life(b) {
			t.Fatalf("got %q applied after %q, want the next batch of the same life\n%s",
				b.payload, a.payload, w.tail())
		}
	}
	if w.told != Live {
		return
	}
	if !w.up {
		t.Fatalf("the tracker is live without a connection\n%s", w.tail())
	}
	if len(w.applied) > 0 && life(w.applied[0]) != fmt.Sprint("life ", w.life) {
		t.Fatalf("the tracker is live with %q in life %d\n%s", w.applied[0].payload, w.life, w.tail())
	}
}

func life(m message) string {
	before, _, _ := strings.Cut(string(m.payload), " batch")
	return before
}

func (w *world) tail() string { return strings.Join(w.log[max(0, len(w.log)-60):], "\n") }

// settle ends all faults and delivers all messages on the way, including those of audits.
func (w *world) settle(t *rapid.T) {
	w.connect()
	if !w.track.settings.replay { // only a new batch can show whether the engine is still the same
		w.publish(true, false)
	}
	for range 2000 {
		for w.deliver() || w.serve() || w.reply() {
			w.check(t)
		}
		if w.inStep() && w.told == Live && !w.track.ask.req.open {
			return
		}
		if !w.pass() {
			break
		}
		w.check(t)
	}
	t.Fatalf("the follower did not catch up: got %s, %d applied; the engine is at %d with %d buffered\n%s",
		w.told, len(w.applied), w.next, len(w.buffer), w.tail())
}

// inStep reports whether the sink has the newest batch and all batches that the engine can still replay.
func (w *world) inStep() bool {
	if !w.track.settings.replay {
		return true // the engine has no replay endpoint
	}
	if len(w.buffer) == 0 {
		return len(w.applied) == 0
	}
	n := len(w.applied)
	return n > 0 && w.applied[n-1].seq == w.next-1 && (w.bad || w.applied[0].seq <= w.buffer[0].seq)
}

// In TestTrackerModel, a random engine publishes, restarts and loses batches on a random network. The applied
// batches must always be an unbroken sequence of one life of the engine. Live must mean that this is the
// present life. When the faults end, the follower must catch up without help.
func TestTrackerModel(t *testing.T) {
	for _, replay := range []bool{true, false} {
		t.Run(fmt.Sprintf("replay %v", replay), func(t *testing.T) {
			model := func(t *rapid.T) {
				w := newWorld(replay, rapid.SampledFrom([]int{1, 3, 10, 1000}).Draw(t, "buffer_steps"))
				t.Repeat(map[string]func(*rapid.T){
					"publish": func(t *rapid.T) {
						for range rapid.IntRange(1, 4).Draw(t, "batches") {
							w.publish(true, false)
						}
					},
					"publish unseen":     func(t *rapid.T) { w.publish(false, false) },
					"publish unreadable": func(t *rapid.T) { w.publish(true, true) },
					"deliver":            func(t *rapid.T) { w.deliver() },
					"deliver all": func(t *rapid.T) {
						for w.deliver() {
						}
					},
					"serve": func(t *rapid.T) { w.serve() },
					"reply": func(t *rapid.T) { w.reply() },
					"reply all": func(t *rapid.T) {
						for w.reply() {
						}
					},
					"all arrives": func(t *rapid.T) {
						for w.deliver() || w.serve() || w.reply() {
							w.check(t)
						}
					},
					"ignore request": func(t *rapid.T) {
						if w.serve() {
							w.replies = nil
						}
					},
					"lose reply":                      func(t *rapid.T) { w.lose(rapid.IntRange(1, 20).Draw(t, "index")) },
					"pass":                            func(t *rapid.T) { w.pass() },
					"connect":                         func(t *rapid.T) { w.connect() },
					"disconnect":                      func(t *rapid.T) { w.disconnect() },
					"restart":                         func(t *rapid.T) { w.restart() },
					"missed":                          func(t *rapid.T) { w.track.suspect("missed") },
					"told of a restart that was none": func(t *rapid.T) { w.track.replaced("told") },
					"told of a restart behind a proxy": func(t *rapid.T) {
						if w.track.settings.replay {
							w.life++
							w.next = 0
							w.buffer = nil
							w.live = nil
							w.replies = nil
							w.track.replaced("told")
						}
					},
					"": func(t *rapid.T) { w.check(t) },
				})
				w.publish(true, false)
				w.settle(t)
			}
			for range 100 { // the usual hundred runs of rapid are too few for so many kinds of faults
				rapid.Check(t, model)
			}
		})
	}
}
