package decode

import (
	"sync"
	"testing"
	"time"
)

// After how many pieces an engine counts as splitting prompts itself, and for how long.
const (
	finelyAfter = 4
	finelyFor   = 10 * time.Minute
)

// computeInPieces computes a prompt of 4,000 tokens, with these pauses of streams during each piece. It
// returns the number of pieces before the request itself.
func computeInPieces(t *testing.T, p *Pool, beside Pauses, now time.Time) (pieces int) {
	t.Helper()
	l, _ := alone(t, p, 4000, now)
	defer l.Release(now)
	for range 20 {
		if next := l.Next(now, nil); next.Upto == 4000 {
			if cuts := next.Whole == wholeFine; cuts != p.Status(now)[0].CutsPrompts {
				t.Errorf("behind %d pieces it is sent to its end since %q", pieces, next.Whole)
			}
			return pieces
		}
		now = now.Add(100 * time.Millisecond)
		l.Computed(true, -1, beside, now)
		pieces++
	}
	t.Fatal("it has no end")
	return 0
}

// An engine that needs several steps for each piece cuts prompts as finely itself. Such an engine gets
// prompts whole until pieces are tried again.
func TestAnEngineThatCutsPromptsItselfGetsThemWhole(t *testing.T) {
	for _, c := range []struct {
		name   string
		beside Pauses
		want   int
	}{
		{"one of its own", Pauses{Longest: 150 * time.Millisecond, Second: 30 * time.Millisecond}, 3},
		{"nobody can tell", Pauses{}, 3},
		{"two of its own", Pauses{Longest: 75 * time.Millisecond, Second: 60 * time.Millisecond}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := inPieces()
			defer stream1(t, p).Release(start)
			now := start
			for range 2 * finelyAfter {
				computeInPieces(t, p, c.beside, now)
				now = now.Add(time.Second)
			}
			if n := computeInPieces(t, p, c.beside, now); n != c.want {
				t.Errorf("%d pieces, want %d", n, c.want)
			}
			if cuts := p.Status(now)[0].CutsPrompts; cuts != (c.want == 0) {
				t.Errorf("its status says that it cuts prompts: %v", cuts)
			}
			if n := computeInPieces(t, p, c.beside, now.Add(finelyFor)); n != 3 {
				t.Errorf("%d pieces after %v, want 3", n, finelyFor)
			}
		})
	}
}

// A pause with another cause than the engine's steps teaches nothing about the steps.
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
		l.Computed(true, -1, Pauses{Longest: time.Second, Second: time.Second}, now)
	}
}

// If a step with a piece is hardly longer than a decode step, pauses cannot show whether the engine splits
// pieces. An engine that takes one step per piece does not count as splitting them.
func TestAPieceAsShortAsADecodeStepTellsNothingOfSteps(t *testing.T) {
	p := inPieces()
	s := p.settings
	s.Speed.D0 = 60e-3
	p.Configure(s)
	defer stream1(t, p).Release(start)
	now, beside := start, Pauses{Longest: 100 * time.Millisecond, Second: 60 * time.Millisecond}
	for range 2 * finelyAfter {
		if n := computeInPieces(t, p, beside, now); n != 3 {
			t.Fatalf("%d pieces, want 3", n)
		}
		now = now.Add(time.Second)
	}
}

// The times of a replica's stream events show its steps, with any number of streams and short steps.
func TestPausesBesideAPiece(t *testing.T) {
	p := inPieces()
	l, _ := alone(t, p, 4000, start)
	defer l.Release(start)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	pauses := func(longest, second int) Pauses {
		return Pauses{Longest: at(longest).Sub(start), Second: at(second).Sub(start)}
	}
	if got := l.Watch(start).End(at(100)); got != (Pauses{}) {
		t.Errorf("%+v where nobody streams", got)
	}
	var streams []*Lease
	for range 8 {
		streams = append(streams, stream1(t, p))
		streams[len(streams)-1].Streamed(start)
	}
	step := func(ms int) {
		var all sync.WaitGroup
		for _, s := range streams {
			all.Go(func() { s.Streamed(at(ms)) })
		}
		all.Wait()
	}
	for name, c := range map[string]struct {
		steps []int
		want  Pauses
	}{
		"nothing came":     {nil, Pauses{}},
		"one of its own":   {[]int{8, 18, 28, 178, 188, 198}, pauses(150, 10)},
		"told behind it":   {[]int{10}, pauses(190, 10)},
		"several":          {[]int{10, 80, 150}, pauses(70, 70)},
		"read out of turn": {[]int{10, 5, 160}, pauses(150, 40)},
	} {
		w := l.Watch(start)
		for _, ms := range c.steps {
			step(ms)
		}
		if got := w.End(at(200)); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	first, second := l.Watch(start), l.Watch(start)
	step(100)
	if a, b := first.End(at(200)), second.End(at(200)); a != (Pauses{}) || b != (Pauses{}) {
		t.Errorf("%+v and %+v of two at once", a, b)
	}
	for _, s := range streams {
		s.Release(start)
		s.Release(start)
		s.Streamed(start) // read before, told late
	}
	if n := l.member.beside.Underway(); n != 0 {
		t.Errorf("%d streams are left", n)
	}
}
