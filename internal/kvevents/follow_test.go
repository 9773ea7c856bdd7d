package kvevents

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tandem-router/tandem/internal/kv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a Sink that records its calls.
type recorder struct {
	changed chan struct{} // room for one signal that there is a new call

	mu    sync.Mutex // guards the following
	log   []string   // calls such as "state live", "forget" and "apply 7"
	why   []string   // reasons, in the same order
	seqs  []uint64   // the batches applied since the last Forget
	ranks []int
	state State
}

func newRecorder() *recorder { return &recorder{changed: make(chan struct{}, 1)} }

func (r *recorder) add(what, why string) {
	r.log = append(r.log, what)
	r.why = append(r.why, why)
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *recorder) Apply(b *kv.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seqs = append(r.seqs, b.Seq)
	r.ranks = append(r.ranks, b.Rank)
	r.add(fmt.Sprintf("apply %d", b.Seq), "")
}

func (r *recorder) Forget(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seqs = nil
	r.add("forget", reason)
}

func (r *recorder) State(s State, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = s
	r.add("state "+s.String(), reason)
}

// longest limits the wait for an event that must happen. Only a failing test waits for so long.
const longest = 3 * time.Minute

// until waits for a condition on the recorded calls.
func (r *recorder) until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(longest)
	defer deadline.Stop()
	for {
		r.mu.Lock()
		done := ok()
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case <-r.changed:
		case <-deadline.C:
			r.mu.Lock()
			defer r.mu.Unlock()
			t.Fatalf("no %s in time; log: %s", what, r.story())
		}
	}
}

// story returns the log with sequences of applies shortened. mu must be held.
func (r *recorder) story() string {
	var parts []string
	for i, what := range r.log {
		if r.why[i] != "" {
			what += " (" + r.why[i] + ")"
		}
		n := len(parts)
		if strings.HasPrefix(what, "apply") && n > 1 && strings.HasPrefix(parts[n-1], "apply") &&
			strings.HasPrefix(parts[n-2], "apply") {
			parts[n-1] = "apply … " + what[len("apply "):]
			continue
		}
		parts = append(parts, what)
	}
	return strings.Join(parts, "; ")
}

// through waits until the follower is live and, since the last Forget, has applied exactly the batches first
// to last.
func (r *recorder) through(t testing.TB, first, last uint64) {
	t.Helper()
	r.until(t, fmt.Sprintf("live with batches %d to %d", first, last), func() bool {
		return r.state == Live && slices.Equal(r.seqs, span(first, last))
	})
}

func (r *recorder) isLive(t testing.TB) {
	t.Helper()
	r.until(t, "live", func() bool { return r.state == Live })
}

func (r *recorder) count(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, l := range r.log {
		if l == what {
			n++
		}
	}
	return n
}

func span(first, last uint64) []uint64 {
	var s []uint64
	for i := first; i <= last; i++ {
		s = append(s, i)
	}
	return s
}

// engine is a publisher that makes up its batches.
type engine struct {
	*Publisher
	born int64
	n    int64
	rank int
}

func newEngine(t testing.TB, o PublisherOptions) *engine {
	t.Helper()
	if o.Endpoint == "" {
		o.Endpoint, o.Replay = "tcp://127.0.0.1:0", "tcp://127.0.0.1:0"
	}
	p, err := NewPublisher(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return &engine{Publisher: p, born: time.Now().UnixNano()}
}

// publish sends n different batches.
func (e *engine) publish(n int) {
	for range n {
		e.n++
		hash := kv.EngineHash(e.born + e.n)
		e.Publish(&EncodeBatch{At: time.Now(), Rank: e.rank, Events: []kv.Event{
			{
				Kind: kv.Stored, Hashes: []kv.EngineHash{hash}, Tokens: []kv.Token{1, 2, 3, 4}, BlockSize: 4,
				SpecKind: "full_attention",
			},
		}})
	}
}

func (e *engine) source() Source {
	endpoint, replay := e.Endpoints()
	return Source{Endpoint: endpoint, Replay: replay, Topic: e.o.Topic, Rank: e.rank}
}

// follow runs a follower until the test ends or the returned function is called. The function returns after
// the follower has ended.
func follow(t testing.TB, src Source, o Options) (*Follower, *recorder, func()) {
	t.Helper()
	r := newRecorder()
	f := NewFollower(src, r, o)
	return f, r, run(t, f)
}

func run(t testing.TB, f *Follower) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 1)
	go func() { failed <- f.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-failed; err != nil {
			t.Errorf("got %v from Run, want no error", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// audited enables audits. So a test passes even if a batch was sent before the subscription took effect: a
// test cannot wait for the subscription.
func audited() Options { return Options{Audit: 200 * time.Millisecond} }

// noAudit disables audits, so that only the test causes replays.
func noAudit() Options { return Options{Audit: -1, ReplayTimeout: 2 * time.Second} }

// slower is a Sink that accepts only one batch for every aBatchOf batches that its engine publishes. So it is
// slower than the engine on any machine.
type slower struct {
	*recorder
	published atomic.Int64
	taken     atomic.Int64 // number of batches that were accepted while the sink was slow
	fast      chan struct{}
	more      chan struct{} // room for one signal that more batches were published
}

// aBatchOf is the number of published batches for which a slow sink accepts one.
const aBatchOf = 8

func (s *slower) Apply(b *kv.Batch) {
	for s.taken.Load() >= s.published.Load()/aBatchOf {
		select {
		case <-s.fast:
			s.recorder.Apply(b)
			return
		case <-s.more:
		}
	}
	s.taken.Add(1)
	s.recorder.Apply(b)
}

// publish makes the engine publish n batches.
func (s *slower) publish(e *engine, n int) {
	e.publish(n)
	s.published.Add(int64(n))
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// isAt waits until the follower is live and has applied all published batches. The follower notices a dropped
// batch only at the next batch, so the engine continues to publish one batch at a time.
func (s *slower) isAt(t *testing.T, f *Follower, e *engine) {
	t.Helper()
	waitStats(t, f, "live and up to date", func(now Stats) bool {
		if now.State == Live && now.Known && now.Seq == uint64(e.n-1) {
			return true
		}
		if now.State == Live {
			s.publish(e, 1)
		}
		return false
	})
}

// An engine that publishes faster than the follower applies batches does not fill the memory. The follower
// drops batches from its queue, and fetches them from the replay buffer later.
func TestTooFastForUs(t *testing.T) {
	const enough = 100_000 // batches; the sink accepts an eighth of them, about 48 full queues
	e := newEngine(t, PublisherOptions{BufferSteps: 2 * enough})
	sink := &slower{recorder: newRecorder(), fast: make(chan struct{}), more: make(chan struct{}, 1)}
	sink.published.Store(enough) // at first the sink is as fast as the engine
	// Without audits, only missing live batches count as a gap. Two full queues in a row count as late.
	o := noAudit()
	o.late, o.ReplayTimeout = time.Nanosecond, longest
	f := NewFollower(e.source(), sink, o)
	stop := run(t, f)
	goFast := sync.OnceFunc(func() { close(sink.fast) })
	t.Cleanup(goFast) // runs before stop
	sink.isLive(t)
	sink.isAt(t, f, e)
	before := f.Stats().Gaps
	sink.published.Store(sink.taken.Load() * aBatchOf)
	for f.Stats().Gaps == before {
		if e.n >= enough {
			t.Fatalf("the sink accepted %d of %d batches, want a dropped batch", sink.taken.Load(), e.n)
		}
		sink.publish(e, 64)
	}
	goFast()
	sink.isAt(t, f, e)
	stop()
	if !slices.Equal(sink.seqs, span(0, uint64(e.n-1))) {
		t.Errorf("got %d of %d batches, or another order: %s", len(sink.seqs), e.n, sink.story())
	}
	if slices.Contains(sink.log, "forget") {
		t.Errorf("the follower forgot blocks, although the engine could replay all batches: %s", sink.story())
	}
}

func TestFollowLive(t *testing.T) {
	e := newEngine(t, PublisherOptions{})
	f, r, _ := follow(t, e.source(), noAudit())
	r.isLive(t)
	e.publish(1) // a batch from before the subscription takes effect arrives with the next gap or audit
	for r.count("apply 0") == 0 {
		e.publish(1)
		time.Sleep(time.Millisecond)
	}
	e.publish(50)
	last := uint64(e.n - 1)
	r.through(t, 0, last)
	if s := f.Stats(); s.Seq > last || s.Restarts != 0 || s.Lost != 0 || s.WrongRank != 0 {
		t.Errorf("got stats %+v, want no restart, loss or wrong rank", s)
	}
}

func TestFollowLateJoin(t *testing.T) {
	for _, tt := range []struct {
		name   string
		frames int
		form   Form
		steps  int
	}{
		{"4 frames, maps", 4, Map, 300},
		{"3 frames, arrays", 3, Array, 300},
		{"more than a ROUTER queues", 4, Map, 6000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEngine(t, PublisherOptions{ReplayFrames: tt.frames, Form: tt.form, Topic: "kv@a@m"})
			e.publish(tt.steps)
			// An audit finds the last batches if the ROUTER socket dropped them.
			_, r, _ := follow(t, e.source(), Options{Audit: 300 * time.Millisecond})
			r.through(t, 0, uint64(tt.steps-1))
			if n := r.count("forget"); n != 0 {
				t.Errorf("got %d calls of Forget, want none", n)
			}
		})
	}
}

func TestFollowLateJoinRolledOver(t *testing.T) {
	e := newEngine(t, PublisherOptions{BufferSteps: 10})
	e.publish(25)
	_, r, _ := follow(t, e.source(), noAudit())
	r.through(t, 15, 24)
}

func TestFollowGapFilled(t *testing.T) {
	e := newEngine(t, PublisherOptions{})
	e.publish(3)
	f, r, _ := follow(t, e.source(), audited())
	r.through(t, 0, 2)
	e.Drop(4)
	e.publish(5)
	r.through(t, 0, 7)
	if n := r.count("forget"); n != 0 {
		t.Errorf("got %d calls of Forget, want none", n)
	}
	waitStats(t, f, "a gap", func(s Stats) bool { return s.Gaps >= 1 && s.Lost == 0 })
}

func TestFollowGapAtTheEndFoundByAudit(t *testing.T) {
	e := newEngine(t, PublisherOptions{})
	e.publish(3)
	_, r, _ := follow(t, e.source(), Options{Audit: 200 * time.Millisecond})
	r.through(t, 0, 2)
	e.Drop(2)
	e.publish(2)
	r.through(t, 0, 4)
}

func TestFollowGapNotFillable(t *testing.T) {
	e := newEngine(t, PublisherOptions{BufferSteps: 3})
	e.publish(3)
	f, r, _ := follow(t, e.source(), audited())
	r.through(t, 0, 2)
	e.Drop(5)
	e.publish(6) // sends 3 to 8; the buffer has 6, 7 and 8
	r.through(t, 6, 8)
	if r.count("forget") != 1 || r.count("state stale") != 1 {
		t.Errorf("got %s; want one Forget, and Stale once", r.story())
	}
	waitStats(t, f, "a loss", func(s Stats) bool { return s.Lost == 1 })
}

func TestFollowGapWithoutReplay(t *testing.T) {
	e := newEngine(t, PublisherOptions{Endpoint: "tcp://127.0.0.1:0"})
	_, r, _ := follow(t, e.source(), noAudit())
	r.isLive(t)
	for r.count("state live") == 1 && len(r.applied()) == 0 {
		e.publish(1)
		time.Sleep(time.Millisecond)
	}
	e.Drop(2)
	e.publish(4)
	last := uint64(e.n - 1)
	r.until(t, "live behind the gap",
		func() bool { return r.state == Live && slices.Equal(r.seqs, span(last-1, last)) })
	if r.count("forget") != 1 || r.count("state stale") != 1 {
		t.Errorf("got %s; want one Forget, and Stale once", r.story())
	}
}

func (r *recorder) applied() []uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seqs)
}

// TestFollowRestart restarts the sequence numbers on an open connection, as an engine behind a proxy does.
func TestFollowRestart(t *testing.T) {
	for _, replay := range []bool{true, false} {
		t.Run(fmt.Sprintf("replay %v", replay), func(t *testing.T) {
			o := PublisherOptions{Endpoint: "tcp://127.0.0.1:0"}
			if replay {
				o.Replay = "tcp://127.0.0.1:0"
			}
			e := newEngine(t, o)
			f, r, _ := follow(t, e.source(), noAudit())
			r.isLive(t)
			for len(r.applied()) < 3 {
				e.publish(1)
				time.Sleep(time.Millisecond)
			}
			r.until(t, "all", func() bool { return r.seqs[len(r.seqs)-1] == uint64(e.n-1) })
			e.Restart()
			e.publish(2)
			r.through(t, 0, 1)
			if n := r.count("forget"); n != 1 {
				t.Errorf("got %d calls of Forget, want 1: %s", n, r.story())
			}
			waitStats(t, f, "a restart", func(s Stats) bool { return s.Restarts == 1 })
		})
	}
}

// In TestFollowQuietRestart, an engine publishes fewer batches after its restart than before. Only an audit
// can notice the restart.
func TestFollowQuietRestart(t *testing.T) {
	e := newEngine(t, PublisherOptions{})
	e.publish(9)
	_, r, _ := follow(t, e.source(), Options{Audit: 100 * time.Millisecond})
	r.through(t, 0, 8)
	e.Restart()
	r.until(t, "forget", func() bool { return len(r.seqs) == 0 && r.state == Live })
}

func TestFollowKilledAndBack(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before, after int
		forgets       int
	}{
		{"fewer batches than before", 5, 2, 1},
		{"as many", 5, 5, 1},
		{"more", 5, 9, 1},
		{"none", 5, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEngine(t, PublisherOptions{})
			e.publish(tt.before)
			src := e.source()
			f, r, _ := follow(t, src, Options{Audit: 200 * time.Millisecond, Reconnect: 20 * time.Millisecond})
			r.through(t, 0, uint64(tt.before-1))
			e.Close()
			r.until(t, "stale", func() bool { return r.state == Stale })
			back := newEngine(t, PublisherOptions{Endpoint: src.Endpoint, Replay: src.Replay})
			back.publish(tt.after)
			if tt.after == 0 {
				r.until(t, "live and empty", func() bool { return r.state == Live && len(r.seqs) == 0 })
			} else {
				r.through(t, 0, uint64(tt.after-1))
			}
			if n := r.count("forget"); n != tt.forgets {
				t.Errorf("got %d calls of Forget, want %d: %s", n, tt.forgets, r.story())
			}
			waitStats(t, f, "a reconnect", func(s Stats) bool { return s.Reconnects == 1 && s.Restarts == 1 })
		})
	}
}

// In TestFollowSilentDeath, a connection stays open but carries nothing, not even heartbeats. Then it works
// again, and the engine has published more.
func TestFollowSilentDeath(t *testing.T) {
	e := newEngine(t, PublisherOptions{})
	e.publish(2)
	src := e.source()
	wire := newWire(t, src.Endpoint)
	src.Endpoint = wire.endpoint()
	_, r, _ := follow(t, src,
		Options{Audit: -1, Heartbeat: 50 * time.Millisecond, Reconnect: 20 * time.Millisecond})
	r.through(t, 0, 1)
	wire.cut(true)
	r.until(t, "stale", func() bool { return r.state == Stale })
	e.publish(3)
	wire.cut(false)
	r.through(t, 0, 4)
	if n := r.count("forget"); n != 0 {
		t.Errorf("got %d calls of Forget, want none, as no batch was lost: %s", n, r.story())
	}
}

// In TestFollowHangingReplay, live batches arrive, but the replay endpoint never answers a request.
func TestFollowHangingReplay(t *testing.T) {
	e := newEngine(t, PublisherOptions{})
	hangs, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	src := e.source()
	src.Replay = "tcp://" + hangs.Addr().String()
	e.publish(3)
	f, r, _ := follow(t, src, Options{Audit: -1, ReplayTimeout: 50 * time.Millisecond})
	r.isLive(t)
	for len(r.applied()) == 0 {
		e.publish(1)
		time.Sleep(time.Millisecond)
	}
	waitStats(t, f, "timeouts", func(s Stats) bool { return s.Timeouts >= 3 })
}

func TestFollowPausedEngine(t *testing.T) {
	e := newEngine(t, PublisherOptions{})
	e.publish(2)
	e.Pause()
	_, r, _ := follow(t, e.source(), Options{Audit: -1, ReplayTimeout: 5 * time.Second})
	r.until(t, "syncing", func() bool { return r.state == Syncing })
	e.publish(3)
	e.Resume()
	r.through(t, 0, 4)
}

func TestFollowRanks(t *testing.T) {
	shared := new(Context)
	for rank := range 2 {
		e := newEngine(t, PublisherOptions{Context: shared})
		e.rank = rank
		e.publish(4 + rank)
		f, r, _ := follow(t, e.source(), Options{Context: shared, Audit: -1})
		r.through(t, 0, uint64(3+rank))
		r.mu.Lock()
		if i := slices.IndexFunc(r.ranks, func(got int) bool { return got != rank }); i >= 0 {
			t.Errorf("follower of rank %d: got a batch of rank %d", rank, r.ranks[i])
		}
		r.mu.Unlock()
		waitStats(t, f, "all batches",
			func(s Stats) bool { return s.Batches == uint64(4+rank) && s.WrongRank == 0 })
	}
}

// Two ranks at one address share a stream. A follower accepts only the blocks of its own rank.
func TestBatchesOfAnotherRankAreRefused(t *testing.T) {
	e := newEngine(t, PublisherOptions{})
	e.publish(3)
	src := e.source()
	_, own, _ := follow(t, src, noAudit())
	own.through(t, 0, 2)

	src.Rank = 1
	f, other, _ := follow(t, src, noAudit())
	waitStats(t, f, "three refused", func(s Stats) bool { return s.WrongRank == 3 && s.Batches == 0 })
	other.until(t, "the reason", func() bool {
		return slices.Contains(other.why, "batch 0 is of data-parallel rank 0, not 1")
	})

	src.Only = true // the only rank of an engine may have any rank number
	_, alone, _ := follow(t, src, noAudit())
	alone.through(t, 0, 2)
}

// Engines whose replay port is dead delay a working engine only for a short time, not until their time-outs.
func TestDeadReplaysDoNotHoldUpOthers(t *testing.T) {
	dead, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and sends nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dead.Close() })
	shared := new(Context)
	o := Options{Context: shared, Audit: -1, ReplayTimeout: 5 * time.Second}
	e := newEngine(t, PublisherOptions{Context: shared})
	e.publish(2)
	src := e.source()
	mute := src
	mute.Replay = "tcp://" + dead.Addr().String()
	var followers []*Follower
	for range 3 * maxReplays {
		f, _, _ := follow(t, mute, o)
		followers = append(followers, f)
	}
	for _, f := range followers {
		waitStats(t, f, "a request", func(s Stats) bool { return s.Replays > 0 })
	}
	began := time.Now()
	_, r, _ := follow(t, src, o)
	r.through(t, 0, 1)
	if took := time.Since(began); took > 2*o.ReplayTimeout {
		t.Errorf("got live after %v behind %d silent engines, want at most %v",
			took, len(followers), 2*o.ReplayTimeout)
	}
}

func TestFollowTopic(t *testing.T) {
	e := newEngine(t, PublisherOptions{Topic: "kv@a"})
	e.publish(1)
	src := e.source()
	src.Topic = "kv@b"
	_, r, _ := follow(t, src, noAudit())
	r.isLive(t)
	e.publish(3)
	other := src
	other.Topic = "kv@a"
	_, ours, _ := follow(t, other, noAudit())
	ours.through(t, 0, 3)
	if got := r.applied(); !slices.Equal(got, []uint64{0}) { // a replay has no filter by topic
		t.Errorf("got batches %v for topic kv@b, want batch 0", got)
	}
}

// TestFollowUnreadable sends batches that are not msgpack. The follower forgets the applied blocks, and is
// live again after the next valid batch.
func TestFollowUnreadable(t *testing.T) {
	e := newEngine(t, PublisherOptions{})
	e.publish(2)
	f, r, _ := follow(t, e.source(), audited())
	r.through(t, 0, 1)
	e.publishRaw([]byte("nonsense"))
	e.publishRaw([]byte("more"))
	e.publish(3)
	r.through(t, 4, 6)
	if n := r.count("forget"); n != 1 {
		t.Errorf("got %d calls of Forget, want 1: %s", n, r.story())
	}
	waitStats(t, f, "decode errors", func(s Stats) bool { return s.DecodeErrors == 2 })
}

func (p *Publisher) publishRaw(payload []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := step{seq: p.buffer.seq, payload: payload}
	p.buffer.seq++
	p.send(s)
	p.keep(s)
}

func TestRunEndsSoon(t *testing.T) {
	ends := func(t *testing.T, stop func()) {
		t.Helper()
		before := time.Now()
		stop()
		if took := time.Since(before); took > 200*time.Millisecond {
			t.Errorf("Run returned %v after the end of its context, want at most 200ms", took)
		}
	}
	t.Run("live", func(t *testing.T) {
		_, r, stop := follow(t, newEngine(t, PublisherOptions{}).source(), Options{})
		r.isLive(t)
		ends(t, stop)
	})
	t.Run("no listener", func(t *testing.T) {
		_, r, stop := follow(t, Source{Endpoint: "tcp://127.0.0.1:1", Replay: "tcp://127.0.0.1:1"}, Options{})
		r.until(t, "syncing", func() bool { return r.state == Syncing })
		ends(t, stop)
	})
	t.Run("in a long replay", func(t *testing.T) {
		e := newEngine(t, PublisherOptions{})
		e.publish(8000)
		_, r, stop := follow(t, e.source(), Options{})
		r.until(t, "first batch", func() bool { return len(r.seqs) > 0 })
		ends(t, stop)
	})
}

func TestRunRefusesBadAddress(t *testing.T) {
	for _, src := range []Source{
		{Endpoint: "10.0.0.1:5557"},
		{Endpoint: "tcp://*:5557"},
		{Endpoint: "tcp://127.0.0.1:5557", Replay: "nonsense"},
	} {
		if err := NewFollower(src, newRecorder(), Options{}).Run(t.Context()); err == nil {
			t.Errorf("%+v: got no error, want one", src)
		}
	}
}

func waitStats(t testing.TB, f *Follower, what string, ok func(Stats) bool) {
	t.Helper()
	for deadline := time.Now().Add(longest); !ok(f.Stats()); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s in time; stats: %+v", what, f.Stats())
		}
	}
}

// wire is a TCP proxy that can stop passing bytes without closing its connections.
type wire struct {
	in  net.Listener
	to  string
	all sync.WaitGroup

	mu     sync.Mutex // guards the following
	silent bool
	conns  []net.Conn
}

func newWire(t testing.TB, endpoint string) *wire {
	t.Helper()
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{in: in, to: strings.TrimPrefix(endpoint, "tcp://")}
	w.all.Go(w.accept)
	t.Cleanup(w.close)
	return w
}

func (w *wire) endpoint() string { return "tcp://" + w.in.Addr().String() }

func (w *wire) cut(silent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = silent
}

func (w *wire) close() {
	w.in.Close()
	w.mu.Lock()
	for _, c := range w.conns {
		c.Close()
	}
	w.mu.Unlock()
	w.all.Wait()
}

func (w *wire) accept() {
	for {
		a, err := w.in.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", w.to)
		if err != nil {
			a.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, a, b)
		w.mu.Unlock()
		w.all.Go(func() { w.pipe(a, b) })
		w.all.Go(func() { w.pipe(b, a) })
	}
}

// pipe copies bytes until either end closes. Bytes that arrive while the wire is cut are lost, and the
// connection is closed.
func (w *wire) pipe(dst, src net.Conn) {
	defer dst.Close()
	defer src.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		w.mu.Lock()
		silent := w.silent
		w.mu.Unlock()
		if err != nil {
			return
		}
		if silent {
			io.Copy(io.Discard, src)
			return
		}
		if _, err := dst.Write(buf[:n]); err != nil {
			return
		}
	}
}

// TestFollowRestarted reports a restart that the stream does not show: the sequence numbers continue, as
// behind a proxy, and no audit is due.
func TestFollowRestarted(t *testing.T) {
	e := newEngine(t, PublisherOptions{})
	e.publish(3)
	f, r, stop := follow(t, e.source(), noAudit())
	r.through(t, 0, 2)
	e.Restart()
	e.Drop(2)
	e.publish(2)
	f.Restarted("its start time changed")
	r.through(t, 0, 1)
	if n := r.count("forget"); n != 1 {
		t.Errorf("got %d calls of Forget, want 1: %s", n, r.story())
	}
	waitStats(t, f, "a restart", func(s Stats) bool { return s.Restarts == 1 })
	stop()
	f.Restarted("nobody listens any more")
}

// TestFollowRestartedOften reports restarts all the time, while streams start, run and end.
func TestFollowRestartedOften(t *testing.T) {
	e := newEngine(t, PublisherOptions{})
	e.publish(3)
	r := newRecorder()
	f := NewFollower(e.source(), r, noAudit())
	done := make(chan struct{})
	var ringing sync.WaitGroup
	ringing.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				f.Restarted("again")
			}
		}
	})
	stop := run(t, f)
	r.until(t, "a hundred restarts", func() bool { return len(r.log) > 100 })
	stop()
	close(done)
	ringing.Wait()
}

// TestFollowOddFrames sends messages with wrong numbers of frames between valid messages.
func TestFollowOddFrames(t *testing.T) {
	e := newEngine(t, PublisherOptions{})
	e.publish(2)
	f, r, _ := follow(t, e.source(), audited())
	r.through(t, 0, 1)
	for i := range uint64(4) {
		e.publishFrames([]byte("one"))
		e.publishFrames([]byte("two"), seqFrame(77))
		e.publishFrames([]byte("long"), []byte{}, seqFrame(78), []byte("x"))
		e.publishFrames([]byte("longer"), []byte{}, []byte{}, []byte{}, seqFrame(79), []byte("x"), []byte("y"))
		e.publishFrames([]byte("no number"), []byte("1234567"), []byte("x"))
		e.publishFrames([]byte("end"), seqFrame(endOfReplay), []byte{})
		e.publish(1)
		r.through(t, 0, 2+i)
	}
	if s := f.Stats(); s.DecodeErrors+s.Restarts+s.Lost > 0 {
		t.Errorf("got stats %+v, want no errors, restarts or losses", s)
	}
}

func (p *Publisher) publishFrames(frames ...[]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.pub.SendMessageDontwait(frames)
}
