package scoring

import (
	"math"
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

	exclusions
	bounds
	tied []int32 // pairs of each sender that are as good as the best
}

// Ties says which plans are as good as the best: those within the larger of the two of its cost.
type Ties struct {
	Absolute, Relative float64
	SplitFirst         bool // a Local plan must be better than every Split, not as good
}

// Limit returns the cost up to which a plan is as good as the cheapest, which costs least.
func (t Ties) Limit(least float64) float64 { return least + t.Margin(least) }

// Margin returns by how much a plan may cost more than another one and be as good.
func (t Ties) Margin(cost float64) float64 {
	return max(t.Absolute, t.Relative*min(math.Abs(cost), tieCostMost))
}

// tieCostMost is the most of a cost, in seconds, that the relative margin is taken of. A larger cost is
// mostly the time that many others wait, and says nothing for a replica that fails, is full or is far away.
const tieCostMost = 5

// Reset empties t for the next request.
func (t *Table) Reset() {
	t.Senders, t.Row = t.Senders[:0], t.Row[:0]
	t.Receivers = t.Receivers[:0]
	t.Col = t.Col[:0]
	t.Local = t.Local[:0]
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
	t.exclusions.reset(len(t.Senders), len(t.Receivers), len(t.Local))
}

// rates returns the rates of sender i, by column.
func (t *Table) rates(i int) []float64 { return t.PerByte[int(t.Row[i])*t.Stride:] }

// whole reports whether every pair of sender i with a receiver that is not excluded is possible.
func (t *Table) whole(i int) bool {
	row := t.Row[i]
	return t.Whole[row] &&
		!slices.ContainsFunc(t.pairsOut, func(at int32) bool { return at/int32(t.Stride) == row })
}

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

// pairs returns how many pairs are possible.
func (t *Table) pairs() (n int) {
	all := 0
	for _, out := range t.receiverOut {
		if !out {
			all++
		}
	}
	if all == 0 {
		return 0
	}
	for i, out := range t.senderOut {
		switch row := int(t.Row[i]); {
		case out:
		case t.Whole[row]:
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
