package planner

import (
	"math"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// A store that all engines share is one place of its own, whose blocks every decode replica can read. A store
// announces no removals, so a belief lasts for a time only, and decode engines' reports decide: what a decode
// engine has read was there, and what it has missed is gone.

// Store is the blocks that the shared store is believed to have. Safe for concurrent use.
//
// Beliefs have two generations. New ones go into the newer generation. Every half of storeLife the older one
// is forgotten and becomes the newer one. So a belief lasts for storeLife/2 to storeLife.
type Store struct {
	index *kv.Index // one holder for each generation

	mu     sync.Mutex // guards the following
	period int64      // of the newer generation, in halves of storeLife since 1970
}

// storeLife is as in kv for the copies that engines announce.
const storeLife = 10 * time.Minute

func newStore() *Store { return &Store{index: kv.NewIndex(kv.Options{ByteBudget: 64 << 20})} }

// depth returns how many leading blocks of keys the store should have.
func (s *Store) depth(keys []kv.Key, now time.Time) int {
	s.turn(now)
	var depth [2]int32
	s.index.Match(keys, depth[:])
	return int(max(depth[0], depth[1]))
}

// has takes in that the store has the blocks of keys.
func (s *Store) has(keys []kv.Key, now time.Time) {
	s.index.Assume(s.turn(now), keys, math.MaxInt32) // the index has a budget
}

// lost takes in that the store does not have block number from of keys, nor the blocks behind it.
func (s *Store) lost(keys []kv.Key, from int) {
	s.index.Invalidate(0, keys, from)
	s.index.Invalidate(1, keys, from)
}

// turn forgets what is too old, and returns the newer generation.
func (s *Store) turn(now time.Time) kv.Holder {
	s.mu.Lock()
	defer s.mu.Unlock()
	period := now.UnixNano() / int64(storeLife/2)
	newer := kv.Holder(period & 1)
	if period == s.period {
		return newer
	}
	s.index.Forget(newer)
	if period != s.period+1 {
		s.index.Forget(1 - newer)
	}
	s.period = period
	return newer
}

// whole returns how many tokens of req's prompt the store must have, so that nothing is left for a prefill
// replica. It returns 0 if the store cannot have them.
func (req *Request) whole() int {
	unit := max(req.StoreUnit, req.DecodeBlock)
	if req.StoreUnit == 0 || req.DecodeBlock == 0 || !req.Exact || !req.SplitOK || req.Sequences > 1 {
		return 0
	}
	return min((req.Tokens-1)/unit*unit, len(req.DecodeKeys)*req.DecodeBlock)
}

// gives returns how many tokens of req's prompt the store gives to a decode replica, so that the prefill leg
// can be left out. It is 0 if the store is not believed to have the whole prompt.
func (s *Store) gives(req *Request, now time.Time) int {
	whole := req.whole()
	if whole == 0 || s.depth(req.DecodeKeys, now)*req.DecodeBlock < whole {
		return 0
	}
	return whole
}

// alone returns a copy of req that goes to a decode replica alone, and there as a whole.
func (req *Request) alone() *Request {
	own := *req
	own.SplitOK, own.LocalOK = false, true
	own.Pieces = false
	return &own
}

// Gave takes in how many leading tokens of a prompt the store had for a decode engine, by its report.
func (s *Store) Gave(req *Request, tokens int, now time.Time) {
	if req.whole() == 0 {
		return
	}
	n := min(max(tokens, 0)/req.DecodeBlock, len(req.DecodeKeys))
	if n*req.DecodeBlock < req.whole() {
		s.lost(req.DecodeKeys, n)
	}
	if n > 0 {
		s.has(req.DecodeKeys[:n], now)
	}
}
