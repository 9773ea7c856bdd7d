package kvevents

import (
	"slices"
	"testing"
)

// crowd makes streams that want a replay, and records which ones were called.
type crowd struct {
	places places
	rung   []int
	all    []*place
}

func (c *crowd) join(n int, s standing) (held int) {
	for range n {
		i := len(c.all)
		c.all = append(c.all, &place{ring: func() { c.rung = append(c.rung, i) }})
		if c.places.want(c.all[i], s) {
			held++
		}
	}
	return held
}

func TestPlacesOfReplaysAreBounded(t *testing.T) {
	var c crowd
	if held := c.join(maxReplays+4, unheard); held != maxReplays {
		t.Fatalf("%d replays run, want %d", held, maxReplays)
	}
	for i := range 4 {
		c.places.leave(c.all[i])
	}
	if want := []int{16, 17, 18, 19}; !slices.Equal(c.rung, want) {
		t.Errorf("called %v, want %v: in the order of their arrival", c.rung, want)
	}
	for _, p := range c.all {
		c.places.leave(p)
		c.places.leave(p) // has no effect
	}
	if ps := &c.places; ps.taken != 0 || ps.doubtful != 0 || len(ps.queue) != 0 {
		t.Errorf("at the end: %d taken, %d doubtful, %d waiting, want 0", ps.taken, ps.doubtful, len(ps.queue))
	}
}

func TestWhoAnswersGoesFirst(t *testing.T) {
	var c crowd
	if held := c.join(100, doubtful); held != maxDoubtful {
		t.Fatalf("%d doubtful replays run, want %d", held, maxDoubtful)
	}
	if held := c.join(maxReplays-maxDoubtful, proven); held != maxReplays-maxDoubtful {
		t.Fatalf("%d replays of proven engines run, want %d", held, maxReplays-maxDoubtful)
	}
	c.join(1, unheard)
	c.join(1, proven)
	c.places.leave(c.all[0])
	c.places.leave(c.all[1])
	if want := []int{109, 108}; !slices.Equal(c.rung, want) {
		t.Errorf("called %v, want %v: the proven engine first", c.rung, want)
	}
	c.places.leave(c.all[2])
	if !c.all[maxDoubtful].held {
		t.Error("a doubtful stream got no place, though no other waits")
	}
}

// A replay that was aborted for silence may still get an answer. Then it takes a place again, so that
// others wait for it.
func TestLateAnswersAreCounted(t *testing.T) {
	var c crowd
	c.join(maxReplays, unheard)
	c.places.leave(c.all[0])
	c.join(1, unheard)
	c.places.insist(c.all[0])
	c.places.insist(c.all[0])
	if c.places.taken != maxReplays+1 {
		t.Fatalf("%d taken, want %d", c.places.taken, maxReplays+1)
	}
	c.places.leave(c.all[1])
	if c.join(1, proven) != 0 {
		t.Error("a stream got a place, though all are taken")
	}
}

// 200 engines that do not answer come before a working engine. If all are asked for the first time, the
// working engine starts within two time-outs. Once the silent engines are known, it starts within one
// time-out, whatever their number.
func TestSoundEnginesBeginSoon(t *testing.T) {
	var c crowd
	c.join(200, unheard)
	sound := &place{ring: func() {}}
	turns := 0 // each is a tenth of a time-out; then the silent engines give back their places
	for ; !c.places.want(sound, unheard); turns++ {
		for _, p := range c.all {
			if p.held {
				c.places.leave(p)
			}
		}
	}
	if turns > 2*silentShare {
		t.Errorf("the working engine waits for %d tenths of a time-out", turns)
	}
	c.places.leave(sound)
	for _, p := range c.all {
		c.places.leave(p)
		c.places.want(p, doubtful)
	}
	if !c.places.want(sound, proven) {
		t.Error("a proven engine waits for doubtful ones")
	}
}
