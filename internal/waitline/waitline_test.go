package waitline

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// slow is the line as one would write it down: everybody is looked at each time.
type slow []Wait

func (s slow) backlog() (sum time.Duration) {
	known := 0
	for _, w := range s {
		if w.Every > 0 {
			known++
			sum += w.Every
		}
	}
	if known == 0 {
		return 0
	}
	return sum / time.Duration(known) * time.Duration(len(s))
}

func (s slow) order() []uint64 {
	sorted := slices.Clone(s)
	if s.backlog() > 4*time.Second {
		slices.SortFunc(sorted, func(a, b Wait) int {
			return cmp.Or(cmp.Compare(a.Room-a.Came, b.Room-b.Came), cmp.Compare(b.Number, a.Number))
		})
	} else {
		slices.SortFunc(sorted, func(a, b Wait) int {
			return cmp.Or(cmp.Compare(a.Came+a.Room, b.Came+b.Room), cmp.Compare(a.Number, b.Number))
		})
	}
	numbers := make([]uint64, len(sorted))
	for i, w := range sorted {
		numbers[i] = w.Number
	}
	return numbers
}

// Whoever comes, goes and tries again, the order is that of the slow one, which looks at everybody.
func TestOrderIsThatOfALookAtEverybody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Line[uint64]
		var twin slow
		var places []*Place[uint64]
		for number := range uint64(rapid.IntRange(1, 60).Draw(t, "steps")) {
			if len(places) > 0 && rapid.IntRange(0, 2).Draw(t, "leaves") == 0 {
				i := rapid.IntRange(0, len(places)-1).Draw(t, "who")
				l.Remove(places[i])
				places, twin = slices.Delete(places, i, i+1), slices.Delete(twin, i, i+1)
			}
			w := Wait{
				Came:   time.Duration(rapid.IntRange(0, 20).Draw(t, "came")) * time.Second,
				Number: number + 1,
				Room:   time.Duration(rapid.IntRange(0, 5).Draw(t, "room")) * time.Second,
				Every:  time.Duration(rapid.IntRange(0, 600).Draw(t, "every")) * time.Millisecond,
			}
			places, twin = append(places, l.Push(w.Number, w)), append(twin, w)

			var got []uint64
			for _, p := range l.All(view{}) {
				got = append(got, p.Who)
			}
			if first := l.First(view{}).Who; first != got[0] {
				t.Fatalf("%d is first, want %d", first, got[0])
			}
			if want := twin.order(); !slices.Equal(got, want) || l.Backlog() != twin.backlog() {
				t.Fatalf("order %v with %v to go, want %v with %v", got, l.Backlog(), want, twin.backlog())
			}
		}
	})
}

// As soon as the backlog cannot find room in time, the newest come first. When enough have gone, the request
// that has waited longest is first again.
func TestNewestFirstWhileMoreWaitsThanFindsRoomInTime(t *testing.T) {
	var l Line[int]
	var places []*Place[int]
	for i := range 5 {
		places = append(places, l.Push(i, Wait{
			Came: time.Duration(i) * time.Second, Number: uint64(i), Every: time.Second,
		}))
		if first, want := l.First(view{}).Who, 0; i < 4 && first != want {
			t.Fatalf("with %d waiting %d is first, want %d", i+1, first, want)
		}
	}
	if first := l.First(view{}).Who; first != 4 {
		t.Fatalf("with 5 s of waiting requests %d is first, want the newest, 4", first)
	}
	l.Remove(places[4])
	if l.First(view{}).Who != 0 {
		t.Fatalf("when 4 s are left %d is first, want 0", l.First(view{}).Who)
	}
}

// One that tries again where the order is another without it: that costs no sorting, which took 21 ms with
// 10,000 waiting.
func BenchmarkAtTheBound(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var l Line[int]
			every := late / time.Duration(n-1) * 999_999 / 1_000_000 // so many but one are not too many
			var places []*Place[int]
			for i := range n {
				w := Wait{Came: time.Duration(i) * time.Millisecond, Number: uint64(i), Every: every}
				w.Room = time.Duration(i*7919%1000) * time.Millisecond
				places = append(places, l.Push(i, w))
			}
			i := 0
			for b.Loop() {
				at := (i * 31) % n
				i++
				w := places[at].wait
				l.Remove(places[at])
				places[at] = l.Push(at, w)
			}
		})
	}
}
