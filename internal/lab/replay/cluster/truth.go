package cluster

import (
	"strconv"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// Truth is the real state of the fleet. No production router can know it, so only oracles get it. All oracles
// see the same state.
type Truth struct {
	c        *Cluster
	hashes   []kv.EngineHash
	expected []int // see [Truth.Expect]
}

// Seer is a router that gets the truth before the run begins.
type Seer interface {
	See(*Truth)
}

// Config is the fleet's configuration with defaults filled in.
func (t *Truth) Config() *Config { return &t.c.cfg }

// Engine is the configuration of an engine with defaults filled in.
func (t *Truth) Engine(side Side, i int) core.Config { return t.c.engines.of[side][i].core.Config() }

// Output is the length that the answer of q will have, in tokens.
func (t *Truth) Output(q *Query) int { return t.c.slots.live[q.Slot].output }

// Hashes returns the chained hashes of the full blocks of q's prompt. They are valid until the next call.
func (t *Truth) Hashes(q *Query) []kv.EngineHash {
	t.hashes = t.c.engines.of[Decode][0].core.AppendHashes(t.hashes[:0], t.c.slots.live[q.Slot].prompt)
	return t.hashes
}

// Cached is the number of leading blocks of hashes that an engine has now.
func (t *Truth) Cached(side Side, i int, hashes []kv.EngineHash) int {
	return t.c.engines.of[side][i].core.Cached(hashes)
}

// Rest is the time until the running step of an engine ends.
func (t *Truth) Rest(side Side, i int) time.Duration {
	if e := t.c.engines.of[side][i]; e.steps.busy {
		return e.steps.until - t.c.clock.now
	}
	return 0
}

// Link is the time until an engine's side of the network is free.
func (t *Truth) Link(side Side, i int) time.Duration {
	if t.c.cfg.LinkModel == Shared {
		return t.c.network.busy(side, i, t.c.clock.now)
	}
	return max(0, t.c.engines.of[side][i].link-t.c.clock.now)
}

// Free is the number of blocks that an engine could allocate now.
func (t *Truth) Free(side Side, i int) int { return t.c.engines.of[side][i].core.FreeBlocks() }

// Tasks appends the remaining work of an engine in the engine's order, and then the requests on their way to
// it, as waiting ones. An id is the slot of a query.
func (t *Truth) Tasks(side Side, i int, dst []core.Task) []core.Task {
	dst = t.c.engines.of[side][i].core.Tasks(dst)
	for slot, x := range t.c.slots.live {
		if x != nil && x.leg.flying && x.leg.side == side && [2]int{x.place.p, x.place.d}[side] == i {
			dst = append(dst, core.Task{ID: strconv.Itoa(slot), Tokens: len(x.prompt), Out: x.output, Waiting: true})
		}
	}
	return dst
}

// Expect records how many tokens of q the engine should find in its cache. A later look at the engine's queue
// needs this number.
func (t *Truth) Expect(q *Query, cached int) {
	for len(t.expected) <= q.Slot {
		t.expected = append(t.expected, 0)
	}
	t.expected[q.Slot] = cached
}

// Expected returns the recorded number for a task id, and whether the task computes its prompt on its engine.
// A task that reads its blocks from another engine does not.
func (t *Truth) Expected(id string) (cached int, computes bool) {
	slot, err := slotOf(id)
	if err != nil || slot >= len(t.c.slots.live) || t.c.slots.live[slot] == nil || slot >= len(t.expected) {
		return 0, false
	}
	x := t.c.slots.live[slot]
	return t.expected[slot], x.leg.side == Prefill || x.place.p < 0
}

// Coming counts the requests other than q that will decode on replica i after a prefill elsewhere, and the
// tokens of their prompts.
func (t *Truth) Coming(i int, q *Query) (requests, tokens int) {
	for slot, x := range t.c.slots.live {
		if x != nil && slot != q.Slot && x.place.placed && x.leg.side == Prefill && x.place.d == i {
			requests++
			tokens += len(x.prompt)
		}
	}
	return requests, tokens
}
