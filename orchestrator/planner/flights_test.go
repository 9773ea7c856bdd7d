package planner

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// moves transfers the blocks of a new prompt from p1 to a decode replica. It returns the real time divided by
// the predicted time.
func (f *fleet) moves(t *testing.T, link float64, tokens int, avoid ...replica.ID) (late float64) {
	t.Helper()
	b := f.asks(t, tokens, avoid...)
	predicted := f.predicted(b.Prefill.ID, b.Decode.ID, tokens)
	f.come(b, f.landed(b, f.now, 0.005+f.over(link, tokens)))
	f.pass(2 * time.Second)
	return f.over(link, tokens) / predicted
}

// predicted returns the predicted seconds for the blocks of this number of tokens between two replicas.
func (f *fleet) predicted(p, d replica.ID, tokens int) float64 {
	f.pl.mu.Lock()
	defer f.pl.mu.Unlock()
	for i := range f.ps {
		for j := range f.ds {
			if f.ps[i].ID == p && f.ds[j].ID == d {
				perByte := f.pl.pairs.rate(&f.ps[i], &f.ds[j])
				return float64(tokens) * f.pl.policy.KVBytesPerToken * perByte
			}
		}
	}
	return math.NaN()
}

// Links that are 3 to 100 times slower or faster than configured are estimated within a factor of two after
// three transfers. Unused links of the same kind are nearer to the truth, too.
func TestWrongLinksAreKnownAfterThreeTransfers(t *testing.T) {
	for _, wrong := range []float64{3, 10, 100, 1. / 10, 1. / 100} {
		f := newFleet(1, 3, nil)
		configured := 40e9 * min(1, wrong) // the real speed is lower, or 40 GB/s
		f.links(configured)
		is := configured / wrong
		const tokens = 20_000
		for range 3 {
			f.moves(t, is, tokens, "d2", "d3")
		}
		if late := f.over(is, tokens) / f.predicted("p1", "d1", tokens); late > 2 || late < 0.5 {
			t.Errorf("slower by %g than said: after three transfers off by a factor of %.2f", wrong, late)
		}
		other := f.over(is, tokens) / f.predicted("p1", "d2", tokens)
		if off, was := math.Abs(math.Log(other)), math.Abs(math.Log(wrong)); off > was*0.8 {
			t.Errorf("slower by %g than said: a link that was not used is off by a factor of %.2f", wrong, other)
		}
	}
}

// links sets the configured speed of all links, and forgets what was learned about them.
func (f *fleet) links(speed float64) {
	var p Policy
	for kind := range p.Links {
		p.Links[kind] = speed
	}
	f.set(p)
}

// A transfer that takes a hundred times as long as predicted is known to be late before it ends. Other
// requests avoid its link during this time.
func TestALateTransferTellsBeforeItHasCome(t *testing.T) {
	f := newFleet(1, 1, nil)
	const tokens = 20_000
	b := f.asks(t, tokens)
	defer func() { b.Release(f.now) }()
	splits := 0
	for f.pass(100 * time.Millisecond); f.now.Sub(f.began()) < 3*time.Second; f.pass(100 * time.Millisecond) {
		r := f.fresh(tokens)
		r.LocalOK = true
		next := f.plan(t, r)
		if next.Mode == Split {
			splits++
		}
		next.Release(f.now)
	}
	if took := f.predicted("p1", "d1", tokens); took < 1 {
		t.Errorf("it has not come for three seconds, and the next is predicted to take %.2f", took)
	}
	if splits > 10 {
		t.Errorf("%d of 29 prompts are split meanwhile", splits)
	}
}

// Several transfers are late at the same time. What is learned of the links does not depend on chance: the
// same requests lead to the same decisions in every run.
func TestLateTransfersTeachInTheSameOrder(t *testing.T) {
	decode := []replica.ID{"d1", "d2", "d3", "d4", "d5"}
	learned := func() (all []float64) {
		f := newFleet(1, len(decode), nil)
		f.links(40e9)
		for i, to := range decode {
			others := slices.DeleteFunc(slices.Clone(decode), func(id replica.ID) bool { return id == to })
			b := f.asks(t, 4000*(i+1), others...)
			defer func() { b.Release(f.now) }()
			f.pass(30 * time.Millisecond)
		}
		for range 8 {
			f.pass(250 * time.Millisecond)
			f.pl.flights.overdue(f.now)
			for _, d := range decode {
				all = append(all, f.predicted("p1", d, 20_000))
			}
		}
		return all
	}
	first := learned()
	if first[0] == first[len(first)-len(decode)] {
		t.Fatalf("nothing was learned: %v", first)
	}
	for range 20 {
		if again := learned(); !slices.Equal(first, again) {
			t.Fatalf("the same transfers taught\n%v, then\n%v", first, again)
		}
	}
}

// began is the time at which the fleet was made.
func (f *fleet) began() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// The speed of a link is learned correctly with any number of concurrent transfers, one after the other or
// in equal shares, and with any replica as the bottleneck.
func TestTransfersAtOnceTellWhatALinkIsWorth(t *testing.T) {
	const tokens = 8000
	for _, c := range []struct{ prefills, decodes int }{{1, 1}, {4, 1}, {1, 4}} {
		for _, shared := range []bool{false, true} {
			for _, configured := range []float64{4e9, 40e9} {
				name := fmt.Sprintf("%dP%dD shared %v configured %.0f", c.prefills, c.decodes, shared, configured/1e9)
				t.Run(name, func(t *testing.T) {
					f := newFleet(c.prefills, c.decodes, nil)
					f.links(configured)
					f.atOnce(t, 10e9, shared, tokens)
					for _, l := range f.pl.LinkSpeeds(f.now) {
						if got := l.BytesPerSecond / 10e9; got < 0.45 || got > 2.2 {
							t.Errorf("a link of 10 GB/s is taken for %.1f, of %d samples", l.BytesPerSecond/1e9, l.Samples)
						}
					}
				})
			}
		}
	}
}

// atOnce transfers the blocks of eight prompts at once, ten times. They share the link of the side with only
// one replica.
func (f *fleet) atOnce(t *testing.T, link float64, shared bool, tokens int) {
	t.Helper()
	for range 10 {
		var all []*Booking
		for i := range 8 {
			r := f.fresh(tokens)
			r.LocalOK = false
			for j := range f.ps {
				if j != i%len(f.ps) {
					r.AvoidPrefill = append(r.AvoidPrefill, f.ps[j].ID)
				}
			}
			for j := range f.ds {
				if j != i%len(f.ds) {
					r.AvoidDecode = append(r.AvoidDecode, f.ds[j].ID)
				}
			}
			b := f.plan(t, r)
			f.hands(t, b, r)
			all = append(all, b)
		}
		began := f.now
		for i, b := range all {
			n := float64(i + 1)
			if shared {
				n = float64(len(all))
			}
			f.now = f.landed(b, began, 0.005+n*f.over(link, tokens))
			f.pl.FirstToken(b, f.now)
		}
		for _, b := range all {
			b.Release(f.now)
		}
		f.pass(2 * time.Second)
		f.idle()
	}
}

// A busy engine is not a slow link: a wait for a local prompt of the decode replica does not count against
// the link.
func TestABusyEngineIsNotASlowLink(t *testing.T) {
	f := newFleet(1, 1, nil)
	for range 20 {
		b := f.asks(t, 8000)
		f.pass(10 * time.Millisecond)
		r := f.fresh(20_000) // its step takes seconds, and the blocks wait for it
		r.SplitOK, r.LocalOK = false, true
		local := f.plan(t, r)
		local.DecodeLease.MarkSent(f.now)
		f.pass(seconds(1.5 * estimate.DefaultSpeed().Prefill(20_000, 0)))
		f.pl.FirstToken(local, f.now)
		f.pl.FirstToken(b, f.now)
		local.Release(f.now)
		b.Release(f.now)
		f.idle()
	}
	for _, l := range f.pl.LinkSpeeds(f.now) {
		if l.BytesPerSecond < 20e9 {
			t.Errorf("a link of 40 GB/s is taken for %.1f", l.BytesPerSecond/1e9)
		}
	}
}
