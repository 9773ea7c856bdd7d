package kvevents

import (
	"slices"
	"testing"
)

// crowd makes streams that want a replay, and says which were rung.
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
		t.Fatalf("%d replays under way, want %d", held, maxReplays)
	}
	for i := range 4 {
		c.places.leave(c.all[i])
	}
	if want := []int{16, 17, 18, 19}; !slices.Equal(c.rung, want) {
		t.Errorf("rung were %v, want %v: who came first goes first", c.rung, want)
	}
	for _, p := range c.all {
		c.places.leave(p)
		c.places.leave(p) // does nothing
	}
	if ps := &c.places; ps.taken != 0 || ps.doubtful != 0 || len(ps.queue) != 0 {
		t.Errorf("left behind: %d taken, %d doubtful, %d waiting", ps.taken, ps.doubtful, len(ps.queue))
	}
}

func TestWhoAnswersGoesFirst(t *testing.T) {
	var c crowd
	if held := c.join(100, doubtful); held != maxDoubtful {
		t.Fatalf("%d doubtful replays under way, want %d", held, maxDoubtful)
	}
	if held := c.join(maxReplays-maxDoubtful, proven); held != maxReplays-maxDoubtful {
		t.Fatalf("%d replays of engines that answer, want %d", held, maxReplays-maxDoubtful)
	}
	c.join(1, unheard)
	c.join(1, proven)
	c.places.leave(c.all[0])
	c.places.leave(c.all[1])
	if want := []int{109, 108}; !slices.Equal(c.rung, want) {
		t.Errorf("rung were %v, want %v: the one that is known to answer first", c.rung, want)
	}
	c.places.leave(c.all[2])
	if !c.all[maxDoubtful].held {
		t.Error("nobody else waits, and the doubtful get no place")
	}
}

// A replay that was given up for silent and answers late takes a place of its own, so that others wait for
// it.
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
		t.Error("a place was given out though as many are taken as there are")
	}
}

// 200 engines that do not answer come before a sound engine. When all are asked for the first time, the
// sound engine begins within two time-outs. Once the silent engines are known, it begins within one
// time-out, whatever their number.
func TestSoundEnginesBeginSoon(t *testing.T) {
	var c crowd
	c.join(200, unheard)
	sound := &place{ring: func() {}}
	turns := 0 // each a tenth of a time-out, after which the silent give their places back
	for ; !c.places.want(sound, unheard); turns++ {
		for _, p := range c.all {
			if p.held {
				c.places.leave(p)
			}
		}
	}
	if turns > 2*silentShare {
		t.Errorf("it waits for %d tenths of a time-out", turns)
	}
	c.places.leave(sound)
	for _, p := range c.all {
		c.places.leave(p)
		c.places.want(p, doubtful)
	}
	if !c.places.want(sound, proven) {
		t.Error("it waits behind engines that are known to be silent")
	}
}
