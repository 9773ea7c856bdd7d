package kvevents

import (
	"slices"
	"testing"
)

// crowd makes streams that want a replay, and records the streams that were called.
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
		t.Fatalf("got %d running replays, want %d", held, maxReplays)
	}
	for i := range 4 {
		c.places.leave(c.all[i])
	}
	if want := []int{16, 17, 18, 19}; !slices.Equal(c.rung, want) {
		t.Errorf("got %v called, want %v, in the order of their arrival", c.rung, want)
	}
	for _, p := range c.all {
		c.places.leave(p)
		c.places.leave(p) // has no effect
	}
	if ps := &c.places; ps.taken != 0 || ps.doubtful != 0 || len(ps.queue) != 0 {
		t.Errorf("at the end: got %d taken, %d doubtful, %d waiting, want 0", ps.taken, ps.doubtful, len(ps.queue))
	}
}

func TestProvenEnginesGoFirst(t *testing.T) {
	var c crowd
	if held := c.join(100, doubtful); held != maxDoubtful {
		t.Fatalf("got %d running doubtful replays, want %d", held, maxDoubtful)
	}
	if held := c.join(maxReplays-maxDoubtful, proven); held != maxReplays-maxDoubtful {
		t.Fatalf("got %d running replays of proven engines, want %d", held, maxReplays-maxDoubtful)
	}
	c.join(1, unheard)
	c.join(1, proven)
	c.places.leave(c.all[0])
	c.places.leave(c.all[1])
	if want := []int{109, 108}; !slices.Equal(c.rung, want) {
		t.Errorf("got %v called, want %v: the proven engine first", c.rung, want)
	}
	c.places.leave(c.all[2])
	if !c.all[maxDoubtful].held {
		t.Error("a doubtful stream got no place although no other stream waits")
	}
}

// A replay that was aborted for silence may still get an answer. It then takes a place again, and other
// replays wait for this place.
func TestLateAnswersAreCounted(t *testing.T) {
	var c crowd
	c.join(maxReplays, unheard)
	c.places.leave(c.all[0])
	c.join(1, unheard)
	c.places.insist(c.all[0])
	c.places.insist(c.all[0])
	if c.places.taken != maxReplays+1 {
		t.Fatalf("got %d places taken, want %d", c.places.taken, maxReplays+1)
	}
	c.places.leave(c.all[1])
	if c.join(1, proven) != 0 {
		t.Error("a stream got a place although all places are taken")
	}
}

// 200 silent engines come before a working engine. At the first replay of all engines, the working engine
// starts within two time-outs. Once the silent engines are known, it starts within one time-out, for any
// number of silent engines.
func TestSoundEnginesBeginSoon(t *testing.T) {
	var c crowd
	c.join(200, unheard)
	sound := &place{ring: func() {}}
	turns := 0 // each is a tenth of a time-out, after which the silent engines give back their places
	for ; !c.places.want(sound, unheard); turns++ {
		for _, p := range c.all {
			if p.held {
				c.places.leave(p)
			}
		}
	}
	if turns > 2*silentShare {
		t.Errorf("got a start after %d tenths of a time-out, want at most %d", turns, 2*silentShare)
	}
	c.places.leave(sound)
	for _, p := range c.all {
		c.places.leave(p)
		c.places.want(p, doubtful)
	}
	if !c.places.want(sound, proven) {
		t.Error("a proven engine waits for doubtful engines")
	}
}
