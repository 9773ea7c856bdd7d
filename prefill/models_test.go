package prefill

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

// What is learned of one model holds for its replicas alone: the speed of a new replica, the usual request,
// and which replica is slow.
func TestAModelIsLearnedByItself(t *testing.T) {
	p, now := configured(), start
	ask := func(model string) []Candidate {
		c, _ := p.Candidates(&Query{Model: model, Tokens: 8000}, now, nil, nil)
		return c
	}
	big, small := serving(engine("b1"), "big"), serving(engine("s1"), "small")
	p.SetMembers([]replica.Replica{small}, start)
	unknown := ask("small")[0].Warm
	p.SetMembers([]replica.Replica{big, small}, start)
	for range 40 {
		l := p.Book(&ask("big")[0], now)
		now = now.Add(20 * time.Second)
		l.Done(0, 20*time.Second, now)
		now = now.Add(time.Second)
	}
	near(t, "a new model", ask("small")[0].Warm, unknown, 1e-9)
	if got := p.learned.of(p.members.All[1]).Also.seconds; got != 0 {
		t.Errorf("a usual request of a new model takes %g s", got)
	}
	p.SetMembers([]replica.Replica{big, small, serving(engine("b2"), "big")}, now)
	near(t, "a new replica of big", ask("big")[1].Warm, 20, 0.5)
	if p.Prefills("small") != (estimate.Speed{}) || p.Prefills("big") == (estimate.Speed{}) {
		t.Error("the measured prefills of big count for small")
	}
	for range 40 {
		l := p.Book(&ask("small")[0], now)
		now = now.Add(500 * time.Millisecond)
		l.Done(0, 500*time.Millisecond, now)
		now = now.Add(time.Second)
	}
	if cause, _ := p.Slow("b1", false); cause != "" {
		t.Errorf("a replica of big is slow beside one of small: %s", cause)
	}
}
