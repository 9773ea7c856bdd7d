package decode

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// drafting is a pool whose member uses speculative decoding, by its facts.
func drafting(facts int) *Pool {
	p := pool(0.5)
	e := engine("d1", 1000)
	e.Facts.Drafts = facts
	p.SetMembers([]replica.Replica{e}, start)
	return p
}

// The slots ahead of a sequence's tokens take room. They are booked with the answer, and are not counted
// twice when the engine reports them.
func TestSlotsOfDraftsAreBooked(t *testing.T) {
	plain := pool(0.5)
	one := book(t, plain, 100, start, start)
	before := free(plain, start)
	nearlyDone := start.Add(time.Second)
	one.MarkSent(start)
	one.FirstToken(start)
	generating(plain, 150, time.Second)
	plain.Observe("d1", load(nearlyDone, 1, 0.6+10.0/1000), nearlyDone)
	for _, drafts := range []int{1, 4, 8, 16} {
		p := drafting(drafts)
		l := book(t, p, 100, start, start)
		ahead := blocksOf(2*drafts, 16)
		if got := before - free(p, start); got < ahead-1 || got > ahead {
			t.Errorf("%d drafts: %d blocks more than without, want about %d", drafts, got, ahead)
		}
		l.MarkSent(start)
		l.FirstToken(start)
		at := nearlyDone
		generating(p, 150, time.Second)
		// It has the prompt, most of the answer and the slots ahead.
		p.Observe("d1", load(at, 1, 0.6+float64(10+ahead)/1000), at)
		if got, want := free(p, at), free(plain, at)-ahead; got > want || got < want-1 {
			t.Errorf("%d drafts, nearly done: %d free, want %d or one less", drafts, got, want)
		}
		l.Release(at.Add(time.Second))
		at = at.Add(2 * time.Second)
		p.Observe("d1", load(at, 0, 0.5), at)
		if got := free(p, at); got != 500 {
			t.Errorf("%d drafts: %d free at the end, want 500", drafts, got)
		}
	}
}

// The engine's counter of drafts goes before the configured number. A report without the counter leaves the
// counted number in force.
func TestDraftsAsCounted(t *testing.T) {
	p := drafting(2)
	at := start
	for _, c := range []struct{ told, want int }{{0, 2}, {5, 5}, {0, 5}, {3, 3}} {
		at = at.Add(time.Second)
		l := load(at, 0, 0.5)
		l.Drafts = c.told
		p.Observe("d1", l, at)
		m, _ := p.members.Find("d1")
		if got := m.cache().drafts(); got != c.want {
			t.Errorf("told %d: %d drafts, want %d", c.told, got, c.want)
		}
	}
}

// No slot lies beyond the longest sequence.
func TestSlotsEndAtTheLongest(t *testing.T) {
	p := configured()
	p.SetMembers([]replica.Replica{{ID: "d1", Facts: replica.Facts{MaxModelLen: 100, Drafts: 10}}}, start)
	m, _ := p.members.Find("d1")
	for tokens, want := range map[int]int{50: 70, 85: 100, 100: 100, 120: 120} {
		if got := m.cache().slots(tokens); got != want {
			t.Errorf("%d tokens hold %d slots, want %d", tokens, got, want)
		}
	}
}
