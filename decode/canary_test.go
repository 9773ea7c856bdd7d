package decode

import (
	"testing"
	"time"
)

// The ledger counts a canary's blocks from its sending, even if the replica has no room.
func TestCanariesTakeRoom(t *testing.T) {
	for _, c := range []struct {
		usage                  float64
		before, during, behind int
	}{
		{0.5, 500, 489, 500}, // 165 + 8 tokens are 11 blocks
		{0.995, 5, 0, 5},
	} {
		p := pool(c.usage)
		if got := free(p, start); got != c.before {
			t.Fatalf("%d free, want %d", got, c.before)
		}
		l := p.BookCanary("d1", 165, 8, start)
		if got := free(p, start); got != c.during {
			t.Errorf("with a canary: %d free, want %d", got, c.during)
		}
		l.Release(start.Add(time.Second))
		if got := free(p, start.Add(time.Second)); got != c.behind {
			t.Errorf("after it: %d free, want %d", got, c.behind)
		}
	}
}

// A report that includes a canary is not charged with the canary again. No other request is taken for the
// canary.
func TestReportsIncludeCanaries(t *testing.T) {
	p := pool(0.5)
	canary := p.BookCanary("d1", 165, 8, start)
	at := start.Add(time.Second)
	p.Observe("d1", load(at, 1, 0.511), at)
	if got := free(p, at); got != 489 {
		t.Errorf("%d free, want the 489 of the report", got)
	}
	l := book(t, p, 100, at, at)
	l.MarkSent(at)
	need := 489 - free(p, at)
	at = at.Add(time.Second)
	p.Observe("d1", load(at, 1, 0.511), at) // it does not run yet
	if got := free(p, at); got != 489-need {
		t.Errorf("%d free beside a request that the report lacks, want %d", got, 489-need)
	}
	canary.Release(at.Add(time.Second))
	if got := free(p, at.Add(time.Second)); got != 500-need {
		t.Errorf("%d free when the canary ended, want %d", got, 500-need)
	}
	l.Release(at.Add(time.Second))
}

// A canary teaches nothing about the length of answers. A canary on a replica outside the pool gets no
// lease.
func TestCanariesTeachNothing(t *testing.T) {
	p := pool(0.5)
	before := p.learned.lengths.All().Rest(0, -1)
	for range 100 {
		l := p.BookCanary("d1", 165, 8, start)
		p.Observe("d1", load(start.Add(time.Second), 1, 0.5), start.Add(time.Second))
		l.Release(start.Add(2 * time.Second))
	}
	if got := p.learned.lengths.All().Rest(0, -1); got != before {
		t.Errorf("answers are expected to have %d tokens, %d before", got, before)
	}
	if l := p.BookCanary("d9", 165, 8, start); l != nil {
		t.Errorf("a lease of nobody: %+v", l)
	}
}
