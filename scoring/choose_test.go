package scoring

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// slowChoose is the obvious twin of Choose: it prices every plan, sorts them, and draws among the ties.
func slowChoose(t *Table, rnd *rand.Rand, keep int) (chosen Choice, ties, plans int, best []Choice) {
	var splits, locals []Choice
	for i := range t.Senders {
		for j := range t.Receivers {
			if cost, ok := t.Cost(i, j); ok {
				plans++
				splits = append(splits, Choice{int32(i), int32(j), cost})
			}
		}
	}
	for j := range t.Local {
		if cost, ok := t.Alone(j); ok {
			plans++
			locals = append(locals, Choice{-1, int32(j), cost})
		}
	}
	least := none
	for _, c := range slices.Concat(splits, locals) {
		if c.Cost < least.Cost {
			least = c
		}
	}
	all := splits
	if !t.SplitFirst || least.Prefill < 0 {
		all = slices.Concat(splits, locals)
	}
	for _, c := range all {
		if c.Cost <= t.Limit(least.Cost) && !math.IsInf(least.Cost, 1) {
			if ties++; ties == 1 || rnd.IntN(ties) == 0 {
				chosen = c
			}
		}
	}
	slices.SortStableFunc(splits, func(a, b Choice) int {
		switch {
		case a.Cost < b.Cost:
			return -1
		case a.Cost > b.Cost:
			return 1
		}
		return 0
	})
	for len(splits) < keep {
		splits = append(splits, none)
	}
	return chosen, ties, plans, splits[:keep]
}

// price is what a pair costs, written down once more.
func price(s Sender, r Receiver, perByte float64) float64 {
	begun := max(s.Outbox-s.Ready, r.Inbound) // both sides are free
	admitted := max(s.Ready, r.Busy) - s.Ready
	own := r.Bytes * perByte
	others := (s.Leaving + r.Arriving) * own // who come meanwhile
	return s.cost + r.cost + admitted + begun + own + others*own/2
}

// anyTable has up to so many candidates a side. Few values for each number make many ties.
func anyTable(t *rapid.T, most int) *Table {
	p, d := rapid.IntRange(0, most).Draw(t, "p"), rapid.IntRange(0, most).Draw(t, "d")
	oneOf := func(what string, of ...float64) float64 { return rapid.SampledFrom(of).Draw(t, what) }
	cost := func(what string) float64 {
		if rapid.Bool().Draw(t, what+" is usual") {
			return oneOf(what, 0, 1, 1.001, 3)
		}
		return rapid.Float64Range(-5, 100).Draw(t, what)
	}
	table := &Table{PairRates: PairRates{Stride: d}}
	table.Ties = rapid.SampledFrom([]Ties{{Absolute: 2e-3, Relative: 0.02}, {}, {Absolute: 1e-9, SplitFirst: true}}).Draw(t, "ties")
	for i := range p {
		table.Senders = append(table.Senders, Sender{
			cost: cost("prefill"), Ready: oneOf("ready", 0, 0.5, 20),
			Outbox: oneOf("outbox", 0, 0.1, 10), Leaving: oneOf("leaving", 0, 0.5, 3),
		})
		table.Row = append(table.Row, int32(i))
	}
	for j := range d {
		table.Receivers = append(table.Receivers, Receiver{
			cost: cost("decode"), Bytes: oneOf("bytes", 0, 1e6, 1e9), Inbound: oneOf("inbound", 0, 0.1, 10),
			Busy: oneOf("busy", 0, 0.4, 15), Arriving: oneOf("arriving", 0, 0.5, 3),
		})
		table.Local = append(table.Local, oneOf("local", math.Inf(1), cost("local")))
		table.Col = append(table.Col, int32(j))
	}
	for range p * d {
		table.PerByte = append(table.PerByte, oneOf("link", -1, 1e-9, 1e-9, 1e-10))
	}
	if rapid.Bool().Draw(t, "fastest is known") {
		table.Fastest, table.Whole = fastest(table), whole(table)
	}
	table.Admit()
	exclude(t, table)
	return table
}

func fastest(t *Table) []float64 {
	all := make([]float64, t.Stride)
	for j := range all {
		all[j] = math.Inf(1)
		for i := range t.Senders {
			if rate := t.Rate(i, j); rate >= 0 {
				all[j] = min(all[j], rate)
			}
		}
	}
	return all
}

func whole(t *Table) []bool {
	all := make([]bool, len(t.Senders))
	for i := range all {
		row := t.PerByte[i*t.Stride : (i+1)*t.Stride]
		all[i] = !slices.ContainsFunc(row, func(rate float64) bool { return rate < 0 })
	}
	return all
}

// exclude takes some plans out, now and then the same ones twice.
func exclude(t *rapid.T, table *Table) {
	for range rapid.IntRange(0, 4).Draw(t, "excluded") {
		p, d := len(table.Senders), len(table.Receivers)
		switch what := rapid.IntRange(0, 3).Draw(t, "what"); {
		case what == 0 && p > 0:
			table.ExcludeSender(rapid.IntRange(0, p-1).Draw(t, "i"))
		case what == 1 && d > 0:
			table.ExcludeReceiver(rapid.IntRange(0, d-1).Draw(t, "j"))
		case what == 2 && d > 0:
			table.ExcludeLocal(rapid.IntRange(0, d-1).Draw(t, "j"))
		case what == 3 && p*d > 0:
			table.ExcludePair(rapid.IntRange(0, p*d-1).Draw(t, "at"))
		}
	}
}

// Most pairs are never priced, and yet the choice is that of the whole table: the same plan of those that
// tie, drawn by the same numbers, and the same best ones in the same order.
func TestChooseAgreesWithItsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := anyTable(t, 9)
		best, locals := make([]Choice, 4), make([]Choice, 2)
		got, ties, plans := table.Choose(rand.New(rand.NewPCG(1, 1)), best, locals)
		want, tied, all, top := slowChoose(table, rand.New(rand.NewPCG(1, 1)), len(best))
		if plans != all || ties != tied {
			t.Fatalf("%d ties of %d plans, want %d of %d", ties, plans, tied, all)
		}
		if all > 0 && got != want {
			t.Fatalf("chose %v, want %v", got, want)
		}
		if !slices.Equal(best, top) {
			t.Fatalf("the best are %v, want %v", best, top)
		}
	})
}

func TestPriceOfAPair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := anyTable(t, 3)
		for i, s := range table.Senders {
			for j, r := range table.Receivers {
				got, ok := table.Cost(i, j)
				if want := price(s, r, table.Rate(i, j)); ok && math.Abs(got-want) > 1e-9*(1+math.Abs(want)) {
					t.Fatalf("%+v with %+v costs %v, want %v", s, r, got, want)
				}
			}
		}
	})
}

// Of pairs of which none is like another hardly any is priced twice, or at all.
func TestMostPairsAreOutOfReach(t *testing.T) {
	const n = 200
	table := &Table{PairRates: PairRates{Stride: n, PerByte: slices.Repeat([]float64{1e-10}, n*n)}, Ties: Ties{Absolute: 2e-3, Relative: 0.02}}
	for i := range n {
		table.Senders = append(table.Senders, Sender{cost: 1 + float64(i*37%n)})
		table.Receivers = append(table.Receivers, Receiver{cost: 1 + float64(i*73%n), Bytes: 1e9})
		table.Row, table.Col = append(table.Row, int32(i)), append(table.Col, int32(i))
	}
	table.Admit()
	table.Choose(rand.New(rand.NewPCG(1, 1)), make([]Choice, 4), make([]Choice, 2))
	if len(table.near) > 10 {
		t.Errorf("%d of %d receivers are within reach", len(table.near), n)
	}
}
