package kvevents

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

func TestLags(t *testing.T) {
	applied := time.Unix(1000, 0)
	s := &stream{}
	take := func(received, at time.Time) {
		s.batch = kv.Batch{At: at}
		s.lags(message{received: received}, applied)
	}
	ago := func(d time.Duration) time.Time { return applied.Add(-d) }
	take(time.Time{}, ago(time.Hour))                    // from a replay: not counted
	take(ago(time.Millisecond), ago(3*time.Millisecond)) // a normal batch
	take(ago(200*time.Millisecond), ago(90*time.Second)) // waited for a replay; the clocks differ too
	take(ago(40*time.Microsecond), ago(-20*time.Second)) // the clock of the engine is ahead
	take(ago(40*time.Microsecond), time.Time{})          // a batch without a time
	a, b := s.stats.Applying, s.stats.Behind
	if a.Count != 4 || a.Sum != 201*time.Millisecond+80*time.Microsecond || a.Last != 40*time.Microsecond {
		t.Errorf("got applying %+v, want 4 batches in 201.08ms, the last in 40µs", a)
	}
	if b.Count != 3 || b.Sum != 90*time.Second+3*time.Millisecond || b.Last != 0 ||
		s.stats.Skewed != 1 || s.stats.Apart != -20*time.Second-40*time.Microsecond {
		t.Errorf("got behind %+v, skewed %d, apart %v; want 3 batches in 90.003s, 1, -20.00004s",
			b, s.stats.Skewed, s.stats.Apart)
	}
	buckets := a.Buckets()
	if buckets[0.00005] != 2 || buckets[0.001] != 3 || buckets[0.1] != 3 || buckets[0.5] != 4 ||
		buckets[60] != 4 {
		t.Errorf("got buckets %v of applying, want 2 to 50µs, 3 to 0.1s, 4 to 0.5s and above", buckets)
	}
	if b.Buckets()[60] != 2 { // the third batch exceeds all limits and is only in Count
		t.Errorf("got buckets %v of behind, want 2 to 60s", b.Buckets())
	}
	var last uint64
	for _, bound := range slices.Sorted(maps.Keys(buckets)) {
		if buckets[bound] < last {
			t.Errorf("got buckets %v, want cumulative counts", buckets)
		}
		last = buckets[bound]
	}
}

// TestFollowLag counts each live batch once and no replayed batch.
func TestFollowLag(t *testing.T) {
	e := newEngine(t, PublisherOptions{})
	e.publish(5)
	f, r, _ := follow(t, e.source(), audited())
	r.through(t, 0, 4)
	if s := f.Stats(); s.Applying.Count+s.Behind.Count != 0 {
		t.Errorf("got stats %+v, want no replayed batch in them", s)
	}
	e.publish(1) // arrives live, or with the next audit
	r.through(t, 0, 5)
	// Stats are updated shortly after the sink is called.
	waitStats(t, f, "six batches", func(s Stats) bool { return s.Batches == 6 })
	before := f.Stats().Applying.Count
	e.publish(40)
	r.through(t, 0, 45)
	waitStats(t, f, "forty live batches",
		func(s Stats) bool { return s.Applying.Count == before+40 && s.Behind.Count == s.Applying.Count })
	s := f.Stats()
	if s.Behind.Last < 0 || s.Behind.Last > 10*time.Second ||
		s.Applying.Sum > s.Behind.Sum+time.Millisecond ||
		s.Skewed > 0 {
		t.Errorf("got lag %v, applying %v, behind %v, skewed %d; want a lag to 10s, applying within behind, 0",
			s.Behind.Last, s.Applying.Sum, s.Behind.Sum, s.Skewed)
	}
}
