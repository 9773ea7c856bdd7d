package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// comeForRoom sends request i to the queue. If there is room, the request takes one unit and appends
// itself to order; otherwise it waits. Only one goroutine at a time touches room and order.
func comeForRoom(t *testing.T, a *admission, i int, every time.Duration, room *int, order *[]int) {
	go func() {
		err := a.enter(t.Context(), entry{patience: time.Minute, try: func() outcome {
			if *room == 0 {
				return outcome{verdict: waitsInLine, every: every}
			}
			*room--
			*order = append(*order, i)
			return outcome{verdict: goesOn}
		}})
		if err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}()
	synctest.Wait()
}

func TestAdmissionAdmitsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(10)
		room := 0
		var order []int
		for i := range 3 {
			comeForRoom(t, a, i, 0, &room, &order)
		}
		if got := a.length(); got != 3 {
			t.Fatalf("%d requests wait, want 3", got)
		}
		room = 2
		a.wake()
		synctest.Wait()
		if len(order) != 2 || order[0] != 0 || order[1] != 1 {
			t.Fatalf("admitted %v, want [0 1]", order)
		}
		room = 1
		a.wake()
		synctest.Wait()
		if len(order) != 3 || a.length() != 0 {
			t.Fatalf("admitted %v with %d waiting, want three admitted and none waiting", order, a.length())
		}
	})
}

func TestAdmissionRefuses(t *testing.T) {
	never := func() outcome { return outcome{verdict: waitsInLine} }
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(1)
		start := time.Now()
		done := make(chan error)
		go func() { done <- a.enter(t.Context(), entry{patience: 3 * time.Second, try: never}) }()
		synctest.Wait()
		if err := a.enter(t.Context(), entry{patience: time.Minute, try: never}); !errors.Is(err, errQueueFull) {
			t.Errorf("at the bound: %v, want %v", err, errQueueFull)
		}
		if err := <-done; !errors.Is(err, errQueueTime) || time.Since(start) != 3*time.Second {
			t.Errorf("after %v: %v, want %v after 3 s", time.Since(start), err, errQueueTime)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { done <- a.enter(ctx, entry{patience: time.Minute, try: never}) }()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("after the client left: %v", err)
		}
		go func() { done <- a.enter(t.Context(), entry{patience: time.Minute, try: never}) }()
		synctest.Wait()
		a.close()
		if err := <-done; !errors.Is(err, errDraining) {
			t.Errorf("closed: %v, want %v", err, errDraining)
		}
		if err := a.enter(t.Context(),
			entry{patience: time.Minute, try: func() outcome {
				return outcome{verdict: goesOn}
			}}); !errors.Is(err, errDraining) {
			t.Errorf("after close: %v, want %v", err, errDraining)
		}
		if a.length() != 0 {
			t.Errorf("%d requests still wait", a.length())
		}
	})
}

// A request that needs a nearly empty replica tries first, and does not block other requests while it
// waits.
func TestLargeRequestsStandAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(10)
		// Free blocks of a replica with 10. One goroutine at a time touches free: nothing wakes a request while
		// it changes.
		free := 3
		var order []string
		come := func(name string, blocks int) {
			go func() {
				err := a.enter(t.Context(), entry{patience: time.Minute, try: func() outcome {
					switch {
					case blocks <= free:
						free -= blocks
						order = append(order, name)
						return outcome{verdict: goesOn}
					case blocks > 5:
						return outcome{verdict: waitsAside}
					}
					return outcome{verdict: waitsInLine}
				}})
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}()
			synctest.Wait()
		}
		come("greedy", 10)
		come("small", 2)
		come("middle", 4)
		come("second greedy", 8)
		come("second small", 1)
		if got := strings.Join(order, ","); got != "small" || a.length() != 4 {
			t.Fatalf("admitted %q with %d waiting, want the first small one", got, a.length())
		}
		free = 6
		a.wake()
		synctest.Wait()
		if got := strings.Join(order, ","); got != "small,middle,second small" {
			t.Fatalf("admitted %q, want also middle and second small", got)
		}
		for free = 10; a.length() > 0; free = 10 {
			a.wake()
			synctest.Wait()
		}
		if got := strings.Join(order, ","); got != "small,middle,second small,greedy,second greedy" {
			t.Fatalf("admitted %q", got)
		}
	})
}

// A request with a short predicted wait overtakes one with a long predicted wait, until the latter has
// waited that long. When room may have come, only the first request tries.
func TestWhoNeedsLittlePassesInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(100)
		free := 0 // one goroutine at a time touches it, as the order of tries shows
		var order, asked []string
		come := func(name string, blocks int, room time.Duration) {
			go func() {
				err := a.enter(t.Context(), entry{patience: time.Hour, try: func() outcome {
					if asked = append(asked, name); blocks > free {
						return outcome{verdict: waitsInLine, room: room}
					}
					free -= blocks
					order = append(order, name)
					return outcome{verdict: goesOn}
				}})
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}()
			synctest.Wait()
		}
		wake := func(blocks int) {
			asked, free = nil, blocks
			a.wake()
			synctest.Wait()
		}
		come("much", 4, 10*time.Second)
		come("little", 2, time.Second)
		come("more", 3, 5*time.Second)
		come("as little", 2, time.Second)
		wake(1)
		if got := strings.Join(asked, ","); got != "little" {
			t.Fatalf("%s tried, want only the first of the queue", got)
		}
		wake(2)
		wake(2)
		if got := strings.Join(order, ","); got != "little,as little" {
			t.Fatalf("admitted %s", got)
		}
		time.Sleep(10 * time.Second) // as long as its predicted wait
		for i := range 5 {
			come(fmt.Sprint("late", i), 2, time.Second)
		}
		wake(4)
		if got := strings.Join(order, ","); got != "little,as little,more" {
			t.Fatalf("admitted %s, want \"more\" before all late requests: it has waited its predicted 5 s", got)
		}
		wake(4)
		if got := strings.Join(order, ","); got != "little,as little,more,much" {
			t.Fatalf("admitted %s, want \"much\" next: it has waited longest", got)
		}
		for a.length() > 0 {
			wake(2)
		}
	})
}

// Requests arrive, leave and free room all at once. In the end every request was admitted, refused or
// gone, all room is free again, and no request timed out while all room was free.
func TestQueueUnderChurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room = 20
		a := newAdmission(1000)
		rnd := rand.New(rand.NewPCG(1, 2))
		var free, gone, late atomic.Int64
		free.Store(room)
		take := func(n int64) bool {
			for {
				left := free.Load()
				if left < n {
					return false
				}
				if free.CompareAndSwap(left, left-n) {
					return true
				}
			}
		}
		for range 500 {
			need, holds := int64(1+rnd.IntN(room)), time.Duration(rnd.IntN(400))*time.Millisecond
			patience := time.Duration(1+rnd.IntN(60)) * time.Second
			leaves := time.Duration(rnd.IntN(100)) * time.Second
			time.Sleep(time.Duration(rnd.IntN(200)) * time.Millisecond)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), leaves)
				defer cancel()
				// simulates replicas that join and leave
				place := func() uint64 { return uint64(time.Now().Unix()/5%3 + need%2) }
				err := a.enter(ctx, entry{patience: patience, place: place, try: func() outcome {
					switch {
					case take(need):
						return outcome{verdict: goesOn}
					case need > room/2:
						return outcome{verdict: waitsAside}
					}
					return outcome{verdict: waitsInLine, room: time.Duration(need) * 20 * time.Millisecond}
				}})
				switch {
				case errors.Is(err, errQueueTime):
					if late.Add(1); free.Load() == room {
						t.Error("a request timed out while all room was free")
					}
				case err != nil:
					gone.Add(1)
				default:
					time.Sleep(holds)
					free.Add(need)
					a.wake()
				}
			}()
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if free.Load() != room || a.length() != 0 || len(a.queue.Heads(0)) != 0 {
			t.Errorf("%d of %d free, %d requests wait at %d places",
				free.Load(), room, a.length(), len(a.queue.Heads(0)))
		}
		if late.Load() == 0 || gone.Load() == 0 || late.Load()+gone.Load() > 400 {
			t.Errorf("%d requests timed out and %d left: these counts test too little", late.Load(), gone.Load())
		}
	})
}

// A draining router refuses waiting requests, but a request that already runs may still wait for room and
// try again.
func TestDrainingRefusesNobodyThatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(2)
		a.close()
		room := false
		done := make(chan error)
		go func() {
			runs := func() bool { return true }
			done <- a.enter(t.Context(), entry{patience: time.Minute, running: runs, try: func() outcome {
				if room {
					return outcome{verdict: goesOn}
				}
				return outcome{verdict: waitsInLine}
			}})
		}()
		synctest.Wait()
		room = true
		a.wake()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Room that becomes free between a request's first try and its entry into the queue is not lost. If no
// room came, the request does not try twice.
func TestAdmissionLosesNoWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(1)
		tries, comes := 0, true
		come := func() error {
			return a.enter(t.Context(), entry{patience: time.Minute, try: func() outcome {
				if tries++; tries == 2 {
					return outcome{verdict: goesOn}
				}
				if comes {
					a.wake()
				}
				return outcome{verdict: waitsInLine}
			}})
		}
		if err := come(); err != nil || tries != 2 {
			t.Errorf("tries %d, err %v; want a second try at once", tries, err)
		}
		tries, comes = 0, false
		if err := come(); !errors.Is(err, errQueueTime) || tries != 1 {
			t.Errorf("tries %d, err %v; want one try, since no room came", tries, err)
		}
	})
}

// Room becomes free while the head of the queue tries, and the try moves the head behind others. The
// request that is then first gets the room.
func TestRoomThatComesDuringATryIsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(10)
		var free atomic.Int64
		var admitted []string
		trying, tried := make(chan bool), make(chan bool)
		come := func(name string, due time.Duration, try func() outcome) {
			go func() {
				err := a.enter(t.Context(), entry{patience: time.Hour, try: func() outcome {
					if try != nil {
						return try()
					}
					if free.Load() > 0 && free.Add(-1) >= 0 {
						admitted = append(admitted, name)
						return outcome{verdict: goesOn}
					}
					return outcome{verdict: waitsInLine, room: due}
				}})
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}()
			synctest.Wait()
		}
		times := 0
		come("first", 0, func() outcome {
			switch times++; times {
			case 1: // on arrival
				return outcome{verdict: waitsInLine, room: 3 * time.Second}
			case 2:
				trying <- true
				<-tried
			}
			if times > 4 {
				return outcome{verdict: goesOn}
			}
			return outcome{verdict: waitsInLine, room: time.Minute} // the request needs more now
		})
		come("second", 4*time.Second, nil)
		a.wake()
		<-trying
		free.Store(1)
		a.wake()
		tried <- true
		synctest.Wait()
		if len(admitted) != 1 || admitted[0] != "second" {
			t.Errorf("admitted %v, want the second: it is first now, and there is room for it", admitted)
		}
		for a.length() > 0 {
			free.Store(1)
			a.wake()
			synctest.Wait()
		}
	})
}

// While the backlog needs more than four seconds, the newest request tries first. The oldest one has
// waited too long already; serving it first would make all others wait as long.
func TestTheNewestTryFirstWhileTooMuchWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(10)
		room := 0
		var order []int
		for i := range 6 {
			comeForRoom(t, a, i, time.Second, &room, &order)
			time.Sleep(time.Second)
		}
		if got := a.backlog(); got != 6*time.Second {
			t.Errorf("backlog %v, want 6 s", got)
		}
		for range 6 {
			room = 1
			a.wake()
			synctest.Wait()
		}
		// The newest (5, then 4) while the backlog exceeds 4 s; after that the request that has waited longest.
		if want := []int{5, 4, 0, 1, 2, 3}; !slices.Equal(order, want) {
			t.Errorf("admitted %v, want %v", order, want)
		}
	})
}
