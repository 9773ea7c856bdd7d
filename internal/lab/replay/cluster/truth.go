package cluster

import (
	"strconv"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// Truth is the fleet as it is. No router of production can know it: it is shown to oracles only. All oracles
// see the same.
type Truth struct {
	c        *Cluster
	hashes   []kv.EngineHash
	expected []int // see Expect
}

// Seer is a router that is shown the truth, before anything happens.
type Seer interface {
	See(*Truth)
}

// Config is the fleet's, defaults filled in.
func (t *Truth) Config() *Config { return &t.c.cfg }

// Engine is the configuration of an engine, defaults filled in.
func (t *Truth) Engine(side Side, i int) core.Config { return t.c.engines.of[side][i].core.Config() }

// Output is how long the answer of q will be, in tokens.
func (t *Truth) Output(q *Query) int { return t.c.slots.live[q.Slot].output }

// Hashes names the full blocks of q's prompt, chained. They hold until the next call.
func (t *Truth) Hashes(q *Query) []kv.EngineHash {
	t.hashes = t.c.engines.of[Decode][0].core.AppendHashes(t.hashes[:0], t.c.slots.live[q.Slot].prompt)
	return t.hashes
}

// Cached is how many leading blocks of hashes an engine has now.
func (t *Truth) Cached(side Side, i int, hashes []kv.EngineHash) int {
	return t.c.engines.of[side][i].core.Cached(hashes)
}

// Rest is the time until the step under way on an engine is over.
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

// Free is the blocks that an engine could give out now.
func (t *Truth) Free(side Side, i int) int { return t.c.engines.of[side][i].core.FreeBlocks() }

// Tasks appends what an engine has left to do, in its order, and behind it the requests on their way to it,
// as waiting ones. An id is the slot of a query.
func (t *Truth) Tasks(side Side, i int, dst []core.Task) []core.Task {
	dst = t.c.engines.of[side][i].core.Tasks(dst)
	for slot, x := range t.c.slots.live {
		if x != nil && x.leg.flying && x.leg.side == side && [2]int{x.place.p, x.place.d}[side] == i {
			dst = append(dst, core.Task{ID: strconv.Itoa(slot), Tokens: len(x.prompt), Out: x.output, Waiting: true})
		}
	}
	return dst
}

// Expect notes how many tokens of q should be found in the cache of the engine it was sent to. A later look
// at that engine's queue needs this number.
func (t *Truth) Expect(q *Query, cached int) {
	for len(t.expected) <= q.Slot {
		t.expected = append(t.expected, 0)
	}
	t.expected[q.Slot] = cached
}

// Expected returns the note for a task, by its id, and whether the task computes its prompt where it waits.
// A task with blocks elsewhere does not.
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
