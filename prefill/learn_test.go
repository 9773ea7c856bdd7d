package prefill

import (
	"fmt"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/roster"
)

// truth is the speed of an engine that equals the profile.
var truth = estimate.DefaultSpeed()

// step lets the first replica answer all prompts from one step, some microseconds apart. It returns the end
// of the step.
func (p *Pool) step(now time.Time, speed estimate.Speed, prompts ...int) time.Time {
	var leases []*Lease
	sum := 0
	for _, tokens := range prompts {
		leases = append(leases, p.Book(&p.ask(tokens, now)[0], now))
		sum += tokens
	}
	at := now.Add(seconds(speed.Prefill(sum, 0)))
	for _, l := range leases {
		at = at.Add(20 * time.Microsecond)
		l.Done(0, at.Sub(now), at)
	}
	return at
}

func burst(n, tokens int) []int {
	prompts := make([]int, n)
	for i := range prompts {
		prompts[i] = tokens
	}
	return prompts
}

// One step computes a whole burst of short prompts, so the overhead is paid once and all prompts are answered
// at its end. Such a burst does not show the cost of a token.
func TestBurstsOfShortPromptsDoNotBendTheSlope(t *testing.T) {
	for _, size := range []int{1, 4, 8, 16, 64} {
		t.Run(fmt.Sprintf("bursts of %d", size), func(t *testing.T) {
			p, now := newPool("p1"), start
			for range 200 {
				p.step(now, truth, burst(size, 32)...)
				now = now.Add(500 * time.Millisecond)
				near(t, "8,000 tokens", p.ask(8000, now)[0].Warm, truth.Prefill(8000, 0), 0.2)
			}
			near(t, "a burst's own prompt", p.ask(32, now)[0].Warm, truth.Prefill(32, 0), 0.5)
		})
	}
}

// The speed of a replica is learned from its long prompts, with any number of short prompts between them.
func TestLongPromptsAreLearnedBesideBursts(t *testing.T) {
	for _, factor := range []float64{0.3, 1, 8} {
		for _, every := range []int{1, 4, 8} {
			t.Run(fmt.Sprintf("%g times the profile, each %d. burst", factor, every), func(t *testing.T) {
				p, now := newPool("p1"), start
				speed := truth
				speed.T0 = factor * truth.T0
				speed.A = factor * truth.A
				speed.B = factor * truth.B
				for i := range 200 {
					now = p.step(now, speed, burst(8, 32)...).Add(time.Second)
					if i%every == 0 {
						now = p.step(now, speed, 8000).Add(time.Second)
					}
					if i > 50 {
						near(t, "8,000 tokens", p.ask(8000, now)[0].Warm, speed.Prefill(8000, 0), 0.25)
					}
				}
			})
		}
	}
}

// Short prompts that waited for stopped work do not show the cost of a token, neither for their own replica
// nor for an unmeasured one.
func TestSlowShortPromptsMakeNoTokenDear(t *testing.T) {
	p, now := newPool("p1", "p2"), start
	for range 3 {
		c := p.ask(32, now)
		l := p.Book(&c[0], now)
		now = now.Add(500 * time.Millisecond)
		l.Done(0, 500*time.Millisecond, now)
		now = now.Add(time.Second)
	}
	for i, c := range p.ask(8000, now) {
		if most := truth.Prefill(8000, 0) + 0.5; c.Warm > most {
			t.Errorf("8,000 tokens are priced at %.2f s on p%d, more than their price and the half second that a "+
				"short prompt took", c.Warm, i+1)
		}
	}
}

// A short prompt that is sent just before a long one shares a step with it. The step computes much of the
// long prompt, and the short prompt is answered when the step is over.
func TestPromptsOfOneBusyTimeAreLearnedTogether(t *testing.T) {
	p, now := newPool("p1"), start
	for range 50 {
		long, short := p.ask(16_000, now), p.ask(32, now)
		a := p.Book(&short[0], now)
		b := p.Book(&long[0], now)
		whole := seconds(truth.Prefill(16_032, 0))
		a.Done(0, whole/2, now.Add(whole/2))
		b.Done(0, whole, now.Add(whole))
		now = now.Add(5 * time.Second)
	}
	near(t, "a short prompt", p.ask(32, now)[0].Warm, truth.Prefill(32, 0), 0.3)
	near(t, "a long prompt", p.ask(16_000, now)[0].Warm, truth.Prefill(16_000, 0), 0.1)
}

// If a prompt was given up, its part of the replica's busy time is unknown.
func TestNothingIsLearnedBesideAPromptGivenUp(t *testing.T) {
	p, now := newPool("p1"), start
	for range 20 {
		c := p.ask(8000, now)
		given, kept := p.Book(&c[0], now), p.Book(&c[0], now)
		given.Release(now.Add(100 * time.Millisecond))
		kept.Done(0, 10*time.Second, now.Add(10*time.Second))
		now = now.Add(time.Minute)
	}
	if m := p.Status(now)[0]; m.Samples != 0 {
		t.Errorf("%d samples of busy times with a prompt that was given up", m.Samples)
	}
	p.step(now, truth, 8000)
	if m := p.Status(now)[0]; m.Samples != 1 {
		t.Errorf("%d samples after a sound prompt, want 1", m.Samples)
	}
}

// A prompt behind the prompt of another router waits there, and its time says nothing of the replica's
// speed. The other router may have told of the prompt only before the replica began with ours.
func TestPromptsBehindThoseOfAnotherRouterTeachNothing(t *testing.T) {
	p, now := newPool("p1"), start
	own := seconds(truth.Prefill(4000, 0))
	for range 10 {
		now = p.step(now, truth, 4000).Add(time.Second)
	}
	for range 50 {
		work := []PeerLoad{{ID: "p1", Requests: 1, Work: own, First: roster.Running{Work: own}}}
		p.MergePeer("b", work, now)
		l := p.Book(&p.ask(4000, now)[0], now)
		now = now.Add(own + time.Millisecond)
		p.MergePeer("b", []PeerLoad{{ID: "p1", First: roster.Running{Answered: time.Millisecond}}}, now)
		now = now.Add(own)
		l.Done(0, 2*own, now)
		now = now.Add(time.Second)
	}
	near(t, "4,000 tokens", p.ask(4000, now)[0].Warm, own.Seconds(), 0.05)
}

// The speed of a replica is learned even if its queue is never empty for hours.
func TestAQueueThatNeverEndsIsLearnedFrom(t *testing.T) {
	p, now := newPool("p1"), start
	speed := truth
	speed.A *= 5
	c := p.ask(4000, now)
	last, sent := p.Book(&c[0], now), now
	for range 60 {
		next, nextSent := p.Book(&c[0], now), now
		now = now.Add(seconds(speed.Prefill(4000, 0)))
		last.Done(0, now.Sub(sent), now)
		last, sent = next, nextSent
	}
	near(t, "a prompt", p.ask(4000, now)[0].Warm, speed.Prefill(4000, 0), 0.15)
}

// A slow replica without requests for a long time is tried again by one request. Requests before the answer
// are priced with the old measurement.
func TestOneIsSentToTrySomeoneWhoWasSlow(t *testing.T) {
	p, now := newPool("p1", "p2"), start
	slow := truth
	slow.T0 = 20 * truth.T0
	slow.A = 20 * truth.A
	slow.B = 20 * truth.B
	for i := range 40 {
		speed := truth
		if i%2 == 0 {
			speed = slow
		}
		l := p.Book(&p.ask(8000, now)[i%2], now)
		took := seconds(speed.Prefill(8000, 0))
		now = now.Add(took)
		l.Done(0, took, now)
	}
	price := func() float64 { return p.ask(8000, now)[0].Warm / truth.Prefill(8000, 0) }
	near(t, "as measured", price(), 20, 0.2)
	for range 300 {
		l := p.Book(&p.ask(8000, now)[1], now)
		now = now.Add(time.Second)
		l.Done(0, seconds(truth.Prefill(8000, 0)), now)
		p.Observe("p1", load(now, 0, 0, 0), now)
	}
	if got := price(); got > 1.5 {
		t.Fatalf("after five minutes without a sample it is still priced at %.1f times what the other takes", got)
	}
	l := p.Book(&p.ask(8000, now)[0], now)
	near(t, "while somebody tries", price(), 20, 0.2)
	for range 60 {
		now = now.Add(time.Second)
		p.Observe("p1", load(now, 1, 0, 0), now)
	}
	near(t, "while it still tries", price(), 20, 0.2)
	l.Release(now)
}
