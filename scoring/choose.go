package scoring

import (
	"math"
	"math/rand/v2"
)

// Choice is one plan, as indexes into the table. Prefill is -1 for a Local plan.
type Choice struct {
	Prefill, Decode int32
	Cost            float64
}

// none is worse than every plan.
var none = Choice{Prefill: -1, Decode: -1, Cost: math.Inf(1)}

// before reports whether c comes before o in a list of the best plans. Equal plans keep the order of the
// table.
func (c Choice) before(o Choice) bool {
	switch {
	case c.Cost != o.Cost:
		return c.Cost < o.Cost
	case c.Prefill != o.Prefill:
		return c.Prefill < o.Prefill
	}
	return c.Decode < o.Decode
}

// Choose returns the chosen plan, the approximate number of equally good plans, and the number of all plans.
// It fills best and locals with the cheapest Splits and Local plans in order, and the rest with plans of
// infinite cost. Without any plan, the numbers are zero and the choice's cost is infinite.
func (t *Table) Choose(rnd *rand.Rand, best, locals []Choice) (chosen Choice, ties, plans int) {
	fill(best)
	fill(locals)
	t.splits(best)
	plans = t.pairs() + t.locals(locals)
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

// splits finds the best Splits. It begins with a sender that is good for one receiver, so that the first
// results exclude most other pairs.
func (t *Table) splits(best []Choice) {
	t.bound()
	first := t.good()
	if first < 0 {
		return
	}
	t.row(first, best)
	for i, out := range t.senderOut {
		if !out && i != first {
			t.row(i, best)
		}
	}
}

// good returns the sender whose pair with the receiver of the lowest floor costs least, if that pair were
// possible; -1 without a pair.
func (t *Table) good() int {
	first, least := -1, math.Inf(1)
	for i, out := range t.senderOut {
		if out || len(t.order) == 0 {
			continue
		}
		r := &t.Receivers[t.order[0].at]
		if cost := t.Senders[i].price(r, t.Fastest[t.Col[t.order[0].at]]); first < 0 || cost < least {
			first, least = i, cost
		}
	}
	return first
}

// row enters the best pairs of sender i into best. Of equal pairs, those of a later sender in the table are
// left out.
func (t *Table) row(i int, best []Choice) {
	s, rates := &t.Senders[i], t.rates(i)
	own, worst := t.boundOf(s), &best[len(best)-1]
	for _, r := range t.order {
		least := own + r.floor
		if least > worst.Cost || least == worst.Cost && int32(i) > worst.Prefill {
			return // and so are all that follow
		}
		perByte := rates[t.Col[r.at]]
		if perByte < 0 {
			continue
		}
		c := Choice{int32(i), r.at, s.price(&t.Receivers[r.at], perByte)}
		if c.before(*worst) && !t.pairOut(t.place(i, int(r.at))) {
			insert(best, c)
		}
	}
}

func (t *Table) locals(best []Choice) (plans int) {
	for j := range t.Local {
		cost, ok := t.Alone(j)
		if !ok {
			continue
		}
		plans++
		if c := (Choice{-1, int32(j), cost}); c.Cost < best[len(best)-1].Cost {
			insert(best, c)
		}
	}
	return plans
}

func fill(top []Choice) {
	for i := range top {
		top[i] = none
	}
}

// insert puts c into the sorted list top and drops the last one.
func insert(top []Choice, c Choice) {
	i := len(top) - 1
	for ; i > 0 && c.before(top[i-1]); i-- {
		top[i] = top[i-1]
	}
	top[i] = c
}
