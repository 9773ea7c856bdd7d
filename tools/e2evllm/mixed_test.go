package main

import (
	"math"
	"testing"
	"time"
)

// A gap counts if it ends after the prompt came. The result is the median of the longest gaps of the streams.
func TestMixedFindsTheLongestGap(t *testing.T) {
	begun := time.Now()
	at := func(ms ...int) (times []time.Time) {
		for _, ms := range ms {
			times = append(times, begun.Add(time.Duration(ms)*time.Millisecond))
		}
		return times
	}
	b := &streamGroup{came: [][]time.Time{
		at(-900, -10, 190, 200), // the 890 ms before the prompt do not count
		at(-5, 245, 250),
		at(-5, 5, 905, 910),
	}}
	if got := b.longest(begun); math.Abs(got-0.25) > 1e-9 {
		t.Errorf("the longest gap of the median stream is %g s, want 0.25", got)
	}
}
