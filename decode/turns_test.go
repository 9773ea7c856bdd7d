package decode

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
)

// cutsItself is inPieces whose replica is known to split prompts into steps as small as pieces.
func cutsItself() *Pool {
	p := inPieces()
	for range finelyAfter {
		s := estimate.Sample{Of: estimate.PauseShare, At: start, Range: estimate.Exactly(1)}
		p.learned.of(p.members.All[0]).Learn(&p.members.All[0].learned, s)
	}
	return p
}

// An engine that cuts prompts itself idles from its answer until the next prompt arrives, unless the next
// prompt was sent before.
func TestWhoCutsPromptsGetsTheNextInTime(t *testing.T) {
	p := cutsItself()
	defer stream1(t, p).Release(start)
	first, _ := alone(t, p, 10_000, start) // takes a second
	if got := first.Next(start, nil).Upto; got != 10_000 {
		t.Fatalf("%d tokens of a prompt are sent to who cuts it itself", got)
	}
	second, _ := alone(t, p, 12_000, start)
	next := second.Next(start, nil)
	if next.Upto != 0 || next.Ask < 850*time.Millisecond || next.Ask > 950*time.Millisecond {
		t.Fatalf("the second prompt gets %+v, want it to wait until a piece of the first is left", next)
	}
	now := start.Add(next.Ask)
	if got := second.Next(now, nil); got.Upto != 12_000 {
		t.Fatalf("the second prompt gets %+v when a piece of the first is left", got)
	}
	third, _ := alone(t, p, 14_000, now)
	if got := third.Next(now, nil); got.Upto != 0 || got.Ask != time.Second {
		t.Errorf("the third prompt gets %+v beside both", got)
	}
	// The first takes longer than it should: the second begins when it is done.
	now = now.Add(time.Second)
	first.MarkSent(now)
	first.FirstToken(now)
	if got := third.Next(now, nil); got.Upto != 0 || got.Ask < 900*time.Millisecond {
		t.Errorf("the third prompt gets %+v when the second has just begun", got)
	}
	if got := third.Next(now.Add(1150*time.Millisecond), nil); got.Upto != 14_000 {
		t.Errorf("the third prompt gets %+v when a piece of the second is left", got)
	}
	for _, l := range []*Lease{first, second, third} {
		l.Release(now)
	}
}

// Short prompts behind a late long prompt have not had their time before it is done. So the engine has at
// most one piece and one prompt.
func TestWhoStandsBehindALongPromptHasNotHadItsTime(t *testing.T) {
	p := cutsItself()
	defer stream1(t, p).Release(start)
	first, _ := alone(t, p, 10_000, start) // takes a second
	defer first.Release(start)
	first.Next(start, nil)
	given := 0
	for after := 900 * time.Millisecond; after < 1200*time.Millisecond; after += 5 * time.Millisecond {
		now := start.Add(after)
		l, _ := alone(t, p, 200, now) // for 20 ms
		defer l.Release(now)
		if l.Next(now, nil).Upto == 0 {
			l.Release(now)
			continue
		}
		given++
	}
	if given > 8 {
		t.Errorf("the engine got %d prompts of 20 ms behind one that it still computes, want those for 0.1 s",
			given)
	}
}
