package policies

import (
	"math"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// load is the work of one engine.
type load struct {
	tokens    int     // to prefill
	attention float64 // the sum over prompts of u*c + u*u/2: u new and c cached tokens
	decode    int     // sequences that decode meanwhile
	context   int     // their tokens
}

func (l load) plus(tokens, cached int) load {
	u := float64(tokens)
	l.tokens += tokens
	l.attention += u*float64(cached) + u*u/2
	return l
}

// ahead is the remaining work of an engine's tasks.
func (o *Oracle) ahead() load {
	var l load
	for k := range o.tasks {
		t := &o.tasks[k]
		if t.Loading {
			continue
		}
		cached := t.Computed
		if t.Waiting {
			var computes bool
			if cached, computes = o.truth.Expected(t.ID); !computes {
				continue
			}
		}
		if left := t.Tokens - cached; left > 1 {
			l = l.plus(left, cached)
		} else {
			l.decode++
			l.context += t.Tokens
		}
	}
	return l
}

// seconds is the time of an engine for l, in full steps that also decode the sequences.
func (l load) seconds(c *core.Config) float64 {
	if l.tokens == 0 {
		return 0
	}
	budget := max(1, c.MaxBatchedTokens-l.decode)
	steps := float64((l.tokens + budget - 1) / budget)
	cost := &c.Cost
	decode := (cost.A+cost.D1)*float64(l.decode) + cost.D2*float64(l.context)
	return (steps*(cost.T0+cost.Host+decode) + cost.A*float64(l.tokens) + cost.B*l.attention) / speedOf(cost)
}

// step is the time of one step of l without prefill.
func (l load) step(c *core.Config) float64 {
	cost := &c.Cost
	return (cost.Host + cost.D0 + cost.D1*float64(l.decode) + cost.D2*float64(l.context)) / speedOf(cost)
}

func speedOf(c *core.Cost) float64 {
	if c.Speed > 0 {
		return c.Speed
	}
	return 1
}

// room is the time until decode engine i can allocate the given number of blocks: running requests end one
// after the other, and each gets one token per step.
func (o *Oracle) room(i int, c *core.Config, blocks int, step float64) float64 {
	free := o.truth.Free(cluster.Decode, i)
	for k := range o.tasks {
		if o.tasks[k].Waiting {
			free -= (o.tasks[k].Tokens + c.BlockSize - 1) / c.BlockSize
		}
	}
	for after := 0; free < blocks; {
		next := math.MaxInt
		for k := range o.tasks {
			if t := &o.tasks[k]; !t.Waiting && t.Out > after {
				next = min(next, t.Out)
			}
		}
		if next == math.MaxInt {
			return float64(after) * step // the rest becomes free after the requests that are on their way
		}
		for k := range o.tasks {
			if t := &o.tasks[k]; !t.Waiting && t.Out == next {
				free += t.Blocks
			}
		}
		if after = next; free >= blocks {
			return float64(after) * step
		}
	}
	return 0
}
