package orchestrator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// crowd is a set of requests that wait for room in an admission queue.
type crowd struct {
	t    *testing.T
	a    *admission
	mu   sync.Mutex // held during each try: several requests may try at the same time
	room int
	came int // how often room became free
	here int // stands for the set of replicas; a change moves requests to other places
	all  []*member
	by   map[*waiter]*member
}

type member struct {
	needs int
	leave context.CancelFunc
	gone  bool // it has left, or it has room
	tried int  // the value of came at its last try
}

func (c *crowd) come(needs int, every time.Duration) {
	ctx, leave := context.WithCancel(c.t.Context())
	m := &member{needs: needs, leave: leave, tried: -1}
	c.all = append(c.all, m)
	try := func() outcome {
		c.mu.Lock()
		defer c.mu.Unlock()
		m.tried = c.came
		if needs <= c.room {
			c.room -= needs
			return outcome{verdict: goesOn}
		}
		return outcome{verdict: waitsInLine, every: every}
	}
	go func() {
		place := func() uint64 { return uint64(needs + c.here%needs) }
		err := c.a.enter(ctx, entry{patience: time.Hour, place: place, try: try})
		m.gone = true
		if err != nil && ctx.Err() == nil {
			c.t.Errorf("a request: %v", err)
		}
	}()
	synctest.Wait()
	for _, w := range slices.Concat(c.a.queue.Heads(len(c.all))...) {
		if c.by[w] == nil {
			c.by[w] = m
		}
	}
}

// Requests come, leave, get room and move between places in any order. After all tries have ended, the
// first request of each place has tried since room last became free, unless it needs more than there is.
func TestTheFirstHaveTriedWheneverRoomCame(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) [3]int {
			return [3]int{
				rapid.IntRange(0, 6).Draw(t, "what"), rapid.IntRange(1, 6).Draw(t, "size"),
				rapid.IntRange(0, 15).Draw(t, "every"),
			}
		}), 20, 80).Draw(rt, "steps")
		bad := ""
		synctest.Test(t, func(t *testing.T) { bad = playCrowd(t, steps) })
		if bad != "" {
			rt.Fatal(bad)
		}
	})
}

// playCrowd returns what was wrong, or "".
func playCrowd(t *testing.T, steps [][3]int) string {
	c := &crowd{t: t, a: newAdmission(1000), by: map[*waiter]*member{}}
	defer func() {
		for _, m := range c.all {
			m.leave()
		}
		synctest.Wait()
	}()
	for i, step := range steps {
		time.Sleep(time.Millisecond)
		size := step[1]
		switch step[0] {
		case 0, 1, 2:
			c.come(size, time.Duration(step[2])*100*time.Millisecond)
		case 3:
			if m := c.all; len(m) > 0 {
				m[(size*7+step[2])%len(m)].leave()
			}
		case 4:
			c.here += size
			c.a.moved()
		default:
			c.came++
			c.room += (size + 1) / 2
			c.a.wake()
		}
		synctest.Wait()
		if bad := c.idle(); bad != "" {
			return fmt.Sprintf("after step %d: %s", i, bad)
		}
	}
	return ""
}

// idle reports the first requests that have not tried since room became free.
func (c *crowd) idle() string {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	waiting := 0
	for _, m := range c.all {
		if !m.gone {
			waiting++
		}
	}
	heads := c.a.queue.Heads(1)
	if now := c.a.queue.Len(); waiting != now || waiting == 0 && len(heads) > 0 {
		return fmt.Sprintf("%d wait in %d places, want %d", now, len(heads), waiting)
	}
	for _, head := range heads {
		for i, w := range head {
			if m := c.by[w]; m.tried != c.came && m.needs <= c.room {
				return fmt.Sprintf("request %d of the queue needs %d and has not tried, though %d are free",
					i, m.needs, c.room)
			}
		}
	}
	return ""
}

// Room becomes free during a try that ends with waitsAside. The request tries again and gets the room.
func TestRoomThatComesWhileOneStandsAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(10)
		room := false
		trying, tried := make(chan bool), make(chan bool)
		times := 0
		done := make(chan error, 1)
		go func() {
			done <- a.enter(t.Context(), entry{patience: time.Hour, try: func() outcome {
				times++
				switch {
				case times == 1: // the first try, on arrival
					return outcome{verdict: waitsInLine}
				case times == 2: // the second try began before room came, and now finds that the request is large
					trying <- true
					<-tried
					return outcome{verdict: waitsAside}
				case room:
					return outcome{verdict: goesOn}
				}
				return outcome{verdict: waitsAside}
			}})
		}()
		synctest.Wait()
		a.wake()
		<-trying
		room = true
		a.wake() // room became free during the second try
		tried <- true
		synctest.Wait()
		if a.length() != 0 {
			t.Errorf("the request still waits after %d tries, though room became free during the second", times)
		}
		a.wake()
		<-done
	})
}

// A replica joins while the first request tries, and the first request moves to another place. The request
// behind it tries too, although the first one got the wake-up and found too little room.
func TestRoomThatComesWhileOneMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(10)
		where := uint64(1)
		joined := false
		hold := map[string]chan bool{}
		tried := map[string]int{}
		place := func() uint64 { return where }
		come := func(name string, fits bool) {
			go a.enter(t.Context(), entry{patience: time.Hour, place: place, try: func() outcome {
				found := joined && fits
				tried[name]++
				if h := hold[name]; h != nil {
					<-h
				}
				if found {
					return outcome{verdict: goesOn}
				}
				return outcome{verdict: waitsInLine}
			}})
			synctest.Wait()
		}
		come("much", false)
		come("little", true)
		much := make(chan bool)
		hold["much"] = much
		a.wake() // "much" tries and is held there
		synctest.Wait()
		where, joined = 2, true
		a.wake() // a replica has joined
		delete(hold, "much")
		much <- true
		synctest.Wait()
		if a.length() != 1 {
			t.Errorf("%d requests wait, want only \"much\"; tries %v", a.length(), tried)
		}
		a.close()
		synctest.Wait()
	})
}
