package scoring

import (
	"math"
	"math/rand/v2"
)

// Table holds every plan for one request: a row for each prefill candidate, a column for each decode candidate, and the decode candidates alone.
// The cost of the pair (i, j) is Prefill[i] + Decode[j] + the seconds of the transfer between them, those behind local prefills, and those that it keeps others
// waiting, see [Table.Transfer], [Table.Behind] and [Table.Hold].
type Table struct {
	Prefill []float64
	Decode  []float64
	Bytes   []float64 // to be moved to each decode candidate
	Sending []float64 // seconds of transfers from each prefill candidate that come before
	Ready   []float64 // seconds until each prefill candidate has computed what is to be moved
	Busy    []float64 // seconds until each decode candidate has computed the prompts that it prefills itself
	Leaving []float64 // transfers a second from each prefill candidate
	Coming  []float64 // transfers a second to each decode candidate
	Moving  []float64 // seconds of transfers to each decode candidate that come before
	Local   []float64 // whole cost of each decode candidate alone, +Inf where it cannot be; nil for none

	// PerByte holds the seconds a byte between Row[i] and Col[j] at Row[i]*Stride+Col[j], below zero for a pair that cannot be.
	PerByte  []float64
	Row, Col []int32
	Stride   int

	TieAbsolute, TieRelative float64 // plans within the larger of the two of the best are as good
	SplitFirst               bool    // a Local plan must be better than every Split, not as good
}

// Tie returns the cost up to which a plan is as good as the cheapest, which costs least.
func (t *Table) Tie(least float64) float64 {
	return least + max(t.TieAbsolute, t.TieRelative*math.Abs(least))
}

// Cost returns what the pair (i, j) costs; false where it cannot be.
func (t *Table) Cost(i, j int) (float64, bool) {
	perByte := t.perByte(i, j)
	return t.Prefill[i] + t.side(i, j, perByte), perByte >= 0
}

func (t *Table) perByte(i, j int) float64 { return t.PerByte[int(t.Row[i])*t.Stride+int(t.Col[j])] }

// Own returns the seconds that the blocks of the pair (i, j) take both sides for.
func (t *Table) Own(i, j int) float64 { return t.Bytes[j] * t.perByte(i, j) }

// side is what the decode side of a pair costs.
func (t *Table) side(i, j int, perByte float64) float64 {
	own := t.Bytes[j] * perByte
	return t.Decode[j] + carry(own, t.Sending[i], t.Moving[j], t.Ready[i]) + behind(t.Busy[j], t.Ready[i]) + hold(own, t.Leaving[i]+t.Coming[j])
}

// Hold returns the seconds that the transfer of the pair (i, j) keeps others waiting, all together: those who come while both sides are taken, on average for half
// of its time. Over a link that takes a tenth of a second that is nothing; a long prompt over a slow one costs others far more than itself.
func (t *Table) Hold(i, j int) float64 {
	return hold(t.Own(i, j), t.Leaving[i]+t.Coming[j])
}

func hold(own, rate float64) float64 { return rate * own * own / 2 }

// Behind returns the seconds that blocks which prefill candidate i has ready wait until decode candidate j has computed the prompts that it prefills itself. Those
// run already, and whoever runs comes first: in steps that a long prompt fills no other request is admitted, so that not even the transfer begins (vLLM 0.32,
// v1/core/sched/scheduler.py).
func (t *Table) Behind(i, j int) float64 { return behind(t.Busy[j], t.Ready[i]) }

func behind(busy, ready float64) float64 { return max(0, busy-ready) }

// Transfer returns the seconds that the blocks are on their way; false where the pair cannot be. A replica sends, and receives, one prompt after the other:
// this one follows when both sides are through with those that were booked before, each at the speed of its own link: at this one's, a small error of it would
// count as many times as others are under way. What the sender has to send was computed before this one, so that it goes out meanwhile; of what the receiver
// still has to get nobody knows when it comes.
func (t *Table) Transfer(i, j int) (float64, bool) {
	return carry(t.Own(i, j), t.Sending[i], t.Moving[j], t.Ready[i]), t.perByte(i, j) >= 0
}

func carry(own, sending, moving, ready float64) float64 { return max(sending-ready, moving) + own }

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
	pairs, leastDecode := t.splits(best)
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
	chosen, ties = t.draw(rnd, least, leastDecode)
	return chosen, ties, plans
}

// splits goes through every pair once. It returns how many there are, and a bound: no pair costs its decode side less.
func (t *Table) splits(best []Choice) (pairs int, leastDecode float64) {
	leastDecode = math.Inf(1)
	worst := math.Inf(1)
	for i, p := range t.Prefill {
		row := t.PerByte[int(t.Row[i])*t.Stride:]
		for j := range t.Decode {
			perByte := row[t.Col[j]]
			if perByte < 0 {
				continue
			}
			pairs++
			side := t.side(i, j, perByte)
			leastDecode = min(leastDecode, side)
			if cost := p + side; cost < worst {
				insert(best, Choice{int32(i), int32(j), cost})
				worst = best[len(best)-1].Cost
			}
		}
	}
	return pairs, leastDecode
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
func (t *Table) draw(rnd *rand.Rand, least Choice, leastDecode float64) (chosen Choice, ties int) {
	limit := t.Tie(least.Cost)
	take := func(c Choice) {
		ties++
		if ties == 1 || rnd.IntN(ties) == 0 {
			chosen = c
		}
	}
	for i, p := range t.Prefill {
		if p+leastDecode > limit {
			continue
		}
		for j := range t.Decode {
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
