package decode

import (
	"testing"
	"time"
)

// local books prompts with these numbers of blocks, one after the other. The replica prefills them itself.
func local(t *testing.T, p *Pool, blocks int, schedule Schedule, now time.Time) *Lease {
	t.Helper()
	q := &Query{Model: "m", Tokens: blocks * 16, MaxTokens: 16}
	c, _, _ := p.Candidates(q, now, nil, nil)
	if len(c) == 0 {
		t.Fatal("no candidate")
	}
	schedule.Local, schedule.AdmitAt = true, now
	l := p.Book(&c[0], q, schedule, now)
	l.MarkSent(now)
	return l
}

func waitThere(p *Pool, now time.Time) time.Duration {
	c, _, _ := p.Candidates(&Query{Model: "m", Tokens: 16, MaxTokens: 16}, now, nil, nil)
	return seconds(c[0].Local.Wait)
}

func TestLocalPrefillsWaitInTurn(t *testing.T) {
	p := pool(0)
	first, second := local(t, p, 400, Schedule{}, start), local(t, p, 100, Schedule{}, start)
	whole := first.pieces.Predicted + second.pieces.Predicted
	now := start
	for _, step := range []struct {
		name string
		does func()
		want time.Duration
	}{
		{"both booked", func() {}, whole},
		{
			"half of the first", func() { now = now.Add(first.pieces.Predicted / 2) },
			whole - first.pieces.Predicted/2,
		},
		{
			"the first takes longer than predicted", func() { now = now.Add(3 * first.pieces.Predicted) },
			second.pieces.Predicted,
		},
		{"the first is done", func() { first.FirstToken(now) }, second.pieces.Predicted},
		{
			"half of the second", func() { now = now.Add(second.pieces.Predicted / 2) },
			second.pieces.Predicted - second.pieces.Predicted/2,
		},
		{"its client goes away", func() { second.Release(now) }, 0},
	} {
		step.does()
		if got := waitThere(p, now); (got - step.want).Abs() > time.Microsecond {
			t.Errorf("%s: %v to wait, want %v", step.name, got, step.want)
		}
	}
}

// The error of a prediction ends with its prompt. Otherwise a replica that is faster than predicted would
// seem busier with each prompt.
func TestWrongPredictionsAreNotCarriedOn(t *testing.T) {
	p := pool(0)
	now := start
	for range 100 {
		l := local(t, p, 400, Schedule{}, now)
		now = now.Add(l.pieces.Predicted / 2)
		l.FirstToken(now)
		if got := waitThere(p, now); got != 0 {
			t.Fatalf("%v to wait where nobody is", got)
		}
		l.Release(now)
	}
}

// A prompt whose first token is not reported counts as computed after twice its predicted time.
func TestPrefillsWhoseFirstTokenNobodyTellsEnd(t *testing.T) {
	p := pool(0)
	l := local(t, p, 400, Schedule{UnseenArrival: time.Second}, start)
	for _, step := range []struct {
		after time.Duration
		waits bool
	}{{1900 * time.Millisecond, true}, {2100 * time.Millisecond, false}} {
		now := start.Add(step.after)
		p.Observe("d1", load(now, 1, 0.4), now)
		if got := p.members.All[0].local.turns.Work() > 0; got != step.waits {
			t.Errorf("after %v: waits %v, want %v", step.after, got, step.waits)
		}
	}
	l.Release(start.Add(3 * time.Second))
}

// An engine takes blocks as it computes. A report in the middle of a prompt does not show the blocks of the
// rest.
func TestAPromptThatIsBeingComputedStaysPromised(t *testing.T) {
	p := pool(0)
	l := local(t, p, 400, Schedule{}, start)
	now := start.Add(time.Second)
	p.Observe("d1", load(now, 1, 0.1), now)
	if got, most := free(p, now), 1000-l.entry.Whole(); got > most {
		t.Errorf("a quarter of it is there: %d free, want at most %d", got, most)
	}
	l.FirstToken(now)
	now = now.Add(time.Second)
	p.Observe("d1", load(now, 1, 0.4), now)
	if got := free(p, now); got < 600-l.entry.Growth()-1 || got > 600 {
		t.Errorf("all of it is there: %d free, want 600 less its growth", got)
	}
}
