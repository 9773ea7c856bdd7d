package scoring

import (
	"math"
	"math/rand/v2"
	"testing"
)

func near(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if math.Abs(got-want) > share*math.Abs(want)+1e-12 {
		t.Errorf("%s = %g, want %g within %g %%", what, got, want, share*100)
	}
}

func TestAlpha(t *testing.T) {
	auto := Alpha{Auto: true}
	for _, tt := range []struct {
		name  string
		alpha Alpha
		queue Queue
		want  float64
	}{
		{"nothing waits", auto, Queue{Arrivals: 5, Rho: 0.9}, 1},
		{"nobody comes", auto, Queue{Wait: 10, Rho: 0.9}, 1},
		{"three come while it is worked off", auto, Queue{Wait: 1.5, Arrivals: 2}, 4},
		{"what they bring makes it last twice as long", auto, Queue{Wait: 1.5, Arrivals: 2, Rho: 0.5}, 7},
		{"nineteen come", auto, Queue{Wait: 9.5, Arrivals: 2}, 20},
		{"nearly always busy", auto, Queue{Wait: 0.5, Arrivals: 4, Rho: 0.99}, 41},
		{"overbooked", auto, Queue{Wait: 0.5, Arrivals: 4, Rho: 3}, 41},
		{"many come in the time that a queue is taken to last", auto, Queue{Wait: 30, Arrivals: 5, Rho: 0.5}, 51},
		{"few come in it", auto, Queue{Wait: 30, Arrivals: 0.5, Rho: 0.5}, 6},
		{"unknown", auto, Queue{Wait: math.NaN(), Arrivals: 1}, 1},
		{"negative", auto, Queue{Wait: 1, Arrivals: 1, Rho: -1}, 2},
		{"a number ignores load", Alpha{Value: 4}, Queue{Wait: 9, Arrivals: 9, Rho: 0.9}, 4},
	} {
		if got := tt.alpha.At(tt.queue); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: At(%+v) = %g, want %g", tt.name, tt.queue, got, tt.want)
		}
	}
}

func usual() Weights {
	return Weights{
		Alpha: Alpha{Auto: true}, Beta: 1, Gamma: 1, DecodePenalty: 1,
	}
}

func TestRawIsTheLiteralFormula(t *testing.T) {
	m := Weights{Units: InRaw, Alpha: Alpha{Value: 1}, Beta: 1, Gamma: 10}.Model(0, 0)
	// The chapter's own example: warm d=8 w=2, cold d=0 w=0 u=0.1. The crossing lies where 8-2-10u = -10*0.1, u
	// = 0.7.
	cold := m.Prefill(&Prefill{Usage: 0.1}).Total()
	for usage, warmWins := range map[float64]bool{0.5: true, 0.69: true, 0.71: false, 0.98: false} {
		warm := m.Prefill(&Prefill{Blocks: 8, Waiting: 2, Usage: usage}).Total()
		if got := warm < cold; got != warmWins {
			t.Errorf("at u=%g the warm replica costs %g, the cold one %g", usage, warm, cold)
		}
	}
}

// A second of a local prefill counts for all requests that wait for it, as on a prefill replica.
func TestLocalCostsMoreWhereOthersWait(t *testing.T) {
	m := usual().Model(0, 0)
	last := 0.0
	for _, wait := range []float64{0, 0.5, 2} {
		got := m.Local(&Decode{Local: Local{Warm: 1, Active: 4, Queue: Queue{Wait: wait, Arrivals: 2}}})
		near(t, "prefill", got.Prefill, 1+2*wait, 1e-9)
		near(t, "interference", got.Interference, 4*2+1, 1e-9)
		if got.Total() <= last {
			t.Errorf("where others take %g s it costs %g, no more than %g", wait, got.Total(), last)
		}
		last = got.Total()
	}
}

// A second of delay costs a short answer more than a long answer, because it delays each of its tokens more.
func TestStreamsLoseByTheirLength(t *testing.T) {
	m := usual().Model(0, 0)
	cost := func(tokens float64) float64 {
		return m.Local(&Decode{Usual: tokens, Local: Local{Warm: 0.1, Active: 10}}).Interference
	}
	near(t, "fifty tokens", cost(50), 10*0.1*1.1, 1e-9)
	near(t, "five hundred", cost(500), cost(50)/10, 1e-9)
	near(t, "five", cost(5), cost(50)*10, 1e-9)
	near(t, "one, which has no time between tokens", cost(1), cost(2), 1e-9)
	near(t, "nobody knows", cost(0), cost(50), 1e-9)
	slower := func(tokens float64) float64 {
		return m.Decode(&Decode{Usual: tokens, Running: 10, Marginal: 1e-3, Output: 100}).Decode
	}
	near(t, "slower steps", slower(500), slower(50)/10, 1e-9)
}

// A long prefill costs the stopped streams more than short ones of the same total, up to two seconds. It
// costs arriving requests in proportion to its square.
func TestLocalKeepsOthersWaiting(t *testing.T) {
	m := usual().Model(0, 0)
	cost := func(warm, active, arrivals float64) float64 {
		return m.Local(
			&Decode{Local: Local{Warm: warm, Active: active, Queue: Queue{Arrivals: arrivals}}},
		).Interference
	}
	near(t, "a tenth of a second", cost(0.1, 10, 0), 10*0.1*1.1, 1e-9)
	near(t, "two seconds", cost(2, 10, 0), 10*2*3, 1e-9)
	near(t, "ten seconds", cost(10, 10, 0), 10*10*3, 1e-9)
	if many, one := 10*cost(0.1, 10, 0), cost(1, 10, 0); one < 1.5*many {
		t.Errorf("one second costs %g, ten tenths of one %g", one, many)
	}
	near(t, "who comes", cost(3, 0, 2), 2*3*1.5, 1e-9) // six arrive, and wait half the time
}

func TestChooseBreaksTiesEvenly(t *testing.T) {
	table := Table{
		Senders: []Sender{{cost: 0.010}, {cost: 0.011}, {cost: 0.5}}, Receivers: []Receiver{{}, {cost: 0.0005}},
		Row: []int32{0, 1, 2}, Col: []int32{0, 1},
		Local: []float64{0.0105, math.Inf(1)}, Ties: Ties{Absolute: 2e-3, Relative: 0.02},
	}
	table.PairRates.Reset(2)
	for range 6 {
		table.Add(0)
	}
	table.Admit()
	rnd := rand.New(rand.NewPCG(1, 1))
	count := map[[2]int32]int{}
	best, locals := make([]Choice, 3), make([]Choice, 2)
	for range 5000 {
		c, ties, plans := table.Choose(rnd, best, locals)
		if ties != 5 || plans != 7 {
			t.Fatalf("%d ties of %d plans, want 5 of 7", ties, plans)
		}
		count[[2]int32{c.Prefill, c.Decode}]++
	}
	for plan, n := range count {
		if n < 850 || n > 1150 {
			t.Errorf("plan %v was taken %d times of 5000, want about 1000", plan, n)
		}
	}
	if len(count) != 5 {
		t.Errorf("%d plans were taken, want 5", len(count))
	}
}

// A request that arrives while transfers are under way waits for each second of one more, on either side,
// for as long as a queue counts at most.
func TestALaterTransferKeepsThoseWaitingWhoCome(t *testing.T) {
	m := &Seconds{Weights: usual(), BytesPerToken: 1e5}
	d := Decode{Missing: 10_000, Arriving: 20}
	p := Prefill{Leaving: 3}
	const own, perByte = 0.1, 1e-10
	cost := func(outbox, ready, inbound float64) float64 {
		p.Outbox, p.Warm = outbox, ready
		d.Inbound = inbound
		return Split(m, &p, &d, perByte).Interference
	}
	alone := cost(0, 0, 0)
	near(t, "nobody ahead", alone, 23*own*own/2, 1e-9)
	near(t, "others come for 2 s", cost(0, 0, 2)-alone, 20*2*own, 1e-9)
	near(t, "others leave for 4 s", cost(4, 0, 0)-alone, 3*4*own, 1e-9)
	near(t, "and are through when it is ready", cost(4, 5, 0)-alone, 0, 1e-9)
	near(t, "others come for a minute", cost(0, 0, 60)-alone, 20*10*own, 1e-9)
}

// A pull before a local prefill takes its time and nothing else: the streams go on meanwhile.
func TestLocalPull(t *testing.T) {
	m := usual().Model(0, 0)
	d := Decode{Running: 4, Local: Local{Warm: 0.2, Active: 4, Queue: Queue{Wait: 1, Arrivals: 2}}}
	was, ready := m.Local(&d), d.Local.Ready()
	first := LocalTTFT(&d).Total()
	d.Local.Pull = 0.5
	is := m.Local(&d)
	near(t, "transfer", is.Transfer, 0.5, 1e-9)
	near(t, "all", is.Total(), was.Total()+0.5, 1e-9)
	near(t, "time to the first token", LocalTTFT(&d).Total(), first+0.5, 1e-9)
	near(t, "ready", d.Local.Ready(), ready+0.5, 1e-9)
}
