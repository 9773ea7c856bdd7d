package waitline

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// hall plays a queue by itself: each request needs so much room of one that all share.
type hall struct {
	q     Queue[int]
	needs []int // by request
	room  int
	era   int // grows when requests move to other places
}

// at is the place where a request belongs now.
func (h *hall) at(who int) uint64 { return uint64(who+h.era) % 3 }

// come lets a request come, as callers of the queue do.
func (h *hall) come(t *rapid.T, needs int, every time.Duration) {
	who := len(h.needs)
	place := h.at(who)
	h.needs = append(h.needs, needs)
	wait, seen := h.q.Enter(place)
	n := Newcomer[int]{Who: who, Came: time.Duration(who) * time.Millisecond, Place: place}
	if !wait {
		if h.take(who) {
			return
		}
		n.Seen, n.Found = seen, h.found(who, every)
	}
	if _, err := h.q.Join(&n); err != nil {
		t.Fatal(err)
	}
	h.play(t, every)
}

func (h *hall) take(who int) bool {
	if h.needs[who] > h.room {
		return false
	}
	h.room -= h.needs[who]
	return true
}

func (h *hall) found(who int, every time.Duration) Found {
	if h.needs[who] > 20 {
		return Found{Aside: true}
	}
	return Found{Room: time.Duration(who*7%5) * time.Second, Every: every}
}

// play lets those try that may, until there is none. A queue that never came to rest would fail here.
func (h *hall) play(t *rapid.T, every time.Duration) {
	for range 10_000 {
		w := h.q.Next()
		if w == nil {
			return
		}
		if h.q.Moves(w) {
			h.q.Move(w, h.at(w.Who))
		}
		switch {
		case !h.q.Begin(w):
		case h.take(w.Who):
			h.q.Leave(w)
		default:
			h.q.Again(w, h.found(w.Who, every), h.at(w.Who))
		}
	}
	t.Fatal("the queue does not come to rest")
}

// Requests wait at several places. When room may have come, the places try in the same order in every run.
func TestPlacesTryInTheSameOrder(t *testing.T) {
	tries := func() (who []int) {
		q := Queue[int]{Limit: 100}
		for place := range 20 {
			n := Newcomer[int]{Who: place, Place: uint64(place), Seen: 1}
			if _, err := q.Join(&n); err != nil {
				t.Fatal(err)
			}
		}
		q.Wake()
		for w := q.Next(); w != nil; w = q.Next() {
			who = append(who, w.Who)
		}
		return who
	}
	first := tries()
	if len(first) != 20 {
		t.Fatalf("%v try", first)
	}
	for range 20 {
		if again := tries(); !slices.Equal(first, again) {
			t.Fatalf("%v try, then %v", first, again)
		}
	}
}

// Whatever comes, leaves and moves, and however often the order changes: behind each event, neither the first
// of a line nor the first that stands aside would find room. With room for all nobody is left.
func TestTheFirstWouldFindNoRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := hall{q: Queue[int]{Limit: 1000}}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			every := time.Duration(rapid.IntRange(0, 15).Draw(t, "every")) * 100 * time.Millisecond
			size := rapid.IntRange(1, 24).Draw(t, "size")
			switch all := h.q.All(); rapid.IntRange(0, 6).Draw(t, "what") {
			case 0, 1, 2:
				h.come(t, size, every)
			case 3:
				if len(all) > 0 {
					slices.SortFunc(all, func(a, b *Waiter[int]) int { return a.Who - b.Who })
					h.q.Leave(all[size%len(all)])
				}
			case 4:
				h.era += size
				h.q.Look()
			default:
				h.room += size / 2
				h.q.Wake()
			}
			h.play(t, every)
			for _, l := range h.q.places {
				if l.aside.Len() > 0 && h.needs[l.aside.First(h.q.view()).Who.Who] <= h.room {
					t.Fatal("the first that stands aside would find room")
				}
				if l.line.Len() > 0 && h.needs[l.line.First(h.q.view()).Who.Who] <= h.room {
					t.Fatal("the first of a line would find room")
				}
			}
		}
		h.room = 1_000_000
		h.q.Wake()
		if h.play(t, 0); h.q.Len() != 0 || len(h.q.places) != 0 || h.q.Backlog() != 0 {
			t.Fatalf("%d are left at %d places, with room for all", h.q.Len(), len(h.q.places))
		}
	})
}

// A newcomer waits behind others of its place alone. What has been admitted before is refused neither by a
// full nor by a closed queue.
func TestTheQueueRefuses(t *testing.T) {
	q := Queue[string]{Limit: 1}
	if wait, _ := q.Enter(0); wait {
		t.Error("one waits behind nobody")
	}
	first, err := q.Join(&Newcomer[string]{Who: "first"})
	if err != nil || q.Next() != first || !q.Begin(first) {
		t.Fatalf("the first, which has not tried, does not: %v", err)
	}
	wait, _ := q.Enter(0)
	if other, _ := q.Enter(1); !wait || other {
		t.Errorf("waits %t at its place and %t at another", wait, other)
	}
	if _, err := q.Join(&Newcomer[string]{Who: "second"}); !errors.Is(err, ErrFull) {
		t.Errorf("at the bound: %v", err)
	}
	q.Close()
	if _, err := q.Join(&Newcomer[string]{Who: "third"}); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if _, err := q.Join(&Newcomer[string]{Who: "runs", Running: true}); err != nil || q.Len() != 2 {
		t.Errorf("one that runs: %v, %d wait", err, q.Len())
	}
}
