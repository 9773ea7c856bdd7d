package scoring

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// slowChoose is the obvious twin of Choose: it prices every plan and sorts them. It returns the plans among
// which Choose draws.
func slowChoose(t *Table, keep int) (lots []Choice, plans int, best []Choice) {
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
	good := func(of []Choice) []Choice {
		return slices.DeleteFunc(slices.Clone(of), func(c Choice) bool { return c.Cost > t.Limit(least.Cost) })
	}
	lots = good(splits)
	if !t.SplitFirst || least.Prefill < 0 {
		lots = append(lots, good(locals)...)
	}
	slices.SortStableFunc(splits, func(a, b Choice) int { return cmp.Compare(a.Cost, b.Cost) })
	for len(splits) < keep {
		splits = append(splits, none)
	}
	return lots, plans, splits[:keep]
}

// price is a second implementation of the cost of a pair.
func price(s Sender, r Receiver, perByte float64) float64 {
	begun := max(s.Outbox-s.Ready, r.Inbound) // when both sides are free
	admitted := max(s.Ready, r.Busy) - s.Ready
	own := r.Bytes * perByte
	others := (s.Leaving + r.Arriving) * own // requests that arrive meanwhile
	// Requests that arrive during the transfers ahead.
	later := own * (s.Leaving*min(max(0, s.Outbox-s.Ready), 10) + r.Arriving*min(r.Inbound, 10))
	x := (r.due.spent + s.Ready + admitted + begun + own) * r.due.perGoal
	late := 5 * math.Pow(x, 9) / 9
	if x > 1 {
		late = 5./9 + 10*(x-1)/(x+1)
	}
	return s.cost + r.cost + admitted + begun + own + others*own/2 + later + late
}

// anyTable has up to most candidates per side. Each number has few values, which makes many ties.
func anyTable(t *rapid.T, most int) *Table {
	p, d := rapid.IntRange(0, most).Draw(t, "p"), rapid.IntRange(0, most).Draw(t, "d")
	oneOf := func(what string, of ...float64) float64 { return rapid.SampledFrom(of).Draw(t, what) }
	cost := func(what string) float64 {
		if rapid.Bool().Draw(t, what+" is usual") {
			return oneOf(what, 0, 1, 1.001, 3)
		}
		return rapid.Float64Range(-5, 100).Draw(t, what)
	}
	table := &Table{}
	table.PairRates.Reset(d)
	table.Ties = rapid.SampledFrom(
		[]Ties{
			{Absolute: 2e-3, Relative: 0.02},
			{},
			{Absolute: 1e-9, SplitFirst: true},
			{Absolute: 2e-3, SplitFirst: true},
		},
	).Draw(t, "ties")
	perGoal := oneOf("goal", 0, 0, 1, 0.1)
	for i := range p {
		ready := oneOf("ready", 0, 0.5, 20)
		table.Senders = append(table.Senders, Sender{
			cost: cost("prefill"), Ready: ready,
			Outbox: oneOf("outbox", 0, 0.1, 10, 40), Leaving: oneOf("leaving", 0, 0.5, 3),
		})
		table.Row = append(table.Row, int32(i))
	}
	for j := range d {
		table.Receivers = append(table.Receivers, Receiver{
			cost: cost("decode"), Bytes: oneOf("bytes", 0, 1e6, 1e9), Inbound: oneOf("inbound", 0, 0.1, 10, 40),
			Busy: oneOf("busy", 0, 0.4, 15), Arriving: oneOf("arriving", 0, 0.5, 3),
			due: due{oneOf("spent", 0, 0.9, 3), perGoal},
		})
		table.Local = append(table.Local, oneOf("local", math.Inf(1), cost("local")))
		table.Col = append(table.Col, int32(j))
	}
	for range p * d {
		table.Add(oneOf("link", -1, 1e-9, 1e-9, 1e-10))
	}
	table.Admit()
	exclude(t, table)
	return table
}

// exclude removes some plans, sometimes the same plan twice.
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

// agree compares Choose with its twin: the chosen plan must tie with the best, and the best plans must be the
// same in the same order.
func agree(t rapid.TB, table *Table) {
	best, locals := make([]Choice, 4), make([]Choice, 2)
	rnd := rand.New(rand.NewPCG(uint64(len(table.Senders)), uint64(len(table.Receivers))))
	got, ties, plans := table.Choose(rnd, best, locals)
	lots, all, top := slowChoose(table, len(best))
	if plans != all {
		t.Fatalf("%d plans, want %d", plans, all)
	}
	if all > 0 && !slices.Contains(lots, got) {
		t.Fatalf("chose %v, want one of %v", got, lots)
	}
	if (ties > 1) != (len(lots) > 1) && len(lots) != 1 || (ties > 0) != (len(lots) > 0) {
		t.Fatalf("%d ties, want about %d", ties, len(lots))
	}
	if !slices.Equal(best, top) {
		t.Fatalf("the best are %v, want %v", best, top)
	}
	for _, c := range slices.Concat(best, []Choice{got}) {
		if all > 0 && c.Prefill >= 0 {
			othersAgree(t, table, c)
		}
	}
}

// othersAgree holds what Choose leaves of the next best to the whole row and column of c.
func othersAgree(t rapid.TB, table *Table, c Choice) {
	sender, receiver := none, none
	for i := range table.Senders {
		if cost, ok := table.Cost(i, int(c.Decode)); ok && i != int(c.Prefill) && cost < sender.Cost {
			sender = Choice{int32(i), c.Decode, cost}
		}
	}
	for j := range table.Receivers {
		if cost, ok := table.Cost(int(c.Prefill), j); ok && j != int(c.Decode) && cost < receiver.Cost {
			receiver = Choice{c.Prefill, int32(j), cost}
		}
	}
	if got := table.OtherSender(c); got != sender {
		t.Fatalf("beside %v the best other sender is %v, want %v", c, got, sender)
	}
	if got := table.OtherReceiver(c); got != receiver {
		t.Fatalf("beside %v the best other receiver is %v, want %v", c, got, receiver)
	}
}

// Most pairs are never priced, but the choice is the best of the whole table.
func TestChooseAgreesWithItsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { agree(t, anyTable(t, 9)) })
}

// The same in a large fleet, where thousands of pairs tie.
func TestChooseAgreesWithItsTwinInLargeFleets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { agree(t, largeTable(t)) })
}

// largeTable has a few hundred candidates, most of which differ by little and some by much.
func largeTable(t *rapid.T) *Table {
	rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
	spread := rapid.SampledFrom([]float64{0, 1e-12, 1e-4, 1e-2}).Draw(t, "spread")
	odd := rapid.SampledFrom([]float64{0, 0.01, 0.06, 0.2}).Draw(t, "odd")
	some := func(usual, other float64) float64 {
		if rnd.Float64() < odd {
			usual = other
		}
		return usual + spread*rnd.Float64()
	}
	p, d := 30+rnd.IntN(60), 30+rnd.IntN(60)
	table := &Table{
		Ties: Ties{Absolute: 2e-3, Relative: rapid.SampledFrom([]float64{0.02, 0, 2}).Draw(t, "ties")},
	}
	table.PairRates.Reset(d)
	for i := range p {
		table.Senders = append(table.Senders, Sender{
			cost: some(0.1, 0.2), Ready: some(0.1, 0.02), Outbox: some(0, 0.15), Leaving: some(0, 3),
		})
		table.Row = append(table.Row, int32(i))
	}
	for j := range d {
		table.Receivers = append(table.Receivers, Receiver{
			cost: some(0.01, 0.013), Bytes: some(1, 0.7) * 1e9, Inbound: some(0, 0.01), Busy: some(0, 0.12),
			Arriving: some(0, 5),
		})
		table.Local = append(table.Local, some(0.12, math.Inf(1)))
		table.Col = append(table.Col, int32(j))
	}
	link := rapid.SampledFrom([]float64{1e-10, 1.005e-10, 1e-9, -1}).Draw(t, "other link")
	far := make([]bool, p+d)
	for i := range far {
		far[i] = rnd.Float64() < 2*odd
	}
	for at := range p * d {
		rate := 1e-10
		if far[at/d] && far[p+at%d] {
			rate = link
		}
		table.Add(rate)
	}
	table.Admit()
	for range rnd.IntN(3) {
		table.ExcludePair(rnd.IntN(p * d))
		table.ExcludeReceiver(rnd.IntN(d))
	}
	return table
}

// Plans that tie have the same chance, pairs and single decode replicas together. A pair with a longer link,
// or a more expensive sender or receiver, does not tie.
func TestTiesAreDrawnEvenly(t *testing.T) {
	const n, rounds = 12, 60
	for _, local := range []float64{0.3, 9} {
		table := &Table{Ties: Ties{Absolute: 2e-3}}
		table.PairRates.Reset(n)
		for at := range n * n {
			rate := 1e-10
			if at%n == 5 {
				rate = 1.1e-10
			}
			table.Add(rate)
		}
		ties := (n - 1) * (n - 3)
		for i := range n {
			sender, receiver := Sender{cost: 0.1 + float64(i)*1e-5}, Receiver{cost: 0.1, Bytes: 1e9}
			if i == 3 {
				sender.cost = 0.2
			}
			if i == 4 || i == 6 {
				receiver.cost = 0.2
			}
			table.Senders, table.Receivers = append(table.Senders, sender), append(table.Receivers, receiver)
			table.Local = append(table.Local, local)
			table.Row, table.Col = append(table.Row, int32(i)), append(table.Col, int32(i))
			if local < 1 {
				ties++
			}
		}
		table.Admit()
		rnd, drawn := rand.New(rand.NewPCG(3, 4)), map[Choice]int{}
		best, locals := make([]Choice, 4), make([]Choice, 2)
		for range rounds * ties {
			chosen, told, _ := table.Choose(rnd, best, locals)
			if drawn[chosen]++; told != ties {
				t.Fatalf("%d plans are as good, want %d", told, ties)
			}
		}
		squares, free := 0.0, float64(ties-1)
		for _, times := range drawn {
			squares += float64((times-rounds)*(times-rounds)) / rounds
		}
		if len(drawn) != ties || math.Abs(squares-free) > 4*math.Sqrt(2*free) {
			t.Errorf("%d of %d ties were drawn, with a chi-square of %.0f", len(drawn), ties, squares)
		}
		agree(t, table)
	}
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

// No bound is above the price of a pair, or the pair might be left out although the pair is the best.
func TestNoBoundIsAboveAPrice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := anyTable(t, 6)
		table.bound()
		for i := range table.Senders {
			if table.senderOut[i] || len(table.order) == 0 {
				continue
			}
			own := table.boundOf(&table.Senders[i])
			for _, r := range table.order {
				cost, ok := table.Cost(i, int(r.at))
				if ok && own+r.floor > cost {
					t.Fatalf("the bound of pair %d, %d is %v, the price %v", i, r.at, own+r.floor, cost)
				}
			}
		}
	})
}

// A sender is out of reach if many requests need its link, though the sender itself costs no more than
// others.
func TestASendersLinkCountsInItsBound(t *testing.T) {
	const n = 50
	table := &Table{}
	table.PairRates.Reset(n)
	for range n * n {
		table.Add(1e-10)
	}
	for i := range n {
		table.Senders = append(table.Senders, Sender{cost: 1, Leaving: float64(i)})
		table.Receivers = append(table.Receivers, Receiver{cost: 1, Bytes: 1e10})
		table.Row, table.Col = append(table.Row, int32(i)), append(table.Col, int32(i))
	}
	table.Admit()
	best := make([]Choice, 4)
	table.Choose(rand.New(rand.NewPCG(1, 1)), best, make([]Choice, 2))
	for i := 1; i < n; i++ {
		if least := table.boundOf(&table.Senders[i]) + table.order[0].floor; least <= best[3].Cost {
			t.Fatalf("sender %d is within reach: %v of %v", i, least, best[3].Cost)
		}
	}
}

// If all pairs differ, few are priced, and hardly any twice.
func TestMostPairsAreOutOfReach(t *testing.T) {
	const n = 200
	table := &Table{Ties: Ties{Absolute: 2e-3, Relative: 0.02}}
	table.PairRates.Reset(n)
	for range n * n {
		table.Add(1e-10)
	}
	for i := range n {
		table.Senders = append(table.Senders, Sender{cost: 1 + float64(i*37%n)})
		table.Receivers = append(table.Receivers, Receiver{cost: 1 + float64(i*73%n), Bytes: 1e9})
		table.Row, table.Col = append(table.Row, int32(i)), append(table.Col, int32(i))
	}
	table.Admit()
	best := make([]Choice, 4)
	table.Choose(rand.New(rand.NewPCG(1, 1)), best, make([]Choice, 2))
	within := 0
	for i := range n {
		for _, floor := range table.floors {
			if table.Senders[i].cost+floor <= best[len(best)-1].Cost {
				within++
			}
		}
	}
	if within > 10 {
		t.Errorf("%d of %d pairs are within reach of the best", within, n*n)
	}
}
