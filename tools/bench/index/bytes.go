package index

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/tandem-router/tandem/internal/kv"
)

// Lengths of the prompts that measure memory: the mean of the trace's, and one that leaves nothing to be
// saved by keeping neighbours together.
const (
	chainBlocks = 750
	shortBlocks = 8
)

// sharers is how many holders have each prompt in the case that all is shared.
const sharers = 16

// bytes measures what a block of a holder takes: where no two prompts have anything in common, where they are
// short besides, and where sharers of the holders have each.
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

// fillChains stores prompts of the same length, each at the given number of holders, until there are size
// blocks.
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

// heapOf measures what a block takes after all that was done to the index, by what is free once it has gone.
// r is of no use afterwards.
func (m *measurement) heapOf(r *resident) {
	memberships := float64(r.ix.Stats().Memberships)
	with := heap()
	r.ix = nil
	m.add("bytes_per_membership_churned", (with-heap())/memberships)
	runtime.KeepAlive(r)
	debug.FreeOSMemory()
}
