package core

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandem-router/tandem/internal/kv"
)

func newPool(blocks int) *pool {
	p := new(pool)
	p.init(Config{Blocks: blocks})
	return p
}

func (p *pool) queue() (ids []int32) {
	for id := p.blocks[0].next; id != 0; id = p.blocks[id].next {
		ids = append(ids, id)
	}
	return ids
}

func TestReleaseOrder(t *testing.T) {
	p := newPool(8)
	a := p.take(nil, 4) // 1 2 3 4
	p.cache(a[0], 11)
	p.cache(a[1], 12)
	p.release(a)
	// Blocks without a hash go to the front, those with a hash to the back; in both cases the last block goes
	// first.
	if got, want := p.queue(), []int32{4, 3, 5, 6, 7, 2, 1}; !slices.Equal(got, want) {
		t.Errorf("queue %v, want %v", got, want)
	}
	b := p.take(nil, 6)
	if got, want := b, []int32{4, 3, 5, 6, 7, 2}; !slices.Equal(got, want) {
		t.Errorf("taken %v, want %v", got, want)
	}
	ev := p.flush()
	if len(ev) != 1 || ev[0].Kind != kv.Removed || !slices.Equal(ev[0].Hashes, []kv.EngineHash{12}) {
		t.Errorf("events %v, want the removal of 12", ev)
	}
}

// Several blocks may have the same hash. The first one is hit, and each removal is published.
func TestDuplicates(t *testing.T) {
	p := newPool(8)
	a := p.take(nil, 3)
	for _, id := range a {
		p.cache(id, 7)
	}
	if got := p.match(nil, []kv.EngineHash{7}); !slices.Equal(got, a[:1]) {
		t.Errorf("hit %v, want the first copy", got)
	}
	p.release(a) // queue 4 5 6 7 3 2 1
	p.take(nil, 5)
	if got := p.match(nil, []kv.EngineHash{7}); !slices.Equal(got, a[:1]) {
		t.Errorf("after one removal: hit %v", got)
	}
	p.touch(a[:1])
	p.take(nil, 1)
	if got := len(p.flush()); got != 2 {
		t.Errorf("%d removals, want 2", got)
	}
	p.release(a[:1])
	p.take(nil, 1)
	if got := p.match(nil, []kv.EngineHash{7}); got != nil {
		t.Errorf("hit %v, want none", got)
	}
}

func TestHitLeavesTheFreeQueue(t *testing.T) {
	p := newPool(6)
	a := p.take(nil, 3)
	for i, id := range a {
		p.cache(id, kv.EngineHash(i+1))
	}
	p.release(a)
	if p.idle(a) != 3 {
		t.Fatal("released blocks are not idle")
	}
	p.touch(a[:2])
	if got := p.queue(); !slices.Equal(got, []int32{4, 5, 3}) || p.free != 3 || p.idle(a) != 1 {
		t.Errorf("queue %v", got)
	}
	p.touch(a[:1])
	p.release(a[:1])
	if p.blocks[a[0]].refs != 1 || p.free != 3 {
		t.Error("a block with two holders was freed after one release")
	}
}

// slowPool does the same as pool in an obvious way: with a list of free blocks, and a list of blocks for
// each hash.
type slowPool struct {
	free  []int32
	refs  map[int32]int
	hash  map[int32]kv.EngineHash
	under map[kv.EngineHash][]int32
}

func (s *slowPool) take(n int) (ids []int32, removed []kv.EngineHash) {
	for range n {
		id := s.free[0]
		s.free = s.free[1:]
		if h := s.hash[id]; h != 0 {
			s.under[h] = slices.DeleteFunc(s.under[h], func(x int32) bool { return x == id })
			delete(s.hash, id)
			removed = append(removed, h)
		}
		s.refs[id] = 1
		ids = append(ids, id)
	}
	return ids, removed
}

func (s *slowPool) release(ids []int32) {
	var front []int32
	for _, id := range slices.Backward(ids) {
		if s.refs[id]--; s.refs[id] > 0 {
			continue
		}
		if s.hash[id] == 0 {
			front = append(front, id)
		} else {
			s.free = append(s.free, id)
		}
	}
	s.free = append(front, s.free...)
}

func TestPoolAgreesWithItsTwin(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		const n = 20
		p := newPool(n)
		s := &slowPool{refs: map[int32]int{}, hash: map[int32]kv.EngineHash{}, under: map[kv.EngineHash][]int32{}}
		for id := int32(1); id < n; id++ {
			s.free = append(s.free, id)
		}
		hashes := make([]kv.EngineHash, 12) // enough for neighbours in the hash table
		for i := range hashes {
			hashes[i] = kv.EngineHash(rnd.Uint64() | 1)
		}
		var tables [][]int32
		for step := range 400 {
			switch k := rnd.IntN(4); {
			case k == 0 && p.free > 0:
				want := 1 + rnd.IntN(min(p.free, 5))
				got := p.take(nil, want)
				ids, removed := s.take(want)
				var told []kv.EngineHash
				for _, ev := range p.flush() {
					told = append(told, ev.Hashes...)
				}
				if !slices.Equal(got, ids) || !slices.Equal(told, removed) {
					t.Fatalf("step %d: took %v removing %v, twin %v removing %v", step, got, told, ids, removed)
				}
				tables = append(tables, got)
			case k == 1 && len(tables) > 0:
				i := rnd.IntN(len(tables))
				p.release(tables[i])
				s.release(tables[i])
				tables = slices.Delete(tables, i, i+1)
			case k == 2 && len(tables) > 0:
				for _, id := range tables[rnd.IntN(len(tables))] {
					if p.blocks[id].hash == 0 {
						h := hashes[rnd.IntN(len(hashes))]
						p.cache(id, h)
						s.hash[id] = h
						s.under[h] = append(s.under[h], id)
						break
					}
				}
			case k == 3:
				h := hashes[rnd.IntN(len(hashes))]
				got := p.match(nil, []kv.EngineHash{h})
				if len(s.under[h]) == 0 != (got == nil) || got != nil && got[0] != s.under[h][0] {
					t.Fatalf("step %d: hit %v, twin has %v", step, got, s.under[h])
				}
				if got != nil {
					p.touch(got)
					s.free = slices.DeleteFunc(s.free, func(x int32) bool { return x == got[0] })
					s.refs[got[0]]++
					tables = append(tables, got)
				}
			}
			if !slices.Equal(p.queue(), s.free) {
				t.Fatalf("step %d: free queue %v, twin %v", step, p.queue(), s.free)
			}
		}
	}
}
