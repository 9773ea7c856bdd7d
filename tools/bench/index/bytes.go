package index

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/tandem-router/tandem/internal/kv"
)

// Lengths of the prompts that measure memory: the mean of the trace, and a length so short that storing
// neighbours together saves nothing.
const (
	chainBlocks = 750
	shortBlocks = 8
)

// sharers is the number of holders of each prompt in the shared case.
const sharers = 16

// bytes measures the memory of one block of one holder in three cases: prompts have nothing in common; the
// same with short prompts; each prompt is at several holders (sharers).
func (m *measurement) bytes(ctx context.Context, size, holders int) error {
	m.say("bytes")
	for _, c := range []struct {
		name             string
		length, together int
	}{
		{"bytes_per_membership", chainBlocks, 1},
		{"bytes_per_membership_short", shortBlocks, 1},
		{"bytes_per_membership_shared", chainBlocks, min(sharers, holders)},
	} {
		before := heap()
		r := &resident{ix: newIndex(), depth: make([]int32, holders)}
		if err := r.fillChains(ctx, size, c.length, c.together); err != nil {
			return err
		}
		r.stepped = kv.Batch{}
		m.add(c.name, (heap()-before)/float64(r.ix.Stats().Memberships))
		runtime.KeepAlive(r)
	}
	debug.FreeOSMemory()
	return nil
}

// fillChains stores prompts of the given length, each at together holders, until size blocks are stored.
func (r *resident) fillChains(ctx context.Context, size, length, together int) error {
	stored := 0
	for i := 0; stored < size && ctx.Err() == nil; i++ {
		for j := range together {
			stored += r.storeChain(kv.Holder((i*together+j)%len(r.depth)), privateFrom+segment(i),
				min(length, size-stored))
		}
	}
	if s := r.ix.Stats(); s.Memberships != stored || s.Truncated > 0 {
		return fmt.Errorf("index has %d memberships of %d, %d truncated", s.Memberships, stored, s.Truncated)
	}
	return ctx.Err()
}

// heapOf measures the memory of a block after all changes to the index: it drops the index and sees how much
// memory becomes free. r cannot be used afterwards.
func (m *measurement) heapOf(r *resident) {
	memberships := float64(r.ix.Stats().Memberships)
	with := heap()
	r.ix = nil
	m.add("bytes_per_membership_churned", (with-heap())/memberships)
	runtime.KeepAlive(r)
	debug.FreeOSMemory()
}
