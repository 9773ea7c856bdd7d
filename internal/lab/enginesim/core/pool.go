package core

import (
	"slices"

	"github.com/tandem-router/tandem/internal/kv"
)

// block is one physical block of KV memory.
type block struct {
	hash    kv.EngineHash // from [groups.nameIn]; 0: not cached
	content uint64        // survives freeing, until the next write
	refs    int32         // requests and leases that hold the block
	group   int32         // number of its group, while cached

	prev, next     int32 // neighbours in the free queue, while refs is 0
	before, behind int32 // ring of the blocks cached under the same hash, in the order of caching
}

// pool is vLLM's BlockPool: the cache, and a free queue in eviction order. Block 0 is vLLM's null block. It
// is never given out; here it is the sentinel of the free queue.
type pool struct {
	blocks []block
	free   int
	cached catalog // hash -> first block that is cached under the hash

	tier    *tier // host memory; nil: none
	groups  groups
	silent  bool
	events  []kv.Event
	removed []kv.EngineHash // backs the Hashes of Removed events

	flushed        []kv.Event // buffers of the last flush, reused after the next one
	flushedRemoved []kv.EngineHash
}

func (p *pool) init(c Config) {
	*p = pool{blocks: make([]block, c.Blocks), cached: newCatalog(c.Blocks), silent: c.NoEvents}
	p.groups = newGroups(&c)
	for id := int32(1); id < int32(c.Blocks); id++ {
		p.insert(id, p.blocks[0].prev)
	}
}

// insert puts a block into the free queue behind block after. after 0 is the front.
func (p *pool) insert(id, after int32) {
	next := p.blocks[after].next
	p.blocks[id].prev, p.blocks[id].next = after, next
	p.blocks[after].next, p.blocks[next].prev = id, id
	p.free++
}

func (p *pool) unlink(id int32) {
	b := &p.blocks[id]
	p.blocks[b.prev].next, p.blocks[b.next].prev = b.next, b.prev
	p.free--
}

// take appends n free blocks to table and evicts their cached content. The caller checks that n blocks are
// free.
func (p *pool) take(table []int32, n int) []int32 {
	for range n {
		id := p.blocks[0].next
		p.unlink(id)
		if p.blocks[id].hash != 0 {
			p.evict(id)
		}
		p.blocks[id].refs = 1
		table = append(table, id)
	}
	return table
}

// evict removes a block from the cache and adds the event.
func (p *pool) evict(id int32) {
	group := int(p.blocks[id].group)
	h := p.groups.nameIn(group, p.blocks[id].hash)
	p.uncache(id)
	if p.silent {
		return
	}
	p.removed = append(p.removed, h)
	n := len(p.removed)
	p.events = append(p.events, kv.Event{Kind: kv.Removed, Hashes: p.removed[n-1 : n : n], Group: group})
}

func (p *pool) uncache(id int32) {
	b := &p.blocks[id]
	at := p.cached.find(p.blocks, b.hash)
	switch {
	case b.behind == id:
		p.cached.remove(at)
	case p.cached.slots[at].block() == id:
		p.cached.slots[at] = slotOf(b.hash, b.behind)
		fallthrough
	default:
		p.blocks[b.before].behind, p.blocks[b.behind].before = b.behind, b.before
	}
	b.hash = 0
}

// first is the block that was cached first under h, 0 if none.
func (p *pool) first(h kv.EngineHash) int32 {
	return p.cached.slots[p.cached.find(p.blocks, h)].block()
}

// cache caches a held full-attention block under h, behind other blocks with this hash: vLLM does not merge
// copies.
func (p *pool) cache(id int32, h kv.EngineHash) { p.cacheIn(p.groups.full, id, h) }

// cacheIn is cache for a block of any group.
func (p *pool) cacheIn(group int, id int32, h kv.EngineHash) {
	h = p.groups.nameIn(group, h)
	b := &p.blocks[id]
	b.group = int32(group)
	at := p.cached.find(p.blocks, h)
	first := p.cached.slots[at].block()
	b.hash = h
	if first == 0 {
		b.before, b.behind = id, id
		p.cached.slots[at] = slotOf(h, id)
		return
	}
	last := p.blocks[first].before
	b.before, b.behind = last, first
	p.blocks[last].behind, p.blocks[first].before = id, id
}

// match appends the cached blocks of the longest cached prefix of hashes.
func (p *pool) match(dst []int32, hashes []kv.EngineHash) []int32 {
	for _, h := range hashes {
		id := p.first(h)
		if id == 0 {
			break
		}
		dst = append(dst, id)
	}
	return dst
}

// idle counts the given blocks that are in the free queue. touch takes them out of the queue.
func (p *pool) idle(ids []int32) int {
	n := 0
	for _, id := range ids {
		if p.blocks[id].refs == 0 {
			n++
		}
	}
	return n
}

// touch adds a holder to each hit block.
func (p *pool) touch(ids []int32) {
	for _, id := range ids {
		if p.blocks[id].refs == 0 {
			p.unlink(id)
		}
		p.blocks[id].refs++
	}
}

// release removes a holder from each block of a table, tail first, so that a prompt's tail is evicted before
// its head. Free blocks without a hash cannot be hit again: they go to the front of the queue.
func (p *pool) release(table []int32) {
	front := int32(0)
	for _, id := range slices.Backward(table) {
		b := &p.blocks[id]
		b.refs--
		switch {
		case b.refs > 0:
		case b.hash == 0:
			p.insert(id, front)
			front = id
		default:
			p.insert(id, p.blocks[0].prev)
		}
	}
}

// reset removes every block from the cache. It returns false and does nothing while any block is held.
func (p *pool) reset() bool {
	if p.free != len(p.blocks)-1 {
		return false
	}
	clear(p.cached.slots)
	for i := range p.blocks {
		p.blocks[i].hash = 0
	}
	if !p.silent {
		p.events = append(p.events, kv.Event{Kind: kv.Cleared, Group: kv.NoGroup})
	}
	return true
}

// flush returns the events since the last flush. They are valid until the next flush.
func (p *pool) flush() []kv.Event {
	out := p.events
	p.events, p.flushed = p.flushed[:0], out
	p.removed, p.flushedRemoved = p.flushedRemoved[:0], p.removed
	return out
}

// usage is vLLM's kv_cache_usage_perc.
func (p *pool) usage() float64 { return 1 - float64(p.free)/float64(len(p.blocks)-1) }
