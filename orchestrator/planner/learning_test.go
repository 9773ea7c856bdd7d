package planner

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// idle reports that nobody has anything to do.
func (f *fleet) idle() {
	for i := range f.ps {
		f.says(f.prefill, f.ps[i].ID, 0, 0, 0)
	}
	for i := range f.ds {
		f.says(f.decode, f.ds[i].ID, 0, 0, 0)
	}
}

// A cached prefix keeps its value after any number of bursts of short prompts.
func TestBurstsLeaveACachedPrefixItsWorth(t *testing.T) {
	f := newFleet(2, 1, nil)
	f.store(t, f.prefill, "p1", 1, 500)
	long := func() replica.ID {
		r := f.request(1, 30_000)
		r.LocalOK = false
		d, err := f.pl.Explain(r, f.now)
		if err != nil {
			t.Fatal(err)
		}
		return d.Prefill
	}
	for i := range 100 {
		if to := long(); to != "p1" {
			t.Fatalf("behind %d bursts a prompt of 30,000 tokens goes to %s, 8,000 of them are on p1", i, to)
		}
		f.burst(t, i, 16)
	}
}

// burst has so many short prompts answered, those of each engine out of one step.
func (f *fleet) burst(t *testing.T, seed, size int) {
	t.Helper()
	of := map[replica.ID][]*Booking{}
	for j := range size {
		r := f.request(uint32(100+size*seed+j), 32)
		r.LocalOK = false
		b := f.plan(t, r)
		of[b.Prefill.ID] = append(of[b.Prefill.ID], b)
	}
	for _, bookings := range of {
		at := f.now.Add(seconds(estimate.DefaultSpeed().Prefill(32*len(bookings), 0)))
		for _, b := range bookings {
			at = at.Add(20 * time.Microsecond)
			b.PrefillLease.Done(0, at.Sub(f.now), at)
			b.Release(at)
		}
	}
	f.pass(time.Second)
	f.idle()
}

// learnsSlow has three prompts of so many tokens each take so long on p1, the only one that was measured.
func (f *fleet) learnsSlow(t *testing.T, tokens int, took time.Duration) {
	t.Helper()
	for i := range 3 {
		r := f.request(uint32(100+i), tokens)
		r.LocalOK, r.AvoidPrefill = false, []replica.ID{"p2"}
		b := f.plan(t, r)
		f.pass(took)
		b.PrefillLease.Done(0, took, f.now)
		b.Release(f.now)
		f.pass(time.Second)
	}
}

// With a limit on TTFT, engines that looked slow for a moment do not refuse requests for good: now and then
// one request is let through to measure them.
func TestLateIsNotForEver(t *testing.T) {
	for name, tokens := range map[string]int{"short prompts were slow": 32, "long prompts were slow": 8000} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(2, 1, nil)
			f.learnsSlow(t, tokens, 20*time.Second)
			f.firstBy = 5 * time.Second
			var last time.Duration
			refused := 0
			for i := range 600 {
				r := f.request(uint32(1000+i), 8000)
				r.LocalOK = false
				b, err := f.pl.Plan(r, f.now)
				if err != nil {
					if _, late := errors.AsType[*TooLate](err); !late {
						t.Fatal(err)
					}
					refused++
					last = time.Duration(i) * time.Second
				} else {
					b.PrefillLease.Done(0, seconds(estimate.DefaultSpeed().Prefill(8000, 0)),
						f.now.Add(seconds(estimate.DefaultSpeed().Prefill(8000, 0))))
					b.Release(f.now)
				}
				f.pass(time.Second)
				f.idle()
			}
			if last > 90*time.Second {
				t.Errorf("engines as fast as ever: %d requests were refused, the last one after %v", refused, last)
			}
		})
	}
}

// An engine that is slow for good is not tried with all requests. One request in ten seconds shows that it
// still is slow.
func TestLateIsTriedByOne(t *testing.T) {
	f := newFleet(2, 1, nil)
	f.learnsSlow(t, 8000, 20*time.Second)
	f.firstBy = 5 * time.Second
	through := 0
	for i := range 300 {
		r := f.request(uint32(1000+i), 8000)
		r.LocalOK = false
		if b, err := f.pl.Plan(r, f.now); err == nil {
			through++
			b.PrefillLease.Done(0, 20*time.Second, f.now)
			b.Release(f.now)
		}
		f.pass(time.Second)
		f.idle()
	}
	if through < 10 || through > 60 {
		t.Errorf("%d of 300 requests in 300 s went through to two replicas, want one in ten seconds for each",
			through)
	}
}

// answers lets requests come one after the other, every so often, each for so many tokens, and end when their
// replica is through, whose step takes what step says. It returns where each went.
func (f *fleet) answers(
	t *testing.T, n, tokens int, every time.Duration, step func(id replica.ID) time.Duration,
) (to []replica.ID) {
	t.Helper()
	type running struct {
		b     *Booking
		first time.Time
		end   time.Time
	}
	var all []running
	for i := range n {
		r := f.request(uint32(5000+i), 400)
		r.MaxTokens = tokens + 1
		b := f.plan(t, r)
		b.PrefillLease.Done(0, 10*time.Millisecond, f.now)
		b.DecodeLease.MarkSent(f.now)
		f.pl.FirstToken(b, f.now.Add(10*time.Millisecond))
		to = append(to, b.Decode.ID)
		first := f.now.Add(10 * time.Millisecond)
		all = append(all, running{b, first, first.Add(time.Duration(tokens-1) * step(b.Decode.ID))})
		f.pass(every)
		all = slices.DeleteFunc(all, func(a running) bool {
			if a.end.After(f.now) {
				return false
			}
			a.b.Finish(tokens, 0, a.end.Sub(a.first), a.end)
			return true
		})
		for _, d := range f.ds {
			on := 0
			for _, a := range all {
				if a.b.Decode.ID == d.ID {
					on++
				}
			}
			f.says(f.decode, d.ID, on, 0, 0.01*float64(on))
		}
	}
	for _, a := range all {
		a.b.Release(f.now)
	}
	return to
}

func count(ids []replica.ID, id replica.ID) (n int) {
	for _, i := range ids {
		if i == id {
			n++
		}
	}
	return n
}

// A decode replica whose steps take twenty times as long gets next to nothing once that is known, and the
// plan says why.
func TestASlowDecodeReplicaIsLeftAlone(t *testing.T) {
	f := newFleet(1, 2, nil)
	step := func(id replica.ID) time.Duration {
		if id == "d2" {
			return 140 * time.Millisecond
		}
		return 7 * time.Millisecond
	}
	to := f.answers(t, 24, 48, time.Second, step)
	d, err := f.pl.Explain(f.request(1, 400), f.now)
	if err != nil || d.Decode != "d1" || d.Why != WhySpeed {
		t.Fatalf("chose %s because of %s, %v; want d1 for its speed; %v", d.Decode, d.Why, err, to)
	}
	for _, plan := range d.Plans {
		slow := plan.Decode == "d2"
		if late := plan.Terms.Answer; (late > 1000) != slow || !slow && late != 0 {
			t.Errorf("on %s the answer takes %.0f ms longer than on the fastest", plan.Decode, late)
		}
		if took := plan.OnDecode.Step; (took > 100) != slow {
			t.Errorf("a step of %s takes %.1f ms", plan.Decode, took)
		}
	}
	if cause, known := f.decode.Slow("d2", false); !known || !strings.Contains(cause, "decode steps") ||
		!strings.Contains(cause, "d1") {
		t.Errorf("d2 is slow for %q, %v", cause, known)
	}
	if cause, known := f.decode.Slow("d1", false); !known || cause != "" {
		t.Errorf("d1 is slow for %q, %v", cause, known)
	}
	to = append(to, f.answers(t, 16, 48, time.Second, step)...)
	if n := count(to[10:], "d2"); n > 1 {
		t.Errorf("%d of 30 requests went to the slow replica: %v", n, to)
	}
}

// Noise of measurement is no difference: equal replicas stay equal in price.
func TestAlikeReplicasStayAlike(t *testing.T) {
	f := newFleet(1, 3, nil)
	rnd := rand.New(rand.NewPCG(1, 2))
	step := func(replica.ID) time.Duration {
		return time.Duration((1 + 0.3*(rnd.Float64()-0.5)) * float64(7*time.Millisecond))
	}
	to := f.answers(t, 300, 40, 400*time.Millisecond, step)
	for _, d := range f.ds {
		if n := count(to[60:], d.ID); n < 55 || n > 110 {
			t.Errorf("%d of 240 went to %s, want about 80", n, d.ID)
		}
	}
	d, err := f.pl.Explain(f.request(1, 400), f.now)
	if err != nil {
		t.Fatal(err)
	}
	for _, plan := range d.Plans {
		if plan.Terms.Answer != 0 {
			t.Errorf("on %s the answer takes %.1f ms longer, and all are alike", plan.Decode, plan.Terms.Answer)
		}
	}
}

// A slow replica that has recovered is found by rare trials, and then gets its share of requests.
func TestWhoHasRecoveredComesBack(t *testing.T) {
	f := newFleet(1, 2, nil)
	slow := true
	step := func(id replica.ID) time.Duration {
		if id == "d2" && slow {
			return 140 * time.Millisecond
		}
		return 7 * time.Millisecond
	}
	f.answers(t, 40, 40, time.Second, step)
	to := f.answers(t, 600, 40, time.Second, step)
	if n := count(to, "d2"); n < 1 || n > 15 {
		t.Errorf("in ten minutes %d of 600 went to see whether d2 is still slow, want one a minute or less", n)
	}
	slow = false
	f.answers(t, 200, 40, time.Second, step)
	if n := count(f.answers(t, 100, 40, time.Second, step), "d2"); n < 30 {
		t.Errorf("%d of 100 go to d2, which is as fast as d1 for minutes", n)
	}
}

// A measured difference of a few per cent between equal replicas is noise. It changes no choice, and
// concurrent requests spread.
func TestAStepWithinTheNoiseMovesNobody(t *testing.T) {
	for _, tt := range []struct {
		name   string
		tokens int
		step   time.Duration
	}{
		{"short answers", 40, 7 * time.Millisecond},
		{"long answers", 400, 7 * time.Millisecond},
		{"slow engines", 40, 70 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(1, 2, nil)
			f.answers(t, 40, tt.tokens, 10*time.Second, func(id replica.ID) time.Duration {
				if id == "d2" {
					return tt.step * 108 / 100
				}
				return tt.step
			})
			f.pass(time.Second)
			f.idle()
			for _, split := range []bool{true, false} {
				var atOnce, alone []replica.ID
				for i := range 40 {
					r := f.request(uint32(9000+i), 400)
					r.MaxTokens = 2000
					r.SplitOK = split
					r.LocalOK = !split
					d, err := f.pl.Explain(r, f.now)
					if err != nil {
						t.Fatal(err)
					}
					alone = append(alone, d.Decode)
				}
				var all []*Booking
				for i := range 8 {
					r := f.request(uint32(9100+i), 400)
					r.MaxTokens = 2000
					r.SplitOK = split
					r.LocalOK = !split
					b := f.plan(t, r)
					all, atOnce = append(all, b), append(atOnce, b.Decode.ID)
				}
				for _, b := range all {
					b.Release(f.now)
				}
				if n := count(alone, "d1"); n < 10 || n > 30 {
					t.Errorf("split %v: %d of 40 plans are for d1, want about half", split, n)
				}
				if n := count(atOnce, "d1"); n < 3 || n > 5 {
					t.Errorf("split %v: %d of eight at once go to d1: %v", split, n, atOnce)
				}
			}
		})
	}
}

// A decode replica has just begun to prefill another prompt. A request that waits there does not move to a
// replica that is known to be slow: the wait is shorter than the time by which the answer would end later.
func TestSlowReplicaTakesNoMovedRequest(t *testing.T) {
	for _, tt := range []struct {
		name  string
		slow  time.Duration // a step of d2's
		moved bool
	}{{"as quick", 7 * time.Millisecond, true}, {"slow", 140 * time.Millisecond, false}} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(1, 2, nil)
			for i := range 20 {
				r, step := f.request(uint32(5000+i), 400), 7*time.Millisecond
				r.MaxTokens = 41
				r.LocalOK = false
				r.AvoidDecode = []replica.ID{f.ds[i%2].ID}
				b := f.plan(t, r)
				if b.Decode.ID == "d2" {
					step = tt.slow
				}
				b.PrefillLease.Done(0, 10*time.Millisecond, f.now)
				b.DecodeLease.MarkSent(f.now)
				f.pl.FirstToken(b, f.now.Add(10*time.Millisecond))
				f.pass(39*step + 10*time.Millisecond)
				b.Finish(40, 0, 39*step, f.now)
			}
			f.idle()
			r := f.request(9000, 6000)
			r.MaxTokens = 400
			r.LocalOK = false
			r.AvoidDecode = []replica.ID{"d2"}
			b := f.plan(t, r)
			r.AvoidDecode = nil
			f.prefills(t, "d1", 12_000)
			if moved, err := f.pl.Rebind(b, r, f.now); moved != tt.moved || err != nil {
				t.Errorf("moved %v, %v, want %v", moved, err, tt.moved)
			}
			b.Release(f.now)
		})
	}
}
