package planner

import (
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/scoring"
)

// Rule lets a pool's replica be chosen by itself, before anything is priced. The other side, and whether the
// decode replica prefills by itself, is then chosen given it, by costs. A replica that makes no pair is no
// candidate of a rule.
type Rule struct {
	scoring.Rule
	Name  string // in decisions
	Tiers bool   // it asks in which tier blocks lie
}

// ruleScratch is where a rule is worked out, used again for the next.
type ruleScratch struct {
	targets []scoring.Target
	at      []int // candidate of each target
	depth   []int32
}

// restrict lets the rules choose, and takes every plan without their choices out of the table.
func (pl *Planner) restrict(q *question) {
	if pl.policy.PrefillRule != nil && len(pl.scratch.prefills) > 0 {
		pl.restrictPrefills(q)
	}
	if pl.policy.DecodeRule != nil && len(pl.scratch.decodes) > 0 {
		pl.restrictDecodes(q)
	}
}

func (pl *Planner) restrictPrefills(q *question) {
	b, c := &pl.scratch, &pl.ruleScratch
	c.targets, c.at = c.targets[:0], c.at[:0]
	unsure := pl.policy.PrefillRule.Tiers && q.prefill.Chunk == 0
	if unsure {
		c.depth = sized(c.depth, len(q.prefill.Depth))
		pl.prefill.MatchBelow(q.PrefillKeys, c.depth)
	}
	for i := range b.prefills {
		p := &b.prefills[i]
		if !pl.pairsWith(i) {
			continue
		}
		target := scoring.Target{
			Name: nameOf(pl.pairs.prefill.Replicas[p.Slot].ID), Hot: p.Expected, Held: p.Expected,
			Load: int(p.Waiting),
		}
		if unsure {
			target.Hot -= min(target.Hot, pl.prefill.Below(p, c.depth))
		}
		c.targets, c.at = append(c.targets, target), append(c.at, i)
	}
	if len(c.targets) == 0 {
		return
	}
	prompt := scoring.Prompt{Tokens: q.prefill.Tokens, Head: headOf(q.PrefillKeys, q.Chunk, pl.prefill.Unit())}
	chosen := c.at[pl.policy.PrefillRule.Choose(prompt, c.targets, pl.rnd)]
	for i := range b.prefills {
		if i != chosen {
			b.table.ExcludeSender(i)
		}
	}
}

// pairsWith reports whether prefill candidate i makes a pair with any decode candidate.
func (pl *Planner) pairsWith(i int) bool {
	for j := range pl.scratch.decodes {
		if pl.scratch.table.Can(i, j) {
			return true
		}
	}
	return false
}

func (pl *Planner) restrictDecodes(q *question) {
	b, c := &pl.scratch, &pl.ruleScratch
	c.targets, c.at = c.targets[:0], c.at[:0]
	unsure := pl.policy.DecodeRule.Tiers && q.decode.Chunk == 0
	if unsure {
		c.depth = sized(c.depth, len(q.decode.Depth))
		pl.decode.MatchBelow(q.DecodeKeys, c.depth)
	}
	for j := range b.decodes {
		d := &b.decodes[j]
		if _, alone := b.table.Alone(j); !alone && !pl.pairedWith(j) {
			continue
		}
		target := scoring.Target{
			Name: nameOf(pl.pairs.decode.Replicas[d.Slot].ID), Hot: d.Expected, Held: d.Expected, Load: int(d.Running),
		}
		if unsure {
			target.Hot -= min(target.Hot, pl.decode.Below(d, &q.decode, c.depth))
		}
		c.targets, c.at = append(c.targets, target), append(c.at, j)
	}
	if len(c.targets) == 0 {
		return
	}
	prompt := scoring.Prompt{Tokens: q.decode.Tokens, Head: headOf(q.DecodeKeys, q.Chunk, pl.decode.Unit())}
	chosen := c.at[pl.policy.DecodeRule.Choose(prompt, c.targets, pl.rnd)]
	for j := range b.decodes {
		if j == chosen {
			continue
		}
		b.table.ExcludeReceiver(j)
		if q.LocalOK {
			b.table.ExcludeLocal(j)
		}
	}
}

// pairedWith reports whether decode candidate j makes a pair with any prefill candidate that is left.
func (pl *Planner) pairedWith(j int) bool {
	for i := range pl.scratch.prefills {
		if pl.scratch.table.Can(i, j) {
			return true
		}
	}
	return false
}

// headOf names the first tokens of a prompt by the key of the part that they end in; 0 where no part is
// known.
func headOf(keys []kv.Key, chunk float64, unit int) uint64 {
	size := float64(unit)
	if chunk > 0 {
		size = chunk
	}
	n := min(len(keys), max(1, int(scoring.HeadTokens/size)))
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

// ruled says which rules chose, for people.
func (p *Policy) ruled() string {
	text := ""
	if p.PrefillRule != nil {
		text = "prefill by " + p.PrefillRule.Name
	}
	if p.DecodeRule != nil {
		if text != "" {
			text += ", "
		}
		text += "decode by " + p.DecodeRule.Name
	}
	return text
}
