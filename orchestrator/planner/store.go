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

// Store is what the shared store is believed to have, by model: the keys of blocks do not name the model. A
// model without an entry has been in no store. Safe for concurrent use.
type Store struct {
	base func(model string) string // the base model of a model; immutable

	mu sync.Mutex // guards the following
	of map[string]*place
}

// placeOf returns what is believed of the model of req.
func (s *Store) placeOf(req *Request) *place {
	base := s.base(req.Model)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[base] == nil {
		s.of[base] = newPlace()
	}
	return s.of[base]
}

// heard takes in what an engine has announced. blocks looks the blocks up.
func (s *Store) heard(base string, kind kv.EventKind, blocks func() []kv.Named) {
	s.mu.Lock()
	p := s.of[base]
	s.mu.Unlock()
	if p == nil || kind == kv.Stored && !p.proven.Load() {
		return
	}
	for _, block := range blocks() {
		p.heard(kind, block)
	}
}

// gives returns how many tokens of req's prompt the store gives to a decode replica, so that the prefill leg
// can be left out. It is 0 if the store is not believed to have the whole prompt.
func (s *Store) gives(req *Request, now time.Time) int {
	whole := req.whole()
	if whole == 0 || s.placeOf(req).depth(req.DecodeKeys, now)*req.DecodeBlock < whole {
		return 0
	}
	return whole
}

// Gave takes in what a decode engine has reported about the prompt of req.
func (s *Store) Gave(req *Request, r Report, now time.Time) {
	if req.whole() > 0 {
		s.placeOf(req).gave(req, r, now)
	}
}

// place is the blocks of one model that the shared store is believed to have. Safe for concurrent use.
//
// Beliefs have two generations. New ones go into the newer generation. Every half of storeLife the older one
// is forgotten and becomes the newer one. So a belief lasts for storeLife/2 to storeLife.
type place struct {
	index *kv.Index // one holder for each generation

	// The last report that told anything about the store was that a decode engine has read from it. Then
	// events are believed.
	proven atomic.Bool

	mu     sync.Mutex // guards the following
	period int64      // of the newer generation, in halves of storeLife since 1970; 0: nobody has asked yet
}

// storeLife is as in kv for the copies that engines announce.
const storeLife = 10 * time.Minute

func newPlace() *place { return &place{index: kv.NewIndex(kv.Options{ByteBudget: 64 << 20})} }

// depth returns how many leading blocks of keys the store should have.
func (p *place) depth(keys []kv.Key, now time.Time) int {
	p.turn(now)
	var depth [2]int32
	p.index.Match(keys, depth[:])
	return int(max(depth[0], depth[1]))
}

// has takes in that the store has the blocks of keys.
func (p *place) has(keys []kv.Key, now time.Time) {
	p.index.Assume(p.turn(now), keys, math.MaxInt32) // the index has a budget
}

// lost takes in that the store does not have block number from of keys, nor the blocks behind it.
func (p *place) lost(keys []kv.Key, from int) {
	p.index.Invalidate(0, keys, from)
	p.index.Invalidate(1, keys, from)
}

// heard takes in what an engine has announced. A block behind an older belief lasts as long as that. An event
// has no time of ours, so the last question tells the time.
func (p *place) heard(kind kv.EventKind, block kv.Named) {
	if kind == kv.Removed {
		p.lost([]kv.Key{block.Key}, 0)
		return
	}
	p.mu.Lock()
	newer := kv.Holder(p.period & 1)
	p.mu.Unlock()
	if !p.index.AssumeBehind(newer, block) {
		p.index.AssumeBehind(1-newer, block)
	}
}

// turn forgets what is too old, and returns the newer generation.
func (p *place) turn(now time.Time) kv.Holder {
	p.mu.Lock()
	defer p.mu.Unlock()
	period := now.UnixNano() / int64(storeLife/2)
	newer := kv.Holder(period & 1)
	if period == p.period {
		return newer
	}
	p.index.Forget(newer)
	if period != p.period+1 {
		p.index.Forget(1 - newer)
	}
	p.period = period
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

// gave takes in a decode engine's report about the prompt of req.
func (p *place) gave(req *Request, r Report, now time.Time) {
	n := min(max(r.Cached, 0)/req.DecodeBlock, len(req.DecodeKeys))
	missed := n*req.DecodeBlock < req.whole()
	if !missed && r.Cached <= r.Own { // it asked the store for nothing
		return
	}
	if r.Alone && missed {
		p.proven.Store(false)
	} else if r.Cached > r.Own {
		p.proven.Store(true)
	}
	if missed {
		p.lost(req.DecodeKeys, n)
	}
	if n > 0 && r.Cached > r.Own {
		p.has(req.DecodeKeys[:n], now)
	}
}
