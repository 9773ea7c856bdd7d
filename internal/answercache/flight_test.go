package answercache

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// all reads a flight to its end.
func (l *Listener) all(ctx context.Context) (string, error) {
	var got strings.Builder
	for {
		_, b, err := l.Next(ctx)
		if err != nil {
			l.Leave(err)
			return got.String(), err
		}
		got.Write(b)
	}
}

// always lets a request join any flight.
func always(any) bool { return true }

func TestListenersGetEverythingWheneverTheyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var flights Flights
		leader, leads := flights.Join(key(1), 1<<10, nil, always)
		if !leads {
			t.Fatal("no listener leads")
		}
		var all sync.WaitGroup
		hear := func(l *Listener) {
			all.Go(func() {
				if got, err := l.all(t.Context()); got != "one two three " || !errors.Is(err, io.EOF) {
					t.Errorf("%q, %v", got, err)
				}
			})
		}
		hear(leader)
		f := leader.Flight()
		f.Begin(Head{Status: 200})
		for _, word := range []string{"one ", "two ", "three "} {
			l, leads := flights.Join(key(1), 1<<10, nil, always)
			if leads {
				t.Fatal("a second listener leads")
			}
			hear(l)
			time.Sleep(time.Second)
			if err := f.Append(t.Context(), []byte(word)); err != nil {
				t.Fatal(err)
			}
		}
		if _, body, ok := f.Whole(); string(body) != "one two three " || !ok {
			t.Errorf("whole: %q, %v", body, ok)
		}
		f.Done("somebody", nil)
		all.Wait()
		if by, done := f.By(); by != "somebody" || !done {
			t.Errorf("by %v, %v", by, done)
		}
		if _, leads := flights.Join(key(1), 1<<10, nil, always); !leads || flights.Len() != 1 {
			t.Error("a request joined an ended flight")
		}
	})
}

func TestFlightIsAbandonedByTheLast(t *testing.T) {
	var flights Flights
	a, _ := flights.Join(key(1), 10, nil, always)
	b, _ := flights.Join(key(1), 10, nil, always)
	var why []error
	a.Flight().OnAbandon(func(err error) { why = append(why, err) })
	gone := errors.New("gone")
	a.Leave(errors.New("the first"))
	a.Leave(gone)
	if len(why) != 0 || flights.Len() != 1 {
		t.Fatalf("the flight was abandoned although one listener is left: %v", why)
	}
	b.Leave(gone)
	if len(why) != 1 || !errors.Is(why[0], gone) || flights.Len() != 0 {
		t.Errorf("abandoned for %v, %d flights", why, flights.Len())
	}
	if c, leads := flights.Join(key(1), 10, nil, always); !leads || c.Flight() == a.Flight() {
		t.Error("a request joined an abandoned flight")
	}
}

// A listener without any bytes gets a failure at once; other listeners get the waiting bytes first.
func TestFailureOfAFlight(t *testing.T) {
	var flights Flights
	late, _ := flights.Join(key(1), 100, nil, always)
	early, _ := flights.Join(key(1), 100, nil, always)
	f, ctx := late.Flight(), t.Context()
	f.Begin(Head{Status: 200})
	_ = f.Append(ctx, []byte("a"))
	if _, b, err := early.Next(ctx); string(b) != "a" || err != nil {
		t.Fatalf("%q, %v", b, err)
	}
	_ = f.Append(ctx, []byte("b"))
	bad := errors.New("bad")
	f.Done(nil, bad)
	if got, err := early.all(ctx); got != "b" || !errors.Is(err, bad) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := late.all(ctx); got != "" || !errors.Is(err, bad) {
		t.Errorf("%q, %v", got, err)
	}
}

// Above the limit no request joins, and the computation waits for the slowest listener until that listener
// leaves.
func TestLongFlightsWaitForTheSlowest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var flights Flights
		slow, _ := flights.Join(key(1), 10, nil, always)
		fast, _ := flights.Join(key(1), 10, nil, always)
		f, ctx := fast.Flight(), t.Context()
		f.Begin(Head{Status: 200})
		var all sync.WaitGroup
		all.Go(func() {
			if got, err := fast.all(ctx); len(got) != 60 || !errors.Is(err, io.EOF) {
				t.Errorf("%q, %v", got, err)
			}
		})
		began := time.Now()
		all.Go(func() {
			for range 10 {
				if err := f.Append(ctx, []byte("123456")); err != nil {
					t.Error(err)
				}
			}
			f.Done(nil, nil)
		})
		time.Sleep(time.Second)
		if _, leads := flights.Join(key(1), 10, nil, always); !leads {
			t.Error("a request joined a flight whose answer is too long")
		}
		if _, _, ok := f.Whole(); ok {
			t.Error("the flight still has the whole of a too long answer")
		}
		if _, b, err := slow.Next(ctx); len(b) != 12 || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		time.Sleep(time.Second)
		slow.Leave(nil)
		all.Wait()
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewFlight(4)
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		time.AfterFunc(time.Second, func() { cancel(why) })
		if _, _, err := l.Next(ctx); !errors.Is(err, why) {
			t.Errorf("next: %v", err)
		}
		if err := l.Flight().Append(ctx, []byte("12345")); !errors.Is(err, why) {
			t.Errorf("append: %v", err)
		}
	})
}

// A request does not join a flight that began under other conditions. The old flight continues for its
// listeners, and its end does not remove the flight that replaced it.
func TestFlightThatDoesNotFitIsReplaced(t *testing.T) {
	var flights Flights
	old, _ := flights.Join(key(1), 10, "before", always)
	fresh, leads := flights.Join(key(1), 10, "after", func(b any) bool { return b == "after" })
	if !leads || fresh.Flight() == old.Flight() {
		t.Fatal("a request joined a flight that does not fit")
	}
	old.Flight().Begin(Head{Status: 200})
	_ = old.Flight().Append(t.Context(), []byte("old"))
	old.Flight().Done(nil, nil)
	if got, err := old.all(t.Context()); got != "old" || !errors.Is(err, io.EOF) {
		t.Errorf("the listener of the old flight gets %q, %v", got, err)
	}
	again, leads := flights.Join(key(1), 10, "later", func(b any) bool { return b == "after" })
	if leads || again.Flight() != fresh.Flight() {
		t.Error("a request did not join the new flight")
	}
}
