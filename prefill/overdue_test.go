package prefill

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A replica whose first prompt should have been done long ago stands still: its core hangs, or its KV is
// full of blocks that nobody reads. It must not count as a replica without a queue.
func TestReplicaWhoseFirstPromptIsLongOverdueIsNotIdle(t *testing.T) {
	p := newPool("p1", "p2")
	now := start
	c := p.ask(8000, now)
	stuck := p.Book(&c[0], now) // never answered
	defer stuck.Release(now)
	now = now.Add(30 * time.Second) // predicted: a fifth of a second
	p.Observe("p1", load(now, 1, 0, 0.1), now)
	p.Observe("p2", load(now, 1, 0, 0.1), now)
	c = p.ask(8000, now)
	busy := p.Book(&c[1], now) // p2 is at work on one prompt
	defer busy.Release(now)
	c = p.ask(8000, now)
	if c[0].Wait < c[1].Wait {
		t.Errorf("p1 has not answered for 30 s and is taken to be free in %.2f s; p2, which answers, in %.2f s",
			c[0].Wait, c[1].Wait)
	}
}

// Predictions may be somewhat wrong. A replica that continues counts as healthy at once.
func TestOverdueIsMoreThanAnErrorOfThePrediction(t *testing.T) {
	p := newPool("p1")
	now := start
	first := p.Book(&p.ask(8000, now)[0], now)
	work := first.work
	for _, late := range []time.Duration{0, work / 2, 999 * time.Millisecond} {
		if got := p.ask(8000, now.Add(work+late))[0].Wait; got != 0 {
			t.Errorf("late by %v: free in %.3f s, want at once", late, got)
		}
	}
	now = now.Add(work + 3*time.Second)
	if got := p.ask(8000, now)[0].Wait; got < 2.99 || got > 3.01 {
		t.Errorf("late by 3 s: free in %.3f s, want 3", got)
	}
	second := p.Book(&p.ask(8000, now)[0], now)
	if got := p.ask(8000, now)[0].Wait; got < 3.01+work.Seconds()/2 {
		t.Errorf("one behind another that is late by 3 s: free in %.3f s", got)
	}
	first.Release(now)
	if got := p.ask(8000, now)[0].Wait; got > work.Seconds()+0.01 {
		t.Errorf("the late one is done: free in %.3f s, want %.3f of the second alone", got, work.Seconds())
	}
	second.Release(now)
}

// The engine does not answer the first prompt, but answers the other prompts in time: it works. A prompt may
// be delayed by its grammar, by blocks from another replica, by priorities, or by a lost answer.
func TestReplicaThatAnswersOthersDoesNotStandStill(t *testing.T) {
	p := newPool("p1")
	now := start
	stuck := p.Book(&p.ask(8000, now)[0], now)
	defer stuck.Release(now)
	for range 100 {
		c := p.ask(8000, now)
		l := p.Book(&c[0], now)
		took := l.work
		now = now.Add(took)
		l.Done(0, took, now)
	}
	if got := p.ask(8000, now)[0].Wait; got > 1 {
		t.Errorf("100 prompts were answered in time in %v; taken to be free in %.1f s", now.Sub(start), got)
	}
}

// The prompt of one router hangs, and the replica answers the prompt of another router: both know that it
// works.
func TestRoutersTellEachOtherWhoAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := newPool("p1"), newPool("p1")
		now := start
		stuck := a.Book(&a.ask(8000, now)[0], now)
		defer stuck.Release(now)
		for range rapid.IntRange(5, 20).Draw(t, "answers") {
			l := b.Book(&b.ask(8000, now)[0], now)
			took := l.work
			now = now.Add(took)
			l.Done(0, took, now)
		}
		tell(t, a, "a", b, now)
		tell(t, b, "b", a, now)
		for name, p := range map[string]*Pool{"whose prompt hangs": a, "that gets answers": b} {
			if got := p.ask(8000, now)[0].Wait; got > 1 {
				t.Errorf("to the router %s it seems free in %.1f s", name, got)
			}
		}
		now = now.Add(10 * time.Second)
		for name, p := range map[string]*Pool{"whose prompt hangs": a, "that got answers": b} {
			if got := p.ask(8000, now)[0].Wait; got < 9 {
				t.Errorf("nobody is answered for 10 s, and to the router %s it seems free in %.1f s", name, got)
			}
		}
	})
}
