package orchestrator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAdmissionAdmitsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &admission{limit: 10}
		room := 0 // touched by one goroutine at a time: the head of the queue
		var order []int
		for i := range 3 {
			go func() {
				err := a.enter(t.Context(), entry{patience: time.Minute, try: func() outcome {
					if room == 0 {
						return waitsInLine
					}
					room--
					order = append(order, i)
					return goesOn
				}})
				if err != nil {
					t.Errorf("request %d: %v", i, err)
				}
			}()
			synctest.Wait()
		}
		if got := a.length(); got != 3 {
			t.Fatalf("%d wait, want 3", got)
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
			t.Fatalf("admitted %v with %d waiting, want three and nobody", order, a.length())
		}
	})
}

func TestAdmissionRefuses(t *testing.T) {
	never := func() outcome { return waitsInLine }
	synctest.Test(t, func(t *testing.T) {
		a := &admission{limit: 1}
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
			t.Errorf("client gone: %v", err)
		}
		go func() { done <- a.enter(t.Context(), entry{patience: time.Minute, try: never}) }()
		synctest.Wait()
		a.close()
		if err := <-done; !errors.Is(err, errDraining) {
			t.Errorf("closed: %v, want %v", err, errDraining)
		}
		if err := a.enter(t.Context(),
			entry{patience: time.Minute, try: func() outcome { return goesOn }}); !errors.Is(err, errDraining) {
			t.Errorf("after close: %v, want %v", err, errDraining)
		}
		if a.length() != 0 {
			t.Errorf("%d still wait", a.length())
		}
	})
}

// Who needs a nearly empty replica is tried first, and keeps nobody out meanwhile.
func TestLargeRequestsStandAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &admission{limit: 10}
		// Blocks of a replica of 10; touched by one goroutine at a time, since nobody is woken while it changes.
		free := 3
		var order []string
		come := func(name string, blocks int) {
			go func() {
				err := a.enter(t.Context(), entry{patience: time.Minute, try: func() outcome {
					switch {
					case blocks <= free:
						free -= blocks
						order = append(order, name)
						return goesOn
					case blocks > 5:
						return waitsAside
					}
					return waitsInLine
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
			t.Fatalf("admitted %q with %d waiting, want small: who is not large waits in line", got, a.length())
		}
		free = 6
		a.wake()
		synctest.Wait()
		if got := strings.Join(order, ","); got != "small,middle,second small" {
			t.Fatalf("admitted %q, want the middle one, and who waited behind it", got)
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

// A router that drains refuses whoever waits, and lets those that run be tried again.
func TestDrainingRefusesNobodyThatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &admission{limit: 2}
		a.close()
		room := false
		done := make(chan error)
		go func() {
			done <- a.enter(t.Context(), entry{patience: time.Minute, running: true, try: func() outcome {
				if room {
					return goesOn
				}
				return waitsInLine
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

// A wake-up between a newcomer's first try and its place in the queue must not be lost.
func TestAdmissionLosesNoWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &admission{limit: 1}
		tries := 0
		err := a.enter(t.Context(), entry{patience: time.Minute, try: func() outcome {
			if tries++; tries == 2 {
				return goesOn
			}
			return waitsInLine
		}})
		if err != nil || tries != 2 {
			t.Errorf("tries %d, err %v; want a second try at once", tries, err)
		}
	})
}

func TestRingKeepsTheNewest(t *testing.T) {
	g := newRing(3)
	records, lost, stop := g.watch(2)
	defer stop()
	for _, id := range []string{"a", "b", "c", "d"} {
		g.add(&Record{ID: id})
	}
	ids := func(rs []*Record) (s string) {
		for _, r := range rs {
			s += r.ID
		}
		return s
	}
	if got := ids(g.newest(10)); got != "dcb" {
		t.Errorf("newest = %q, want dcb", got)
	}
	g.resize(2)
	g.add(&Record{ID: "e"})
	if got := ids(g.newest(10)); got != "ed" {
		t.Errorf("after resize newest = %q, want ed", got)
	}
	if g.find("d") == nil || g.find("a") != nil {
		t.Errorf("find: d %v, a %v; want d only", g.find("d"), g.find("a"))
	}
	if got := (<-records).ID + (<-records).ID; got != "ab" || lost() != 3 {
		t.Errorf("watched %q and lost %d, want ab and 3", got, lost())
	}
}
