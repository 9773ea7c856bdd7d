package scoring

import (
	"math"
	"math/rand/v2"
)

// Table holds every plan for one request: the two sides of every Split, and the decode candidates alone.
type Table struct {
	Senders   []Sender   // by prefill candidate
	Receivers []Receiver // by decode candidate
	Local     []float64  // whole cost of each decode candidate alone, +Inf where it cannot be; nil for none

	// PerByte holds the seconds a byte between Row[i] and Col[j] at Row[i]*Stride+Col[j], below zero for a pair that
	// cannot be.
	PerByte  []float64
	Row, Col []int32
	Stride   int

	Ties
}

// Ties says which plans are as good as the best: those within the larger of the two of its cost.
type Ties struct {
	Absolute, Relative float64
	SplitFirst         bool // a Local plan must be better than every Split, not as good
}

// Limit returns the cost up to which a plan is as good as the cheapest, which costs least.
func (t Ties) Limit(least float64) float64 { return least + t.Margin(least) }

// Margin returns by how much a plan may cost more than another one and be as good.
func (t Ties) Margin(cost float64) float64 { return max(t.Absolute, t.Relative*math.Abs(cost)) }

// Rate returns the seconds a byte of the pair (i, j), below zero where it cannot be.
func (t *Table) Rate(i, j int) float64 { return t.PerByte[int(t.Row[i])*t.Stride+int(t.Col[j])] }

// Pair returns what is between the sides of the pair (i, j).
func (t *Table) Pair(i, j int) Pair { return t.Senders[i].Meet(&t.Receivers[j], t.Rate(i, j)) }

// Cost returns what the pair (i, j) costs; false where it cannot be.
func (t *Table) Cost(i, j int) (float64, bool) {
	perByte := t.Rate(i, j)
	return t.Senders[i].Price(&t.Receivers[j], perByte), perByte >= 0
}

// Choice is one plan: indexes into the table. Prefill is -1 for a decode candidate alone.
type Choice struct {
	Prefill, Decode int32
	Cost            float64
}

// none is worse than every plan.
var none = Choice{Prefill: -1, Decode: -1, Cost: math.Inf(1)}

// Choose returns the chosen plan, how many plans were as good, and how many there are at all; in best and locals it leaves the cheapest split and
// local plans in order, filled up with plans of infinite cost. Without any plan, all is zero and the choice's cost infinite.
func (t *Table) Choose(rnd *rand.Rand, best, locals []Choice) (chosen Choice, ties, plans int) {
	fill(best)
	fill(locals)
	pairs := t.splits(best)
	plans = pairs + t.locals(locals)
	least := none
	for _, top := range [][]Choice{best, locals} {
		if len(top) > 0 && top[0].Cost < least.Cost {
			least = top[0]
		}
	}
	if math.IsInf(least.Cost, 1) {
		return least, 0, 0
	}
	chosen, ties = t.draw(rnd, least)
	return chosen, ties, plans
}

// splits goes through every pair once, and returns how many there are.
func (t *Table) splits(best []Choice) (pairs int) {
	worst := math.Inf(1)
	for i := range t.Senders {
		row := t.PerByte[int(t.Row[i])*t.Stride:]
		for j := range t.Receivers {
			perByte := row[t.Col[j]]
			if perByte < 0 {
				continue
			}
			pairs++
			if cost := t.Senders[i].Price(&t.Receivers[j], perByte); cost < worst {
				insert(best, Choice{int32(i), int32(j), cost})
				worst = best[len(best)-1].Cost
			}
		}
	}
	return pairs
}

func (t *Table) locals(best []Choice) (plans int) {
	for j, cost := range t.Local {
		if math.IsInf(cost, 1) {
			continue
		}
		plans++
		if cost < best[len(best)-1].Cost {
			insert(best, Choice{-1, int32(j), cost})
		}
	}
	return plans
}

// draw takes one of the plans that are as good as least, each with the same chance: the minimum of exact numbers would send everyone the same way
// until the next report.
func (t *Table) draw(rnd *rand.Rand, least Choice) (chosen Choice, ties int) {
	limit := t.Limit(least.Cost)
	take := func(c Choice) {
		ties++
		if ties == 1 || rnd.IntN(ties) == 0 {
			chosen = c
		}
	}
	for i := range t.Senders {
		for j := range t.Receivers {
			if cost, ok := t.Cost(i, j); ok && cost <= limit {
				take(Choice{int32(i), int32(j), cost})
			}
		}
	}
	if t.SplitFirst && ties > 0 && least.Prefill >= 0 {
		return chosen, ties
	}
	for j, cost := range t.Local {
		if cost <= limit {
			take(Choice{-1, int32(j), cost})
		}
	}
	return chosen, ties
}

func fill(top []Choice) {
	for i := range top {
		top[i] = none
	}
}

// insert puts c into the sorted list top, from which the last falls out.
func insert(top []Choice, c Choice) {
	i := len(top) - 1
	for ; i > 0 && c.Cost < top[i-1].Cost; i-- {
		top[i] = top[i-1]
	}
	top[i] = c
}
