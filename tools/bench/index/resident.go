package index

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// budget is more than any setting needs, so that the index drops nothing.
const budget = 16 << 30

// promptHolders is the number of holders of a long prompt, each with another depth.
const promptHolders = 8

// resident is a full index and the fleet that filled it.
type resident struct {
	ix      *kv.Index
	fleet   *fleet
	depth   []int32
	prompts []longPrompt
	batches []kv.Batch // by holder: every stream has its own batch for decoding
	stepped kv.Batch
	made    int // invented prompts so far that share no blocks
}

// longPrompt is a prompt of which promptHolders engines hold a part.
type longPrompt struct {
	keys []kv.Key
	want []int32 // depth by holder
}

func newIndex() *kv.Index { return kv.NewIndex(kv.Options{Chain: indexChain, ByteBudget: budget}) }

// fill makes an index with size blocks: long prompts first, the rest from the trace.
func (m *measurement) fill(ctx context.Context, size, holders int) (*resident, error) {
	start := time.Now()
	r := &resident{ix: newIndex(), depth: make([]int32, holders), batches: make([]kv.Batch, holders)}
	placed, err := r.placePrompts(max(2, m.plan.Prompts*size/1_000_000), m.plan.Prompt)
	if err != nil {
		return nil, err
	}
	if placed > size/2 {
		return nil, fmt.Errorf("long prompts take %d of %d blocks", placed, size)
	}
	r.fleet = newFleet(m.story, holders, size-placed)
	total := 0
	for full := (size - placed) / 100 * 99; r.fleet.held() < full; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for range holders {
			h := r.fleet.next(&r.stepped)
			a := r.ix.Apply(h, &r.stepped)
			total += a.Stored + a.Removed
		}
	}
	s := r.ix.Stats()
	m.say("%d blocks of %d holders are in after %d changes in %.1f s",
		s.Memberships, holders, total, time.Since(start).Seconds())
	if want := r.fleet.held() + placed; s.Memberships != want || s.Orphans+s.Truncated > 0 {
		return nil, fmt.Errorf("index has %d memberships, %d orphans, %d truncated; want %d, 0, 0",
			s.Memberships, s.Orphans, s.Truncated, want)
	}
	return r, nil
}

// placePrompts stores n long prompts and returns the number of stored blocks. Some holders get a prompt,
// each to another depth, but at least half of its blocks. Each prompt draws its depths anew: with equal
// depths, the processor would soon predict where to look.
func (r *resident) placePrompts(n, blocks int) (placed int, err error) {
	dice := seedOf("prompts")
	for i := range n {
		p := longPrompt{want: make([]int32, len(r.depth))}
		of := privateFrom + segment(i)
		p.keys = chainKeys(of, blocks)
		for j := range promptHolders {
			h := dice.below(len(r.depth))
			for p.want[h] > 0 {
				h = (h + 1) % len(r.depth)
			}
			depth := blocks / 2
			for j > 0 && slices.Contains(p.want, int32(depth)) {
				depth = 1 + dice.below(blocks/2)
			}
			p.want[h] = int32(depth)
			placed += r.storeChain(kv.Holder(h), of, depth)
		}
		r.prompts = append(r.prompts, p)
	}
	return placed, r.checkPrompts()
}

// checkPrompts looks every long prompt up and compares.
func (r *resident) checkPrompts() error {
	for i, p := range r.prompts {
		r.ix.Match(p.keys, r.depth)
		for h := range r.depth {
			if r.depth[h] != p.want[h] {
				return fmt.Errorf("prompt %d at holder %d: matched %d blocks, want %d", i, h, r.depth[h], p.want[h])
			}
		}
	}
	return nil
}

// storeChain stores the first n blocks of a segment at holder h, and returns how many were stored.
func (r *resident) storeChain(h kv.Holder, of segment, n int) (stored int) {
	for from := 0; from < n; from += stepBlocks {
		r.stepped.Events = r.stepped.Events[:0]
		chainEvent(&r.stepped, h, of, from, min(from+stepBlocks, n))
		stored += r.ix.Apply(h, &r.stepped).Stored
	}
	return stored
}

// chainEvent adds to b the blocks from (included) to (excluded) of a prompt that is one segment.
func chainEvent(b *kv.Batch, h kv.Holder, of segment, from, to int) {
	e := nextEvent(b, kv.Stored)
	if from > 0 {
		e.Parent, e.HasParent = hashOf(h, of, from-1), true
	}
	for at := from; at < to; at++ {
		e.Hashes = append(e.Hashes, hashOf(h, of, at))
		e.Tokens = appendTokens(e.Tokens, of, at)
	}
}

func chainKeys(of segment, n int) []kv.Key {
	var tokens []kv.Token
	for at := range n {
		tokens = appendTokens(tokens, of, at)
	}
	return keysOf(tokens)
}

// heap returns the bytes of live objects.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return float64(s.HeapAlloc)
}
