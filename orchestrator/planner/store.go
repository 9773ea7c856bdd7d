package planner

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// A store that all engines share is one place of its own, whose blocks every decode replica can read. Most
// stores announce no removals, so a belief lasts for a time only. Decode engines' reports decide: what a
// decode engine has read was there, and what it has missed is gone.
//
// Engines also announce what they save. This is believed only while decode engines read what the store
// should have: with another seed of hashes they never find what others have saved.

// Store is the blocks that the shared store is believed to have. Safe for concurrent use.
//
// Beliefs have two generations. New ones go into the newer generation. Every half of storeLife the older one
// is forgotten and becomes the newer one. So a belief lasts for storeLife/2 to storeLife.
type Store struct {
	index *kv.Index // one holder for each generation

	// The last report that told anything about the store was that a decode engine has read from it. Then
	// events are believed.
	proven atomic.Bool

	mu     sync.Mutex // guards the following
	period int64      // of the newer generation, in halves of storeLife since 1970; 0: nobody has asked yet
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

// heard takes in what an engine has announced. A block behind an older belief lasts as long as that. An event
// has no time of ours, so the last question tells the time.
func (s *Store) heard(kind kv.EventKind, block kv.Named) {
	if kind == kv.Removed {
		s.lost([]kv.Key{block.Key}, 0)
		return
	}
	if !s.proven.Load() {
		return
	}
	s.mu.Lock()
	newer := kv.Holder(s.period & 1)
	s.mu.Unlock()
	if !s.index.AssumeBehind(newer, block) {
		s.index.AssumeBehind(1-newer, block)
	}
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

// Report is what a decode engine found of a prompt, in leading tokens.
type Report struct {
	Own    int  // that it had in its own memory, as believed
	Cached int  // that it did not compute
	Alone  bool // the prefill leg was left out, because the store should have the prompt
}

// Gave takes in a decode engine's report about the prompt of req.
func (s *Store) Gave(req *Request, r Report, now time.Time) {
	if req.whole() == 0 {
		return
	}
	n := min(max(r.Cached, 0)/req.DecodeBlock, len(req.DecodeKeys))
	missed := n*req.DecodeBlock < req.whole()
	if !missed && r.Cached <= r.Own { // it asked the store for nothing
		return
	}
	if r.Alone && missed {
		s.proven.Store(false)
	} else if r.Cached > r.Own {
		s.proven.Store(true)
	}
	if missed {
		s.lost(req.DecodeKeys, n)
	}
	if n > 0 && r.Cached > r.Own {
		s.has(req.DecodeKeys[:n], now)
	}
}
