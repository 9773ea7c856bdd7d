package decode

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// serving makes r serve one model, which has its own path.
func serving(r replica.Replica, model string) replica.Replica {
	r.Facts.Model = model
	r.Facts.Root = "/models/" + model
	r.Facts.Models = []string{model}
	return r
}

// answers lets replicas answer requests for model. A token of an answer takes token seconds, and a prompt
// takes prefill seconds. It returns the time at the end.
func answers(
	t *testing.T, p *Pool, model string, token float64, prefill time.Duration, now time.Time,
) time.Time {
	t.Helper()
	const tokens = 100
	for range 12 {
		q := &Query{Model: model, Tokens: 4000}
		c, _, _ := p.Candidates(q, now, nil, nil)
		if len(c) == 0 {
			t.Fatal("no candidate for " + model)
		}
		l := p.Book(&c[0], q, Schedule{AdmitAt: now, Local: true}, now)
		l.MarkSent(now)
		now = now.Add(prefill)
		l.FirstToken(now)
		decoding := seconds(token * (tokens - 1))
		now = now.Add(decoding)
		l.Finish(tokens, decoding, now)
		now = now.Add(time.Second)
		p.Observe(c[0].member.R.ID, load(now, 0, 0), now)
	}
	return now
}

// A new replica of another model begins with the speed of an unknown engine. A new replica of the same model
// begins with the learned speed. The same holds for the number of sequences.
func TestANewModelIsUnknown(t *testing.T) {
	p := configured()
	big := serving(engine("big", 1000), "big")
	p.SetMembers([]replica.Replica{big}, start)
	p.Observe("big", load(start, 0, 0), start)
	fresh, _, _ := p.Candidates(&Query{Model: "big", Tokens: 4000}, start, nil, nil)
	first := fresh[0]
	now := answers(t, p, "big", 0.2, 4*time.Second, start)
	p.SetMembers([]replica.Replica{
		big, serving(engine("big2", 1000), "big"), serving(engine("small", 1000), "small"),
	}, now)
	p.Observe("big2", load(now, 0, 0), now)
	p.Observe("small", load(now, 0, 0), now)
	learned, _, _ := p.Candidates(&Query{Model: "big", Tokens: 4000}, now, nil, nil)
	other, _, _ := p.Candidates(&Query{Model: "small", Tokens: 4000}, now, nil, nil)
	if len(learned) != 2 || len(other) != 1 {
		t.Fatalf("%d and %d candidates", len(learned), len(other))
	}
	for _, c := range learned {
		if c.Step < 0.1 || c.Local.Warm < 2 {
			t.Errorf("%s: a step of %.3f s and a prefill of %.2f s, want about 0.2 and 4", c.member.R.ID, c.Step,
				c.Local.Warm)
		}
	}
	if got := other[0]; got.Step != first.Step || got.Local.Warm != first.Local.Warm {
		t.Errorf("a new model: step %g, prefill %g; an unknown engine has %g, %g", got.Step, got.Local.Warm,
			first.Step, first.Local.Warm)
	}
	if p.Prefills("small") != (estimate.Speed{}) || p.Prefills("big") == (estimate.Speed{}) {
		t.Error("the measured prefills of big count for small")
	}
	most := func(i int) *int { return &p.learned.of(p.members.All[i]).Also.most }
	if *most(0) = 7; *most(1) != 7 || *most(2) != 0 {
		t.Error("the number of sequences of big counts for small")
	}
}

// A replica of a large model is not slow beside one of a small model.
func TestALargeModelIsNotSlow(t *testing.T) {
	for _, alike := range []bool{false, true} {
		p, now := configured(), start
		small, large := serving(engine("s", 1000), "small"), serving(engine("l", 1000), "large")
		if alike { // one base under two names, as with adapters
			large.Facts.Root = small.Facts.Root
		}
		p.SetMembers([]replica.Replica{small, large}, start)
		p.Observe("s", load(start, 0, 0), start)
		p.Observe("l", load(start, 0, 0), start)
		for range 5 {
			now = answers(t, p, "small", 0.01, 100*time.Millisecond, now)
			now = answers(t, p, "large", 0.1, time.Second, now)
		}
		if cause, _ := p.Slow("l", false); (cause != "") != alike {
			t.Errorf("one base: %v; slow: %q", alike, cause)
		}
	}
}

// An engine that was restarted with another model does not keep its learned speed.
func TestAnotherModelAtTheSameAddress(t *testing.T) {
	p := configured()
	r := engine("d", 1000)
	r.URL = "http://d:8000"
	p.SetMembers([]replica.Replica{serving(r, "big")}, start)
	p.Observe("d", load(start, 0, 0), start)
	now := answers(t, p, "big", 0.2, 4*time.Second, start)
	p.SetMembers([]replica.Replica{serving(r, "small")}, now)
	p.Observe("d", load(now, 0, 0), now)
	c, _, _ := p.Candidates(&Query{Model: "small", Tokens: 4000}, now, nil, nil)
	if len(c) != 1 || c[0].Step > 0.05 || c[0].Local.Warm > 1 {
		t.Errorf("%d candidates, the first with a step of %g s and a prefill of %g s", len(c), c[0].Step,
			c[0].Local.Warm)
	}
}
