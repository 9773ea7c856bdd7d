package fleet

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/kvevents"
	"github.com/tandem-router/tandem/internal/replica"
)

// Stream is the event stream of one rank that the fleet follows.
type Stream struct {
	source   kvevents.Source
	follower *kvevents.Follower
	stop     context.CancelFunc
	done     chan struct{}
	state    atomic.Uint32
	reason   atomic.Pointer[string]
	applied  applied

	announced atomic.Bool // the follower reported a restart, and has not forgotten since

	naming sync.RWMutex // held, for reading, while something goes into the pool under id
	id     replica.ID
}

// ID is the present name of the replica.
func (f *Stream) ID() replica.ID {
	f.naming.RLock()
	defer f.naming.RUnlock()
	return f.id
}

// renaming is a stream whose replica is being renamed. Batches of the stream wait meanwhile.
type renaming struct {
	f  *Stream
	id replica.ID
}

func (r renaming) end() {
	r.f.id = r.id
	r.f.naming.Unlock()
}

// sink is where a follower's stream ends: in the pool's index. Its methods are called by the follower's
// goroutine alone.
type sink struct {
	of      *following
	server  *server
	f       *Stream
	applied *applied
	sized   bool // the block size that the events tell is known
	stale   bool // the stream could not be believed, and has not been live since
}

// applied counts, in blocks, what the batches of one stream did. Written by its follower, read by scrapes.
type applied struct{ stored, removed, orphaned, skipped atomic.Uint64 }

// all walks the counts by the names they have in metrics.
func (a *applied) all() iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		_ = yield("stored", a.stored.Load()) && yield("removed", a.removed.Load()) &&
			yield("orphaned", a.orphaned.Load()) && yield("skipped", a.skipped.Load())
	}
}

// newSink returns the end of f's stream, and has f keep its counts.
func newSink(of *following, f *Stream) *sink {
	return &sink{of: of, server: of.server, f: f, applied: &f.applied}
}

// Apply implements [kvevents.Sink].
func (s *sink) Apply(b *kv.Batch) {
	s.f.naming.RLock()
	did := s.server.pool.Apply(s.f.id, b)
	s.size()
	s.f.naming.RUnlock()
	s.applied.stored.Add(uint64(did.Stored))
	s.applied.removed.Add(uint64(did.Removed))
	s.applied.orphaned.Add(uint64(did.Orphans))
	s.applied.skipped.Add(uint64(did.Skipped))
}

// size logs once if the events tell another block size than the engine or the configuration: the events are
// right. The caller holds the name.
func (s *sink) size() {
	if s.sized {
		return
	}
	pool := s.server.pool
	reported, expected := pool.ReportedBlockSize(s.f.id)
	s.sized = reported > 0
	if s.sized && reported != expected {
		s.server.log.Warn("the block size of the events is used", "replica", string(s.f.id),
			"pool", s.server.role.String(), "told", reported, "expected", expected)
	}
}

// Forget implements [kvevents.Sink].
func (s *sink) Forget(reason string) {
	s.f.naming.RLock()
	defer s.f.naming.RUnlock()
	s.server.pool.Forget(s.f.id)
	s.sized = false
	level := slog.LevelWarn
	restarted := strings.HasPrefix(reason, kvevents.Restart)
	if restarted && (s.f.announced.Swap(false) || s.of.restartLogged.Swap(true)) {
		level = slog.LevelDebug
	}
	s.server.logForgotten(level, string(s.f.id), reason)
}

// State implements [kvevents.Sink].
func (s *sink) State(state kvevents.State, reason string) {
	s.f.naming.RLock()
	defer s.f.naming.RUnlock()
	s.server.pool.SetTrust(s.f.id, trusts[state])
	s.f.setState(state, reason)
	level := slog.LevelDebug // it begins, or syncs as usual: the log has one line for an engine that joins
	if s.stale = s.stale || state == kvevents.Stale; s.stale {
		level = slog.LevelInfo
		s.stale = state != kvevents.Live
	}
	if strings.HasSuffix(reason, kvevents.Mute) {
		level = slog.LevelWarn
	}
	s.server.log.Log(context.Background(), level, "event stream", "replica", string(s.f.id),
		"state", state.String(), "reason", reason)
}

// trusts translates the state of a stream into how far its index may be believed.
var trusts = map[kvevents.State]replica.Trust{
	kvevents.Syncing: replica.Syncing, kvevents.Live: replica.Live, kvevents.Stale: replica.Stale,
}

func (f *Stream) setState(state kvevents.State, reason string) {
	f.state.Store(uint32(state))
	f.reason.Store(&reason)
}

// Live reports whether the index has all events of the stream.
func (f *Stream) Live() bool { return kvevents.State(f.state.Load()) == kvevents.Live }

// Status says how the stream stands.
func (f *Stream) Status() string {
	s := kvevents.State(f.state.Load()).String()
	if r := f.reason.Load(); r != nil && *r != "" {
		return fmt.Sprintf("%s: %s", s, *r)
	}
	return s
}

// Stats counts what the stream brought.
func (f *Stream) Stats() kvevents.Stats { return f.follower.Stats() }

// Blocks walks the stream's block counts by their names in the metrics.
func (f *Stream) Blocks() iter.Seq2[string, uint64] { return f.applied.all() }
