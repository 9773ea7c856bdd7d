package decode

import (
	"sync"
	"testing"
	"time"
)

// computeInPieces lets a prompt of 4,000 tokens be computed, whose engine makes so many steps in each piece,
// and returns how many pieces there were before the request itself.
func computeInPieces(t *testing.T, p *Pool, steps float64, now time.Time) (pieces int) {
	t.Helper()
	l, _ := alone(t, p, 4000, now)
	defer l.Release(now)
	for range 20 {
		if l.Next(now, nil).Upto == 4000 {
			return pieces
		}
		now = now.Add(100 * time.Millisecond)
		l.Computed(true, -1, steps, now)
		pieces++
	}
	t.Fatal("it has no end")
	return 0
}

// An engine that makes several steps of each piece cuts prompts as finely itself: they go to it whole, until
// pieces are tried again.
func TestAnEngineThatCutsPromptsItselfGetsThemWhole(t *testing.T) {
	for _, c := range []struct {
		name  string
		steps float64
		want  int
	}{
		{"a step of its own, and one that was under way", 2, 3},
		{"nobody can tell", 0, 3},
		{"two of its own", 3, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := inPieces()
			defer stream1(t, p).Release(start)
			now := start
			for range 2 * finelyAfter {
				computeInPieces(t, p, c.steps, now)
				now = now.Add(time.Second)
			}
			if n := computeInPieces(t, p, c.steps, now); n != c.want {
				t.Errorf("%d pieces, want %d", n, c.want)
			}
			if n := computeInPieces(t, p, c.steps, now.Add(finelyFor)); n != 3 {
				t.Errorf("%d pieces after %v, want 3", n, finelyFor)
			}
		})
	}
}

// What waited for something else than the engine's steps tells nothing of them.
func TestAPieceThatWaitedTellsNothingOfSteps(t *testing.T) {
	p := inPieces()
	defer stream1(t, p).Release(start)
	l, _ := alone(t, p, 20_000, start)
	defer l.Release(start)
	now := start
	for range 2 * finelyAfter {
		if l.Next(now, nil).Upto == 20_000 {
			t.Fatal("it goes whole")
		}
		now = now.Add(time.Second) // ten times as long as predicted
		l.Computed(true, -1, 50, now)
	}
}

// The steps of an engine are told by the events of its streams, however many there are.
func TestStepsByWhatStreamsGet(t *testing.T) {
	p := inPieces()
	l, _ := alone(t, p, 4000, start)
	defer l.Release(start)
	before := l.Beside()
	if n := l.Beside().Since(before); n != 0 {
		t.Errorf("%v steps where nobody streams", n)
	}
	var streams []*Lease
	for range 8 {
		streams = append(streams, stream1(t, p))
		streams[len(streams)-1].Streamed(1)
	}
	before = l.Beside()
	var all sync.WaitGroup
	for _, s := range streams {
		all.Go(func() {
			for range 3 {
				s.Streamed(1)
			}
		})
	}
	all.Wait()
	if n := l.Beside().Since(before); n != 3 {
		t.Errorf("%v steps, want 3", n)
	}
	for _, s := range streams {
		s.Release(start)
		s.Release(start)
		s.Streamed(1) // read before, told late
	}
	if b := l.Beside(); b.Streams != 0 {
		t.Errorf("%d streams are left", b.Streams)
	}
}
