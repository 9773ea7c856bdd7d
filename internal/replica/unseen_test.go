package replica

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// tick is the time step of the simulation.
const tick = 50 * time.Millisecond

// asking are the requests of one router on an engine. They end after some ticks.
type asking struct {
	kind        string
	concurrency int
	longest     int // ticks of a request
	sequences   int // of each
	live        []request
	given       []request // given up by the router, still on the engine
}

type request struct{ ends, sequences int }

var kinds = []string{"steady", "bursts", "canceled"}

func anyAsking(t *rapid.T) *asking {
	return &asking{
		kind:        rapid.SampledFrom(kinds).Draw(t, "kind"),
		concurrency: rapid.IntRange(1, 64).Draw(t, "concurrency"),
		longest:     rapid.IntRange(21, 400).Draw(t, "longest"),
		sequences:   rapid.IntRange(1, 8).Draw(t, "sequences"),
	}
}

// count adds up sequences.
func count(all []request) (n int) {
	for _, r := range all {
		n += r.sequences
	}
	return n
}

// ended separates the ended requests from the others.
func ended(all []request, now int) (left, over []request) {
	for _, r := range all {
		if r.ends > now {
			left = append(left, r)
		} else {
			over = append(over, r)
		}
	}
	return left, over
}

// step ends and begins requests, and returns the number that the router gave up. The engine keeps these
// requests for two more ticks.
func (a *asking) step(now int) (gaveUp int) {
	var over []request
	a.live, over = ended(a.live, now)
	a.given, _ = ended(a.given, now)
	if a.kind == "canceled" {
		for _, r := range over {
			a.given = append(a.given, request{now + 2, r.sequences})
			gaveUp += r.sequences
		}
	}
	if a.kind == "bursts" && now%80 >= 3 { // all begin at once and end one after the other
		return gaveUp
	}
	for len(a.live) < a.concurrency {
		long := 20 + (len(a.live)*37+now*11)%(a.longest-19)
		a.live = append(a.live, request{now + long, a.sequences})
	}
	return gaveUp
}

// heard is the report of an engine with this number of requests.
func heard(now int, n int) Load {
	return Load{
		At: time.Unix(1000, 0).Add(time.Duration(now) * tick), Source: Metrics, Running: n / 2, Waiting: n - n/2,
		Usage: float64(now%997) / 1000,
	}
}

// A router that is alone never takes its own requests for requests of others, however they come and end.
// Reports lag by up to a second, canceled requests are aborted late, and canaries are not booked. An engine
// whose core has stopped repeats its last report.
func TestARouterThatIsAloneNoticesNoOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := anyAsking(t)
		lag := rapid.IntRange(0, 20).Draw(t, "lag")
		every := rapid.IntRange(16, 24).Draw(t, "every")
		canary := rapid.Bool().Draw(t, "canary")
		stands := rapid.Bool().Draw(t, "stands still")
		var o OtherRequests
		var had []int // by the engine, at each tick
		var frozen Load
		for now := range 2400 {
			o.GaveUp(a.step(now))
			ours := count(a.live)
			o.Ours(ours)
			n := ours + count(a.given)
			if canary {
				n++
			}
			if had = append(had, n); now%every != 0 {
				continue
			}
			l := heard(now, had[max(0, now-lag)])
			switch at := l.At; {
			case stands && now > 1000 && now < 2000: // what runs is given up, and nothing is sent any more
				l, ours = frozen, 0
				l.At, a.live = at, nil
			default:
				frozen = l
			}
			o.Note(l.Running + l.Waiting - ours)
			o.Weigh(l, ours)
			if mean, sure := o.Unseen(); sure {
				t.Fatalf("after %v: %.1f requests of others", time.Duration(now)*tick, mean)
			}
		}
	})
}

// Two routers send the same load and do not know of each other. Each notices the other within a minute, as
// long as both run, and forgets it within a minute after the other has left.
func TestTwoSilentRoutersNotice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := anyAsking(t)
		a.kind, a.concurrency = "steady", max(a.concurrency, 2)
		b := *a
		var o OtherRequests
		for now := range 4800 {
			a.step(now)
			if b.step(now); now > 2400 {
				b.live = nil
			}
			o.Ours(count(a.live))
			if now%20 != 0 {
				continue
			}
			o.Note(count(b.live))
			o.Weigh(heard(now, count(a.live)+count(b.live)), count(a.live))
			mean, sure := o.Unseen()
			if want := now < 2400; (now >= 1200 && now < 2400 || now > 3600) && sure != want {
				t.Fatalf("after %v: sure %v, want %v (%.1f requests)", time.Duration(now)*tick, sure, want, mean)
			}
			if want := float64(count(b.live)); now == 2380 && (mean < want*0.9 || mean > want*1.1) {
				t.Fatalf("%.1f requests of others, want %g", mean, want)
			}
		}
	})
}

// Own requests without a lease do not count as requests of others. A report too soon after another is
// ignored.
func TestUncountedRequestsAreNotOfOthers(t *testing.T) {
	var o OtherRequests
	o.Uncounted(1)
	for now := 0; now < 2400; now += 20 {
		o.Note(50)
		o.Weigh(heard(now, 50), 0)
	}
	if mean, sure := o.Unseen(); sure || mean != 0 {
		t.Errorf("%g requests of others, sure %v: they are ours", mean, sure)
	}
	o.Uncounted(-1)
	for now := 2400; now < 2400+20*20; now++ { // 20 s
		o.Note(50)
		o.Weigh(heard(now, 50), 0)
	}
	if _, sure := o.Unseen(); !sure || o.unseen.reports>>14 != 0 {
		t.Errorf("sure %v: reports of 20 s, one each tick, are weighed as %b", sure, o.unseen.reports)
	}
}
