package scoring

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Table holds every plan for one request: the two sides of every Split, and the decode candidates alone. All
// are possible until they are excluded. Its memory is used again for the next request, see [Table.Reset].
type Table struct {
	Senders   []Sender   // by prefill candidate
	Receivers []Receiver // by decode candidate
	Local     []float64  // whole cost of each decode candidate alone, +Inf where it cannot be; nil for none
	Row, Col  []int32    // of each sender and receiver in PairRates

	PairRates
	Ties

	senderOut, receiverOut, localOut []bool
	pairsOut                         []int32 // in PerByte

	floor []float64 // of each receiver's part of a Split's cost, whoever the sender is
	low   float64   // the least of these
	near  []int32   // receivers that may be in one of the best Splits, in order
}

// PairRates is how long a byte takes between every prefill replica and every decode replica of the pools.
type PairRates struct {
	PerByte []float64 // seconds, at row*Stride+column; below zero for a pair that cannot be
	Stride  int
	Fastest []float64 // by column: the least of its pairs that can be, or less; nil: 0
	Whole   []bool    // by row: every pair in it can be; nil: not known
}

// Reset empties r for pairs of so many columns.
func (r *PairRates) Reset(stride int) {
	r.PerByte, r.Whole, r.Stride = r.PerByte[:0], r.Whole[:0], stride
	r.Fastest = slices.Repeat([]float64{math.Inf(1)}, stride)
}

// Add appends the rate of the next pair, row by row.
func (r *PairRates) Add(perByte float64) {
	at := len(r.PerByte)
	if at%r.Stride == 0 {
		r.Whole = append(r.Whole, true)
	}
	r.PerByte = append(r.PerByte, perByte)
	if perByte < 0 {
		r.Whole[at/r.Stride] = false
		return
	}
	r.Fastest[at%r.Stride] = min(r.Fastest[at%r.Stride], perByte)
}

// Set changes the rate of the pair at a place, which can be.
func (r *PairRates) Set(at int, perByte float64) {
	r.PerByte[at] = perByte
	col := at % r.Stride
	r.Fastest[col] = math.Inf(1)
	for i := col; i < len(r.PerByte); i += r.Stride {
		if rate := r.PerByte[i]; rate >= 0 {
			r.Fastest[col] = min(r.Fastest[col], rate)
		}
	}
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

// Reset empties t for the next request.
func (t *Table) Reset() {
	t.Senders, t.Row = t.Senders[:0], t.Row[:0]
	t.Receivers, t.Col, t.Local = t.Receivers[:0], t.Col[:0], t.Local[:0]
}

// AddSender adds a prefill candidate, whose pairs are in the given row.
func (t *Table) AddSender(m Model, p *Prefill, row int) {
	s := m.Sender(p)
	s.cost = m.Prefill(p).Total()
	t.Senders, t.Row = append(t.Senders, s), append(t.Row, int32(row))
}

// AddReceiver adds a decode candidate, whose pairs are in the given column.
func (t *Table) AddReceiver(m Model, d *Decode, col int) {
	r := m.Receiver(d)
	r.cost = m.Decode(d).Total() + r.Setup
	t.Receivers, t.Col = append(t.Receivers, r), append(t.Col, int32(col))
}

// Cheapest returns the sender that costs least by itself, excluded ones included; -1 where there is none.
func (t *Table) Cheapest() int {
	best := -1
	for i := range t.Senders {
		if best < 0 || t.Senders[i].cost < t.Senders[best].cost {
			best = i
		}
	}
	return best
}

// Admit takes all exclusions back. To be called when t is complete.
func (t *Table) Admit() {
	t.senderOut = cleared(t.senderOut, len(t.Senders))
	t.receiverOut = cleared(t.receiverOut, len(t.Receivers))
	t.localOut = cleared(t.localOut, len(t.Local))
	t.pairsOut = t.pairsOut[:0]
}

func cleared(s []bool, n int) []bool {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// ExcludeSender takes every Split of sender i out.
func (t *Table) ExcludeSender(i int) { t.senderOut[i] = true }

// ExcludeReceiver takes every Split of receiver j out.
func (t *Table) ExcludeReceiver(j int) { t.receiverOut[j] = true }

// ExcludeLocal takes receiver j out as one that prefills by itself.
func (t *Table) ExcludeLocal(j int) { t.localOut[j] = true }

// ExcludePair takes the pair at a place in PerByte out.
func (t *Table) ExcludePair(at int) {
	if !t.pairOut(at) {
		t.pairsOut = append(t.pairsOut, int32(at))
	}
}

func (t *Table) pairOut(at int) bool { return slices.Contains(t.pairsOut, int32(at)) }

func (t *Table) place(i, j int) int { return int(t.Row[i])*t.Stride + int(t.Col[j]) }

// Can reports whether the pair (i, j) is possible.
func (t *Table) Can(i, j int) bool {
	at := t.place(i, j)
	return t.PerByte[at] >= 0 && !t.senderOut[i] && !t.receiverOut[j] && !t.pairOut(at)
}

// Rate returns the seconds a byte of the pair (i, j), below zero where it cannot be.
func (t *Table) Rate(i, j int) float64 { return t.PerByte[t.place(i, j)] }

// Pair returns what is between the sides of the pair (i, j).
func (t *Table) Pair(i, j int) Pair { return t.Senders[i].Meet(&t.Receivers[j], t.Rate(i, j)) }

// Cost returns what the pair (i, j) costs; false where it is not possible.
func (t *Table) Cost(i, j int) (float64, bool) {
	return t.Senders[i].price(&t.Receivers[j], t.Rate(i, j)), t.Can(i, j)
}

// Alone returns what decode candidate j costs alone; false where that is not possible.
func (t *Table) Alone(j int) (float64, bool) {
	if j >= len(t.Local) || t.localOut[j] || math.IsInf(t.Local[j], 1) {
		return math.Inf(1), false
	}
	return t.Local[j], true
}

// Choice is one plan: indexes into the table. Prefill is -1 for a decode candidate alone.
type Choice struct {
	Prefill, Decode int32
	Cost            float64
}

// none is worse than every plan.
var none = Choice{Prefill: -1, Decode: -1, Cost: math.Inf(1)}

// before reports whether c stands before o in a list of the best: of equal plans the first in the table does.
func (c Choice) before(o Choice) bool {
	switch {
	case c.Cost != o.Cost:
		return c.Cost < o.Cost
	case c.Prefill != o.Prefill:
		return c.Prefill < o.Prefill
	}
	return c.Decode < o.Decode
}

// Choose returns the chosen plan, how many plans were as good, and how many there are at all; in best and
// locals it leaves the cheapest Splits and Local plans in order, filled up with plans of infinite cost.
// Without any plan, all is zero and the choice's cost infinite.
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

// pairs returns how many pairs are possible.
func (t *Table) pairs() (n int) {
	all := 0
	for _, out := range t.receiverOut {
		if !out {
			all++
		}
	}
	for i, out := range t.senderOut {
		switch row := int(t.Row[i]); {
		case out:
		case row < len(t.Whole) && t.Whole[row]:
			n += all
		default:
			n += t.pairsOf(t.PerByte[row*t.Stride:])
		}
	}
	return n - t.excludedPairs()
}

// pairsOf returns how many pairs of a row can be, whichever are excluded one by one.
func (t *Table) pairsOf(rates []float64) (n int) {
	for j, out := range t.receiverOut {
		if !out && rates[t.Col[j]] >= 0 {
			n++
		}
	}
	return n
}

// excludedPairs returns how many pairs would be possible, were they not excluded one by one.
func (t *Table) excludedPairs() (n int) {
	for _, at := range t.pairsOut {
		i, j := slices.Index(t.Row, at/int32(t.Stride)), slices.Index(t.Col, at%int32(t.Stride))
		if i >= 0 && j >= 0 && !t.senderOut[i] && !t.receiverOut[j] && t.PerByte[at] >= 0 {
			n++
		}
	}
	return n
}

// splits finds the best Splits without pricing all. A pair costs what its sender costs and at least the floor
// of its receiver: that keeps every pair out which is worse than those that have been found, and no tie. The
// sums of floats keep that order, see [Table.floors].
func (t *Table) splits(best []Choice) {
	t.floors()
	first := t.cheapestSender()
	if first < 0 {
		t.near = t.near[:0]
		return
	}
	t.within(math.Inf(1), 0)
	t.row(first, math.Inf(1), best)
	t.within(t.bound(best), t.Senders[first].cost)
	for i := range t.Senders {
		bound := t.bound(best)
		if i != first && !t.senderOut[i] && !(t.Senders[i].cost+t.low > bound) {
			t.row(i, bound, best)
		}
	}
}

// bound is the cost above which a Split is neither one of the best nor a tie of the best.
func (t *Table) bound(best []Choice) float64 {
	if t.Relative > 1 { // less cost could then be a larger limit
		return math.Inf(1)
	}
	return max(best[len(best)-1].Cost, t.Limit(best[0].Cost))
}

// floors works out the least that each receiver's part of a Split can cost. It adds in the order of
// [Sender.price] what is not more than is added there, so that rounding cannot turn the two around; no number
// of a side is below zero but its cost.
func (t *Table) floors() {
	t.floor, t.low = t.floor[:0], math.Inf(1)
	for j := range t.Receivers {
		r := &t.Receivers[j]
		fastest := 0.0
		if col := int(t.Col[j]); col < len(t.Fastest) {
			fastest = t.Fastest[col]
		}
		floor := r.cost + (r.Inbound + float64(r.Bytes*fastest))
		if math.IsInf(fastest, 1) { // no pair of it can be
			floor = fastest
		}
		t.floor = append(t.floor, floor)
		t.low = min(t.low, floor)
	}
}

// cheapestSender returns the sender that costs least by itself, -1 where there is none.
func (t *Table) cheapestSender() int {
	first := -1
	for i := range t.Senders {
		if !t.senderOut[i] && (first < 0 || t.Senders[i].cost < t.Senders[first].cost) {
			first = i
		}
	}
	return first
}

// within leaves those receivers in near whose Splits may cost no more than bound, with a sender that costs
// the given.
func (t *Table) within(bound, sender float64) {
	t.near = t.near[:0]
	for j, out := range t.receiverOut {
		if !out && !(sender+t.floor[j] > bound) {
			t.near = append(t.near, int32(j))
		}
	}
}

// row prices the pairs of sender i that may cost no more than bound, and enters them in best.
func (t *Table) row(i int, bound float64, best []Choice) {
	s, rates := &t.Senders[i], t.PerByte[int(t.Row[i])*t.Stride:]
	worst := &best[len(best)-1]
	for _, j := range t.near {
		perByte := rates[t.Col[j]]
		if s.cost+t.floor[j] > bound || perByte < 0 {
			continue
		}
		c := Choice{int32(i), j, s.price(&t.Receivers[j], perByte)}
		if c.Cost <= worst.Cost && c.before(*worst) && !t.pairOut(t.place(i, int(j))) {
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

// draw takes one of the plans that are as good as least, each with the same chance: the minimum of exact
// numbers would send everyone the same way until the next report. It goes through them in the order of the
// table.
func (t *Table) draw(rnd *rand.Rand, least Choice) (chosen Choice, ties int) {
	limit := t.Limit(least.Cost)
	take := func(c Choice) {
		ties++
		if ties == 1 || rnd.IntN(ties) == 0 {
			chosen = c
		}
	}
	for i := range t.Senders {
		if !t.senderOut[i] && !(t.Senders[i].cost+t.low > limit) {
			t.drawRow(i, limit, take)
		}
	}
	if t.SplitFirst && ties > 0 && least.Prefill >= 0 {
		return chosen, ties
	}
	for j := range t.Local {
		if cost, ok := t.Alone(j); ok && cost <= limit {
			take(Choice{-1, int32(j), cost})
		}
	}
	return chosen, ties
}

// drawRow takes the pairs of sender i that cost no more than limit.
func (t *Table) drawRow(i int, limit float64, take func(Choice)) {
	s, rates := &t.Senders[i], t.PerByte[int(t.Row[i])*t.Stride:]
	for _, j := range t.near {
		perByte := rates[t.Col[j]]
		if s.cost+t.floor[j] > limit || perByte < 0 {
			continue
		}
		if cost := s.price(&t.Receivers[j], perByte); cost <= limit && !t.pairOut(t.place(i, int(j))) {
			take(Choice{int32(i), j, cost})
		}
	}
}

func fill(top []Choice) {
	for i := range top {
		top[i] = none
	}
}

// insert puts c into the sorted list top, from which the last falls out.
func insert(top []Choice, c Choice) {
	i := len(top) - 1
	for ; i > 0 && c.before(top[i-1]); i-- {
		top[i] = top[i-1]
	}
	top[i] = c
}
