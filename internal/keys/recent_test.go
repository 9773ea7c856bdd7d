package keys

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"
)

// The list equals a slow list of all events at any time: each event counts for a minute and for an hour, and
// at most a slot longer. Keys without events are forgotten.
func TestRecentIsAsItsTwin(t *testing.T) {
	type event struct {
		key string
		at  time.Time
		s   Sums
	}
	chance := rand.New(rand.NewPCG(3, 4))
	var r Recent
	var all []event
	sum := func(key string, now time.Time, slot, of time.Duration) (total Sums) {
		for i := range all {
			number := func(at time.Time) int64 { return at.UnixNano() / int64(slot) }
			if all[i].key == key && number(now)-number(all[i].at) <= int64(of/slot) {
				total.add(&all[i].s, 1)
			}
		}
		return total
	}
	now := time.Unix(1_800_000_000, 0)
	forgotten := 0
	for range 2000 {
		now = now.Add(time.Duration(chance.ExpFloat64() * float64(20*time.Second)))
		if chance.IntN(100) == 0 {
			now = now.Add(2 * time.Hour)
		}
		e := event{key: "key-" + strconv.Itoa(chance.IntN(5)), at: now}
		if chance.IntN(4) == 0 {
			e.s.Refused = 1
			r.Refuse(e.key, OfTokens, now)
		} else {
			e.s = Sums{Requests: 1, Prompt: int64(chance.IntN(100)), Cached: 3, Generated: int64(chance.IntN(100))}
			r.Use(Used{
				Key: e.key, Requests: 1, Prompt: e.s.Prompt, Cached: e.s.Cached, Generated: e.s.Generated,
			}, now)
		}
		all = append(all, e)
		now = now.Add(time.Duration(chance.IntN(30)) * time.Second)
		list := r.List(now)
		for i, l := range list {
			if minute := sum(l.Key, now, 10*time.Second, time.Minute); l.Minute != minute {
				t.Fatalf("minute of %s: %+v, want %+v", l.Key, l.Minute, minute)
			}
			if hour := sum(l.Key, now, 5*time.Minute, time.Hour); l.Hour != hour {
				t.Fatalf("hour of %s: %+v, want %+v", l.Key, l.Hour, hour)
			}
			if (l.Over == OfTokens) != (l.Minute.Refused > 0) {
				t.Fatalf("%s: over %q with %d refusals", l.Key, l.Over, l.Minute.Refused)
			}
			tokens := func(l Lately) int64 { return l.Hour.Prompt + l.Hour.Generated }
			if i > 0 && tokens(list[i-1]) < tokens(l) {
				t.Fatalf("%s comes before %s", list[i-1].Key, l.Key)
			}
		}
		if forgotten += 5 - len(list); len(r.by) != len(list) {
			t.Fatalf("%d keys are kept, %d listed", len(r.by), len(list))
		}
	}
	if forgotten < 10 {
		t.Errorf("keys were forgotten only %d times", forgotten)
	}
}

// A clock that goes back loses nothing, and counts nothing twice.
func TestRecentWithAClockThatGoesBack(t *testing.T) {
	var r Recent
	now := time.Unix(1_800_000_000, 0)
	r.Use(Used{Key: "a", Requests: 1}, now)
	r.Use(Used{Key: "a", Requests: 1}, now.Add(-3*time.Hour))
	if l := r.List(now.Add(-time.Hour)); len(l) != 1 || l[0].Hour.Requests != 2 || l[0].Minute.Requests != 2 {
		t.Errorf("%+v", l)
	}
}

// BenchmarkRecent measures the cost of a request, and of listing 10,000 keys.
func BenchmarkRecent(b *testing.B) {
	var r Recent
	now := time.Unix(1_800_000_000, 0)
	for i := range 10_000 {
		r.Use(Used{Key: fmt.Sprintf("key-%d", i), Requests: 1, Prompt: int64(i)}, now)
	}
	b.Run("use", func(b *testing.B) {
		for b.Loop() {
			now = now.Add(time.Millisecond)
			r.Use(Used{Key: "key-5000", Requests: 1, Prompt: 10}, now)
		}
	})
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			r.List(now)
		}
	})
}

// Counting and listing run at the same time: nothing is lost, although idle keys are forgotten all the time.
func TestRecentIsCountedWhileItIsListed(t *testing.T) {
	var r Recent
	var wg sync.WaitGroup
	now := time.Unix(1_800_000_000, 0)
	for i := range 4 {
		wg.Go(func() {
			for n := range 2000 {
				r.Use(Used{Key: strconv.Itoa(n % 3), Requests: 1}, now)
				r.Use(Used{Key: strconv.Itoa(10 + i), Requests: 0}, now) // idle at once
			}
		})
	}
	for range 200 {
		r.List(now)
	}
	wg.Wait()
	total := int64(0)
	for _, l := range r.List(now) {
		total += l.Hour.Requests
	}
	if total != 8000 || len(r.by) != 3 {
		t.Errorf("%d requests of %d keys, want 8000 of 3", total, len(r.by))
	}
}
