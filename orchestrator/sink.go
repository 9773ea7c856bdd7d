package orchestrator

import (
	"fmt"

	"tandem/internal/kv"
	"tandem/internal/kvevents"
	"tandem/internal/replica"
)

// sink is where a follower's stream ends: in the pool's index.
type sink struct {
	w *watcher
	f *followed
}

// Apply implements [kvevents.Sink].
func (s *sink) Apply(b *kv.Batch) { s.w.f.pool(s.w.role).Apply(s.f.id, b) }

// Forget implements [kvevents.Sink].
func (s *sink) Forget(reason string) {
	s.w.f.pool(s.w.role).Forget(s.f.id)
	s.w.f.o.log.Warn("blocks forgotten", "replica", string(s.f.id), "reason", reason)
}

// State implements [kvevents.Sink].
func (s *sink) State(state kvevents.State, reason string) {
	s.w.f.pool(s.w.role).SetTrust(s.f.id, trusts[state])
	s.f.say(state, reason)
	s.w.f.o.log.Info("event stream", "replica", string(s.f.id), "state", state.String(), "reason", reason)
}

// trusts translates the state of a stream into how far its index may be believed.
var trusts = map[kvevents.State]replica.Trust{kvevents.Syncing: replica.Syncing, kvevents.Live: replica.Live, kvevents.Stale: replica.Stale}

func (f *followed) say(state kvevents.State, reason string) {
	f.state.Store(uint32(state))
	f.reason.Store(&reason)
}

func (f *followed) status() string {
	s := kvevents.State(f.state.Load()).String()
	if r := f.reason.Load(); r != nil && *r != "" {
		return fmt.Sprintf("%s: %s", s, *r)
	}
	return s
}
