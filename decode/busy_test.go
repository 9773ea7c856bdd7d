package decode

import (
	"math"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// The speed of a replica is learned although the replica always has a prompt to compute. Prompts behind
// others are the usual case on a busy replica, and an overestimated speed would attract more prompts.
func TestLocalPrefillsBehindOthersTeach(t *testing.T) {
	p := pool(0.1)
	q := &Query{Model: "m", Tokens: 2000, MaxTokens: 16}
	send := func(now time.Time) *Lease {
		c, _, _ := p.Candidates(q, now, nil, nil)
		if len(c) != 1 {
			t.Fatalf("%d candidates", len(c))
		}
		l := p.Book(&c[0], q, Schedule{Local: true}, now)
		l.MarkSent(now)
		return l
	}
	truth := 4 * estimate.DefaultSpeed().Prefill(q.Tokens, 0)
	predicted := func() float64 { return p.learned.speed(p.members.All[0]).Prefill(q.Tokens, 0) }
	if before := predicted(); before > truth/3 {
		t.Fatalf("a prompt is predicted to take %g s before anything was learned", before)
	}
	now := start
	ahead := []*Lease{send(now), send(now)}
	for range 40 {
		now = now.Add(seconds(truth))
		ahead = append(ahead, send(now))
		first := ahead[0]
		ahead = ahead[1:]
		first.FirstToken(now)
		first.Finish(16, 16*7*time.Millisecond, now)
		p.Observe("d1", load(now, 2, 0.1), now)
	}
	if after := predicted(); math.Abs(after/truth-1) > 0.2 {
		t.Errorf("a prompt is predicted to take %g s, want %g", after, truth)
	}
}

// Nothing is learned from a prompt that was given up, or whose first token cannot be observed: its time is
// unknown.
func TestWhatWasGivenUpTeachesNothing(t *testing.T) {
	p := pool(0.1)
	q := &Query{Model: "m", Tokens: 2000, MaxTokens: 16}
	now := start
	for i := range 20 {
		var leases []*Lease
		for range 2 {
			c, _, _ := p.Candidates(q, now, nil, nil)
			l := p.Book(&c[0], q, Schedule{Local: true}, now)
			l.MarkSent(now)
			leases = append(leases, l)
		}
		now = now.Add(5 * time.Second)
		if i%2 == 0 {
			leases[0].Release(now)
			leases[1].FirstToken(now)
		} else {
			leases[0].FirstToken(now)
			leases[1].Release(now)
		}
		for _, l := range leases {
			l.Release(now)
		}
		p.Observe("d1", load(now, 0, 0.1), now)
	}
	if n := p.members.All[0].learned.Fit.Samples(); n != 0 {
		t.Errorf("%d samples were learned from", n)
	}
}

// If answers of one length begin together, nearly all of their growth is in use at once. If each answer ends
// as another grows, next to none is. Learned lengths are not exact, so that neither extreme is reached.
func TestGrowthAtOnce(t *testing.T) {
	const each = 1600
	at := func(ages func(i int) int) float64 {
		p := configured()
		p.Configure(Settings{LoadTTL: usualTTL, ExpectedOutput: each, Speed: estimate.Speed{D0: 0.01}})
		r := engine("d1", 100_000)
		p.SetMembers([]replica.Replica{r}, start)
		p.Observe("d1", load(start, 0, 0), start)
		for range 4000 {
			p.learned.lengths.All().Learn(0, each)
			p.learned.lengths.OfModel("m", true).Learn(0, each)
		}
		end := start.Add(16 * time.Second)
		n := 0
		for i := range 100 {
			q := &Query{Model: "m", Tokens: 160}
			sent := end.Add(-time.Duration(ages(i)) * 10 * time.Millisecond)
			c, _, _ := p.Candidates(q, sent, nil, nil)
			l := p.Book(&c[0], q, Schedule{AdmitAt: sent}, sent)
			l.MarkSent(sent)
			l.FirstToken(sent)
			n++
		}
		p.Observe("d1", load(end.Add(time.Second), n, 0.05), end.Add(time.Second))
		return p.members.All[0].atOnce.share
	}
	together, spread := at(func(int) int { return 0 }), at(func(i int) int { return 15 * i })
	if together < 0.6 || spread > 0.4 {
		t.Errorf("of answers that began together %.2f of the growth is in use at once, want most; "+
			"of answers of every age %.2f, want little", together, spread)
	}
}
