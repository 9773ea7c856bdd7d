package decode

import (
	"testing"
	"time"
)

// The streams of an unknown router count as delayed by a local prefill until such a router is certain. Then
// they do not: its requests that wait on prefill replicas are not visible either, and local prefills alone
// would bear the price.
func TestStreamsOfAnUnknownRouterDelayNobody(t *testing.T) {
	const theirs = 12
	p := pool(0)
	look := func(now time.Time) *Candidate {
		c, _, _ := p.Candidates(&Query{Model: "m", Tokens: 160, MaxTokens: 160}, now, nil, nil)
		if len(c) != 1 {
			t.Fatalf("%d candidates", len(c))
		}
		return &c[0]
	}
	q := &Query{Model: "m", Tokens: 160, MaxTokens: 160}
	own := p.Book(look(start), q, Schedule{AdmitAt: start, Local: true}, start)
	own.MarkSent(start)
	now := start
	for report := range 20 {
		now = now.Add(2 * time.Second)
		p.Observe("d1", load(now, 1+theirs, 0.1+float64(report)/1000), now)
		_, sure := p.Unseen("d1")
		want := 1.0
		if !sure && report > 0 { // one report alone may be wrong
			want += theirs
		}
		c := look(now)
		if report > 0 && c.Local.Active != want {
			t.Fatalf("after %d reports, sure %v: %g streams stand still, want %g",
				report+1, sure, c.Local.Active, want)
		}
		if report > 0 && c.Running != 1+theirs {
			t.Fatalf("after %d reports: %g requests run, want %d", report+1, c.Running, 1+theirs)
		}
	}
	if _, sure := p.Unseen("d1"); !sure {
		t.Fatal("20 reports did not show the unknown router")
	}
}
