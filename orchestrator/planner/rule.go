package planner

import (
	"cmp"
	"math/rand/v2"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
)

// Rule chooses the prefill replica by itself, before anything is priced. The decode replica, and whether it
// prefills by itself, are then chosen by costs. A replica that makes no pair is no target of a rule.
type Rule struct {
	Chooser
	Name string // in decisions
}

// Chooser chooses one replica by the state of its pool alone, as other routers do. A chooser has
// thresholds where the sum of predicted seconds has prices.
type Chooser interface {
	// Choose returns an index into targets, which has at least one.
	Choose(p Prompt, targets []Target, rnd *rand.Rand) int
}

// Prompt is what a rule sees of a request.
type Prompt struct {
	Tokens int    // at least 1
	Head   uint64 // names the first [HeadTokens] tokens, or all of a shorter prompt; 0 unknown
}

// HeadTokens is how many tokens of a prompt decide where hashing sends it.
const HeadTokens = 256

// Target is the facts about one replica that a rule reads. Load is the load that the router itself knows
// now, not an older report.
type Target struct {
	Name uint64 // of the replica, the same for every router
	Held int    // leading tokens of the prompt that the replica has
	Load int    // requests in flight there
}

// ruling lets a rule choose the prefill replica. The next request uses its memory again.
type ruling struct {
	targets []Target
	at      []int // prefill candidate of each target
}

// restrict lets the rule choose, and takes every other prefill replica out of the table.
func (c *ruling) restrict(b *comparison, q *question, rnd *rand.Rand) {
	c.targets, c.at = c.targets[:0], c.at[:0]
	for i := range b.prefills {
		p := &b.prefills[i]
		if !b.pairsWith(i) {
			continue
		}
		c.targets = append(c.targets, Target{
			Name: nameOf(b.pairs.prefill.Replicas[p.Slot].ID), Held: p.Expected, Load: int(p.Waiting),
		})
		c.at = append(c.at, i)
	}
	if len(c.targets) == 0 {
		return
	}
	policy, prompt := b.policy, Prompt{Tokens: q.prefill.Tokens, Head: headOf(q)}
	chosen := c.at[policy.Rule.Choose(prompt, c.targets, rnd)]
	for i := range b.prefills {
		if i != chosen {
			b.table.ExcludeSender(i)
		}
	}
}

// headOf names the first tokens of a prompt by the key of the part that they end in; 0 where no part is
// known.
func headOf(q *question) uint64 {
	keys, size := q.PrefillKeys, cmp.Or(q.Chunk, float64(q.PrefillBlock), roster.UsualBlock)
	n := min(len(keys), max(1, int(HeadTokens/size)))
	if n == 0 {
		return 0
	}
	return uint64(keys[n-1])
}

// nameOf is the same for every router that knows a replica by this id.
func nameOf(id replica.ID) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	return h
}

// ruled says which rule chooses, for people; "" where costs do.
func (p *Policy) ruled() string {
	if p.Rule == nil {
		return ""
	}
	return "prefill by " + p.Rule.Name
}
