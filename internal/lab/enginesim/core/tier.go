package core

import (
	"errors"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// Tier is host memory for KV beside the GPU, as vLLM's OffloadingConnector has it with its CPU tier (vLLM
// 0.32.0, v1/kv_offload). The zero Tier is none. A block of a hybrid model's thin groups takes as much memory
// as a block of full attention.
//
// With a Store it is the engine's way to blocks that several engines share, as with MooncakeStoreConnector,
// LMCache, or the offloading connector's tiers on shared storage. Saves end after the request's answer, so
// that a peer may find nothing yet; and no event tells which blocks go. What thin groups need comes
// and goes there with the blocks of full attention, and takes no memory.
type Tier struct {
	Blocks      int           // capacity
	Read, Write time.Duration // time of one block to the GPU, from the GPU; one block at a time per direction
	Telling     bool          // self_describing_kv_events: events contain tokens, not only hashes

	Store *Store // shared with other engines; nil: the engine's own, of Blocks
	// Under which medium the engine announces what it has saved in Store, in the first step after the copy:
	// kv.Shared as MooncakeStore, with tokens and parent, or kv.Disk as the file tier, with hashes alone.
	// kv.GPU: not at all, as LMCache, whose events have hashes of its own.
	Announces kv.Tier
	Began     time.Duration // the engine's zero on the store's clock
	First     bool          // in a MultiConnector before NIXL: what it finds is not loaded from a peer
}

// tier holds the blocks in host memory. Every computed block is copied into it, and also stays on the GPU.
type tier struct {
	Tier
	written time.Duration // end of the copies to host memory
	read    time.Duration // end of the copies to the GPU
	coming  []restoring   // ordered by end
	saving  []saving      // ordered by end
	stored  uint64        // blocks copied to host memory
	loaded  uint64        // blocks copied to the GPU
}

// restoring is a request whose blocks are being copied to the GPU. Their contents are read at the start of
// the copy, because host memory cannot evict the sources during the copy.
type restoring struct {
	id       string
	at       time.Duration
	contents []uint64
}

// moved returns the numbers of blocks copied to host memory and to the GPU.
func (t *tier) moved() (stored, loaded uint64) {
	if t == nil {
		return 0, 0
	}
	return t.stored, t.loaded
}

func newTier(c *Config) *tier {
	t := c.Tier
	if t.Blocks == 0 && t.Store == nil || c.NoPrefixCaching {
		return nil
	}
	if t.Store == nil {
		t.Store = NewStore(t.Blocks)
	}
	return &tier{Tier: t}
}

// shared reports whether other engines have the blocks too.
func (t *tier) shared() bool { return t.Blocks == 0 }

// row is a block of a group.
type row struct {
	group int
	hash  kv.EngineHash
}

// saved is what host memory took in and what had to go, by group.
type saved struct{ fresh, gone [][]kv.EngineHash }

func (e *Engine) nothingSaved() saved {
	return saved{make([][]kv.EngineHash, e.groups.count), make([][]kv.EngineHash, e.groups.count)}
}

// offload copies r's computed blocks to host memory, except those that are there. at is the end of the step.
//
// Its events go out with the step's, some milliseconds before the copies are done.
func (e *Engine) offload(at time.Duration, r *request) {
	t, n := e.pool.tier, r.done.computed/e.cfg.BlockSize
	if t == nil || n <= r.blocks.offloaded {
		return
	}
	from := r.blocks.offloaded
	r.blocks.offloaded = n
	t.written = max(t.written, at)
	told := e.nothingSaved()
	for i := from; i < n; i++ {
		if e.save(&told, row{e.groups.full, r.blocks.hashes[i]}, e.pool.blocks[r.blocks.table[i]].content,
			t.written+t.Write) {
			t.written += t.Write
			e.saves(r, i)
		}
	}
	for i := range e.groups.thin {
		g := &e.groups.thin[i]
		for at := from/g.step*g.step + g.step; at <= n && !t.shared(); at += g.step {
			if e.has(r, g, at, n) && e.save(&told, row{g.number, r.blocks.hashes[at-1]}, 0, t.written+t.Write) {
				t.written += t.Write
			}
		}
	}
	e.tell(r, &told)
}

// save puts a block into host memory, which can be read from then on. It returns false if the block is there.
func (e *Engine) save(told *saved, x row, content uint64, ready time.Duration) bool {
	t := e.pool.tier
	added, old := t.Store.add(offloaded{e.groups.nameIn(x.group, x.hash), x.group, content, t.Began + ready})
	if old != nil {
		told.gone[old.group] = append(told.gone[old.group], e.groups.nameIn(old.group, old.hash))
	}
	if added {
		told.fresh[x.group] = append(told.fresh[x.group], x.hash)
		t.stored++
	}
	return added
}

// tell announces what came and went, except in a shared store. r describes its blocks; nil: nobody does.
func (e *Engine) tell(r *request, told *saved) {
	if e.cfg.NoEvents || e.pool.tier.shared() {
		return
	}
	for group, gone := range told.gone {
		e.tellOf(kv.Event{Kind: kv.Removed, Hashes: gone, Group: group})
	}
	for group, fresh := range told.fresh {
		if r != nil && e.pool.tier.Telling && group == e.groups.full {
			e.describe(r, fresh)
			continue
		}
		e.tellOf(kv.Event{Kind: kv.Stored, Hashes: fresh, Group: group, Bare: true})
	}
}

// describe announces r's fresh blocks of full attention in host memory, with their tokens, one event per
// block.
func (e *Engine) describe(r *request, fresh []kv.EngineHash) {
	at := 0
	for i := range fresh {
		for r.blocks.hashes[at] != fresh[i] {
			at++
		}
		ev := kv.Event{
			Kind: kv.Stored, Hashes: fresh[i : i+1 : i+1], BlockSize: e.cfg.BlockSize, LoRA: r.ask.lora,
			Tokens: r.text.tokens[at*e.cfg.BlockSize:][:e.cfg.BlockSize:e.cfg.BlockSize],
			Group:  e.groups.full, Bare: true,
		}
		if at > 0 {
			ev.HasParent, ev.Parent = true, r.blocks.hashes[at-1]
		}
		e.tellOf(ev)
	}
}

func (e *Engine) tellOf(ev kv.Event) {
	if len(ev.Hashes) == 0 {
		return
	}
	ev.Tier = kv.CPU
	e.pool.events = append(e.pool.events, ev)
}

// offloaded returns the number of r's tokens behind the local ones that host memory can provide. It marks r's
// blocks as recently requested: all of full attention, and of a thin group those from the end of the hit on.
func (e *Engine) offloaded(r *request, local int) int {
	t := e.pool.tier
	if t == nil || r.ask.skipRead {
		return 0
	}
	now, first := t.Began+e.turn.now, local/e.cfg.BlockSize
	hashes := r.blocks.hashes[:(len(r.text.tokens)-1)/e.cfg.BlockSize]
	n := first + t.Store.ahead(hashes, first, now)
	for i := range e.groups.thin {
		if t.shared() {
			break
		}
		g := &e.groups.thin[i]
		for n > first && !t.Store.all(e.groups.names(g.number, g.behind(hashes, first, n)), now) {
			n--
		}
	}
	for i := range e.groups.thin {
		g := &e.groups.thin[i]
		t.Store.touch(e.groups.names(g.number, hashes[max(0, n-g.need):]))
	}
	return (n - first) * e.cfg.BlockSize
}

// errForgotten is the end of a load whose blocks a shared store forgot meanwhile.
var errForgotten = errors.New("the store has forgotten the blocks")

// restore begins to copy blocks to the GPU, behind those of r that are there.
func (e *Engine) restore(r *request) {
	t := e.pool.tier
	r.state = loading
	r.load.reads = len(r.blocks.table) - r.blocks.committed
	e.loads.loading = append(e.loads.loading, r)
	contents := t.Store.contents(r.blocks.hashes[r.blocks.committed : r.blocks.committed+r.load.reads])
	reads := r.load.reads
	for i := range e.groups.thin {
		if g := &e.groups.thin[i]; !t.shared() {
			reads += len(g.behind(r.blocks.hashes, r.blocks.committed, r.blocks.committed+r.load.reads))
		}
	}
	t.read = max(t.read, e.turn.now) + time.Duration(reads)*t.Read
	t.coming = append(t.coming, restoring{r.id, t.read, contents})
	t.loaded += uint64(reads)
}

// restored finishes the copies to the GPU that have ended by now.
func (e *Engine) restored(now time.Duration) {
	t := e.pool.tier
	for t != nil && len(t.coming) > 0 && t.coming[0].at <= now {
		c := t.coming[0]
		t.coming = t.coming[1:]
		r := e.known.reqs[c.id]
		if r == nil { // its client disconnected
			r = e.known.held[c.id]
			delete(e.known.held, c.id)
			e.drop(r)
			continue
		}
		r.state = loaded
		e.loads.arrived++
		if len(c.contents) < r.load.reads {
			e.loadFailed(r, errForgotten)
			continue
		}
		for i, id := range r.blocks.table[len(r.blocks.table)-r.load.reads:] {
			e.pool.blocks[id].content = c.contents[i]
		}
	}
}

// wake is the next time that needs a step: for leases, or for copies from host memory.
func (e *Engine) wake() time.Duration {
	at := e.leasing.wake()
	if t := e.pool.tier; t != nil && len(t.coming) > 0 && (at == 0 || t.coming[0].at < at) {
		at = t.coming[0].at
	}
	return at
}
