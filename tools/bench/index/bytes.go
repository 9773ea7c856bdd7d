package index

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"tandem/internal/kv"
)

// chainBlocks is the length of the prompts that measure memory, the mean of the trace's.
const chainBlocks = 750

// sharers is how many holders have each prompt in the case that all is shared.
const sharers = 16

// bytes measures what a block of a holder takes: where no two holders have anything in common, which is the worst, and where sharers of them have each prompt.
func (m *measurement) bytes(ctx context.Context, size, holders int) error {
	m.say("bytes")
	for _, c := range []struct {
		name     string
		together int
	}{{"bytes_per_membership", 1}, {"bytes_per_membership_shared", min(sharers, holders)}} {
		before := heap()
		r := &resident{ix: newIndex(), depth: make([]int32, holders)}
		if err := r.fillChains(ctx, size, holders, c.together); err != nil {
			return err
		}
		r.stepped = kv.Batch{}
		m.add(c.name, (heap()-before)/float64(r.ix.Stats().Memberships))
		runtime.KeepAlive(r)
	}
	debug.FreeOSMemory()
	return nil
}

// fillChains stores prompts, each at the given number of holders together, until there are size blocks.
func (r *resident) fillChains(ctx context.Context, size, holders, together int) error {
	stored := 0
	for i := 0; stored < size && ctx.Err() == nil; i++ {
		for j := range together {
			stored += r.storeChain(kv.Holder((i*together+j)%holders), privateFrom+segment(i), min(chainBlocks, size-stored))
		}
	}
	if s := r.ix.Stats(); s.Memberships != stored || s.Truncated > 0 {
		return fmt.Errorf("index has %d memberships of %d, %d truncated", s.Memberships, stored, s.Truncated)
	}
	return ctx.Err()
}

// heapOf measures what a block takes after all that was done to the index, by what is free once it has gone. r is of no use afterwards.
func (m *measurement) heapOf(r *resident) {
	memberships := float64(r.ix.Stats().Memberships)
	with := heap()
	r.ix = nil
	m.add("bytes_per_membership_churned", (with-heap())/memberships)
	runtime.KeepAlive(r)
	debug.FreeOSMemory()
}
