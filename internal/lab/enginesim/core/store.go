package core

import (
	"container/list"
	"slices"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// Store is KV blocks outside of the GPU by their hashes: the host memory of one engine, or a store that
// several engines share. It forgets the block that was asked for least recently, and tells nobody. Safe for
// concurrent use.
type Store struct {
	blocks int

	mu    sync.Mutex // guards the following
	known map[kv.EngineHash]*list.Element
	order *list.List // of *offloaded, least recently asked for first
}

type offloaded struct {
	hash    kv.EngineHash // from [groups.nameIn]
	group   int
	content uint64
	ready   time.Duration // end of its copy, on the store's clock: it cannot be read before
}

// NewStore makes an empty store for so many blocks.
func NewStore(blocks int) *Store {
	return &Store{blocks: blocks, known: map[kv.EngineHash]*list.Element{}, order: list.New()}
}

// Forget loses every block.
func (s *Store) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.known)
	s.order.Init()
}

// Len is how many blocks the store has, those included whose copies are under way.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.order.Len()
}

// add takes in a block, unless the store has it. gone is the block that had to go for it, nil if none had.
func (s *Store) add(x offloaded) (fresh bool, gone *offloaded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[x.hash] != nil {
		return false, nil
	}
	if s.order.Len() == s.blocks {
		gone = s.order.Remove(s.order.Front()).(*offloaded)
		delete(s.known, gone.hash)
	}
	s.known[x.hash] = s.order.PushBack(&x)
	return true, gone
}

// ahead is how many of hashes behind the first ones can be read now. It notes that all were asked for.
func (s *Store) ahead(hashes []kv.EngineHash, first int, now time.Duration) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.use(hashes)
	for _, h := range hashes[first:] {
		if !s.readable(h, now) {
			break
		}
		n++
	}
	return n
}

// use notes that blocks were asked for, the first block last.
func (s *Store) use(hashes []kv.EngineHash) {
	for _, h := range slices.Backward(hashes) {
		if x := s.known[h]; x != nil {
			s.order.MoveToBack(x)
		}
	}
}

func (s *Store) readable(h kv.EngineHash, now time.Duration) bool {
	x := s.known[h]
	return x != nil && x.Value.(*offloaded).ready <= now
}

// all reports whether all of hashes can be read now.
func (s *Store) all(hashes []kv.EngineHash, now time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(hashes, func(h kv.EngineHash) bool { return !s.readable(h, now) })
}

// touch is use with the lock.
func (s *Store) touch(hashes []kv.EngineHash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.use(hashes)
}

// contents reads blocks. The first that another engine's save has pushed out since [Store.ahead] ends it.
func (s *Store) contents(hashes []kv.EngineHash) (all []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range hashes {
		x := s.known[h]
		if x == nil {
			break
		}
		all = append(all, x.Value.(*offloaded).content)
	}
	return all
}
