package prefill

import (
	"testing"
	"time"
)

// A replica whose first prompt should have been done long ago stands still (its core hangs, or its KV is full
// of blocks that nobody reads). It must not count as one without a queue.
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

// Predictions are wrong by some, and whoever goes on is forgiven at once.
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
