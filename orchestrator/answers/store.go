package answers

import (
	"context"
	"time"

	"github.com/tandem-router/tandem/internal/answercache"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// Shared is a store of answers behind the memory, which routers share. Get takes no longer than the store's
// budget, and Put does not wait. A closed store has nothing and takes nothing.
type Shared interface {
	Get(ctx context.Context, k answercache.Key, now time.Time) *answercache.Answer
	Put(k answercache.Key, a *answercache.Answer, ttl time.Duration)
	Up() bool
	Close() error
}

// store holds the stored answers of a cache.
type store struct {
	memory *answercache.Memory
	shared Shared // nil: nothing is shared with other routers
}

// put stores an answer.
func (s *store) put(k answercache.Key, kept *answercache.Answer, ttl time.Duration, now time.Time) {
	s.memory.Put(k, kept, now.Add(ttl))
	if s.shared != nil {
		s.shared.Put(k, kept, ttl)
	}
}

// close closes the store that routers share. Requests that still use the store find nothing there.
func (s *store) close() error {
	if s.shared == nil {
		return nil
	}
	return s.shared.Close()
}

// held is what metrics show of the store.
func (s *store) held() *observe.AnswerCache {
	h := &observe.AnswerCache{MemoryStats: s.memory.Stats()}
	if s.shared != nil {
		h.Shared, h.SharedUp = true, s.shared.Up()
	}
	return h
}
