package scoring

import (
	"math"
	"slices"
)

// Table holds every plan for one request: the two sides of every Split, and the Local plans. All plans are
// possible until they are excluded. The next request uses the memory again, see [Table.Reset].
type Table struct {
	Senders   []Sender   // by prefill candidate
	Receivers []Receiver // by decode candidate
	Local     []float64  // cost of each candidate's Local plan, +Inf if impossible; nil for none
	Row, Col  []int32    // of each sender and receiver in PairRates

	PairRates
	Ties

	exclusions
	bounds
	tied []int32 // scratch: senders with pairs that may tie with the best
}

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

// Cheapest returns the sender with the least own cost, excluded ones included; -1 without senders.
func (t *Table) Cheapest() int {
	best := -1
	for i := range t.Senders {
		if best < 0 || t.Senders[i].cost < t.Senders[best].cost {
			best = i
		}
	}
	return best
}

// Admit removes all exclusions. Call it when t is complete.
func (t *Table) Admit() {
	t.exclusions.reset(len(t.Senders), len(t.Receivers), len(t.Local))
}

// rates returns the rates of sender i, by column.
func (t *Table) rates(i int) []float64 { return t.PerByte[int(t.Row[i])*t.Stride:] }

func (t *Table) place(i, j int) int { return int(t.Row[i])*t.Stride + int(t.Col[j]) }

// Can reports whether the pair (i, j) is possible.
func (t *Table) Can(i, j int) bool {
	at := t.place(i, j)
	return t.PerByte[at] >= 0 && !t.senderOut[i] && !t.receiverOut[j] && !t.pairOut(at)
}

// Rate returns the seconds per byte of the pair (i, j), below zero if it is impossible.
func (t *Table) Rate(i, j int) float64 { return t.PerByte[t.place(i, j)] }

// Pair returns the costs between the sides of the pair (i, j).
func (t *Table) Pair(i, j int) Pair { return t.Senders[i].Meet(&t.Receivers[j], t.Rate(i, j)) }

// Cost returns the cost of the pair (i, j); false if the pair is impossible.
func (t *Table) Cost(i, j int) (float64, bool) {
	return t.Senders[i].price(&t.Receivers[j], t.Rate(i, j)), t.Can(i, j)
}

// Alone returns the cost of candidate j's Local plan; false if the plan is impossible.
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

// pairsOf returns how many pairs of a row are possible, before single pairs are excluded.
func (t *Table) pairsOf(rates []float64) (n int) {
	for j, out := range t.receiverOut {
		if !out && rates[t.Col[j]] >= 0 {
			n++
		}
	}
	return n
}

// excludedPairs returns how many possible pairs are excluded only by [Table.ExcludePair].
func (t *Table) excludedPairs() (n int) {
	for _, at := range t.pairsOut {
		i, j := slices.Index(t.Row, at/int32(t.Stride)), slices.Index(t.Col, at%int32(t.Stride))
		if i >= 0 && j >= 0 && !t.senderOut[i] && !t.receiverOut[j] && t.PerByte[at] >= 0 {
			n++
		}
	}
	return n
}
