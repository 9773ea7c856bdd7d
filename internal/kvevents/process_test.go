package kvevents

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// These tests follow an engine in another process that shares no code with this package. The engine is
// killed, stopped, slowed and restarted. In the end the applied blocks must be exactly the engine's blocks.

// pool is the running script testdata/pool.py.
type pool struct {
	*script
	at struct{ Endpoint, Replay string }
}

// blocks is the answer to a command.
type blocks struct {
	Held []kv.EngineHash // the blocks in the cache of the engine
	Told []kv.EngineHash // the blocks that the batches in the replay buffer announce
	Seq  uint64          // number of published batches
}

// startPool starts an engine whose replay buffer holds the given number of batches. The engine uses the
// addresses of a former engine, or new addresses.
func startPool(t *testing.T, steps int, before *pool) *pool {
	t.Helper()
	endpoint, replay := "tcp://127.0.0.1:*", "tcp://127.0.0.1:*"
	if before != nil {
		endpoint, replay = before.at.Endpoint, before.at.Replay
	}
	p := &pool{script: start(t, "testdata/pool.py", endpoint, replay, strconv.Itoa(steps))}
	if err := p.read(&p.at); err != nil {
		t.Fatal(err)
	}
	return p
}

// do sends a command and returns the state after it.
func (p *pool) do(t *testing.T, format string, args ...any) (b blocks) {
	t.Helper()
	p.tell(format, args...)
	if err := p.read(&b); err != nil {
		t.Fatal(err)
	}
	return b
}

func (p *pool) source() Source { return Source{Endpoint: p.at.Endpoint, Replay: p.at.Replay} }

func (p *pool) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// kill kills the process and waits until it is gone.
func (p *pool) kill(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	p.end()
}

// twin is a Sink that keeps blocks in a plain set.
type twin struct {
	*recorder
	gate sync.Mutex // held by a test that makes the sink slow

	held map[kv.EngineHash]bool // guarded by recorder.mu
}

func newTwin() *twin { return &twin{recorder: newRecorder(), held: map[kv.EngineHash]bool{}} }

func (s *twin) Apply(b *kv.Batch) {
	s.gate.Lock()
	defer s.gate.Unlock()
	s.mu.Lock()
	for _, e := range b.Events {
		for _, h := range e.Hashes {
			if e.Kind == kv.Stored {
				s.held[h] = true
			} else {
				delete(s.held, h)
			}
		}
	}
	s.mu.Unlock()
	s.recorder.Apply(b)
}

func (s *twin) Forget(reason string) {
	s.mu.Lock()
	clear(s.held)
	s.mu.Unlock()
	s.recorder.Forget(reason)
}

// holds waits until the stream is live and the sink has exactly the blocks in want.
func (s *twin) holds(t *testing.T, want []kv.EngineHash) {
	t.Helper()
	s.until(t, fmt.Sprintf("live with %d blocks", len(want)), func() bool {
		return s.state == Live && slices.Equal(slices.Sorted(maps.Keys(s.held)), slices.Sorted(slices.Values(want)))
	})
}

// brisk makes all time-outs short, for real engine processes.
func brisk() Options {
	return Options{
		Audit: 100 * time.Millisecond, Heartbeat: 100 * time.Millisecond, Reconnect: 20 * time.Millisecond,
		ReplayTimeout: 2 * time.Second,
	}
}

func followPool(t *testing.T, p *pool, o Options) (*Follower, *twin) {
	t.Helper()
	sink := newTwin()
	f := NewFollower(p.source(), sink, o)
	run(t, f)
	return f, sink
}

// TestEngineKilled kills the engine and starts another in its place. The sequence number of the new engine is
// below that of the follower, equal, above, or so far above that the replay buffer begins later.
func TestEngineKilled(t *testing.T) {
	for _, tt := range []struct {
		name         string
		after, steps int
	}{
		{"nothing said since", 0, 1000},
		{"behind", 5, 1000},
		{"at our number", 20, 1000},
		{"one beyond", 21, 1000},
		{"far beyond", 60, 1000},
		{"beyond, and its history begins right behind our number", 30, 10},
		{"beyond, and its history begins later", 60, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			first := startPool(t, 1000, nil)
			was := first.do(t, "publish 20")
			f, sink := followPool(t, first, brisk())
			sink.holds(t, was.Held)
			first.kill(t)
			second := startPool(t, tt.steps, first)
			now := second.do(t, "publish %d", tt.after)
			sink.holds(t, now.Told)
			sink.holds(t, second.do(t, "held").Told)
			if n := sink.count("forget"); n != 1 {
				t.Errorf("got %d calls of Forget, want 1: %s", n, sink.story())
			}
			waitStats(t, f, "a reconnect", func(s Stats) bool { return s.Reconnects == 1 && s.Restarts+s.Lost == 1 })
		})
	}
}

// In TestEngineGoneForGood, the engine does not come back. The stream is stale, but keeps its blocks until an
// engine answers.
func TestEngineGoneForGood(t *testing.T) {
	p := startPool(t, 1000, nil)
	was := p.do(t, "publish 20")
	_, sink := followPool(t, p, brisk())
	sink.holds(t, was.Held)
	p.kill(t)
	sink.until(t, "stale", func() bool { return sink.state == Stale })
	if n := sink.count("forget"); n != 0 {
		t.Errorf("got %d calls of Forget, want none: %s", n, sink.story())
	}
}

// TestEngineStopped stops the process, as a debugger or a frozen machine does. The connection stays open but
// silent. Heartbeats show this. When the process continues, no batch is lost.
func TestEngineStopped(t *testing.T) {
	p := startPool(t, 1000, nil)
	was := p.do(t, "publish 20")
	f, sink := followPool(t, p, brisk())
	sink.holds(t, was.Held)
	p.signal(t, syscall.SIGSTOP)
	sink.until(t, "stale", func() bool { return sink.state == Stale })
	p.signal(t, syscall.SIGCONT)
	sink.holds(t, p.do(t, "publish 20").Held)
	if n := sink.count("forget"); n != 0 {
		t.Errorf("got %d calls of Forget, want none, as no batch was lost: %s", n, sink.story())
	}
	waitStats(t, f, "a reconnect", func(s Stats) bool { return s.Reconnects >= 1 && s.Restarts+s.Lost == 0 })
}

// In TestEngineStoppedBeyondItsHistory, more batches are missed than the replay buffer holds.
func TestEngineStoppedBeyondItsHistory(t *testing.T) {
	p := startPool(t, 10, nil)
	_, sink := followPool(t, p, brisk())
	sink.holds(t, p.do(t, "publish 5").Held)
	now := p.do(t, "hide 40")
	sink.holds(t, now.Told)
	if n := sink.count("forget"); n != 1 || sink.count("state stale") != 1 {
		t.Errorf("got %s; want one Forget, and Stale once", sink.story())
	}
	sink.mu.Lock()
	defer sink.mu.Unlock()
	for h := range sink.held {
		if !slices.Contains(now.Held, h) {
			t.Errorf("got block %x, which the engine does not have", h)
		}
	}
}

// TestEngineSlowed stops the process many times, each time for less time than heartbeats allow. The stream
// stays live.
func TestEngineSlowed(t *testing.T) {
	p := startPool(t, 10_000, nil)
	was := p.do(t, "publish 5")
	o := brisk()
	o.Heartbeat = 2 * time.Second
	_, sink := followPool(t, p, o)
	sink.holds(t, was.Held)
	p.tell("publish 3000")
	for range 20 {
		p.signal(t, syscall.SIGSTOP)
		time.Sleep(15 * time.Millisecond)
		p.signal(t, syscall.SIGCONT)
		time.Sleep(3 * time.Millisecond)
	}
	var now blocks
	if err := p.read(&now); err != nil {
		t.Fatal(err)
	}
	sink.holds(t, now.Held)
	if sink.count("forget")+sink.count("state stale") != 0 {
		t.Errorf("got %s; want no Forget and no stale state", sink.story())
	}
}

// TestSlowSinkHoldsUpNobody blocks the sink of the follower for many heartbeats. Meanwhile the engine sends
// more than the usual queues of libzmq and the TCP buffers of a machine hold. The engine is never blocked,
// the connection stays, and no batch is lost. With a limit on the queue of the follower, libzmq aborted this
// process (#3937).
func TestSlowSinkHoldsUpNobody(t *testing.T) {
	const flood = 20000 // batches of 4 KiB
	p := startPool(t, 2*flood, nil)
	was := p.do(t, "publish 5")
	o := brisk()
	// On a busy machine a ping may wait for a second. A connection is closed after three missing pings.
	o.Heartbeat, o.ReplayTimeout = time.Second, longest
	f, sink := followPool(t, p, o)
	sink.holds(t, was.Held)
	sink.gate.Lock()
	now := p.do(t, "large %d", flood) // would never return if the follower could block the engine
	time.Sleep(5 * o.Heartbeat)
	sink.gate.Unlock()
	sink.holds(t, now.Held)
	if n := sink.count("forget"); n != 0 {
		t.Errorf("got %d calls of Forget, want none, as the engine could replay all batches: %s", n, sink.story())
	}
	waitStats(t, f, "every batch on one connection",
		func(s Stats) bool { return s.Reconnects == 0 && s.Batches == now.Seq })
}
