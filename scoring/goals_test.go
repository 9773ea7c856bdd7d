package scoring

import (
	"math"
	"testing"
	"time"
)

// A time far below its goal costs nothing, each later time costs more, and no cost jumps.
func TestLateness(t *testing.T) {
	if got := lateness(0.5); got > 2e-3 {
		t.Errorf("half of the goal costs %v", got)
	}
	if got := lateness(3) - lateness(1); math.Abs(got-lateSeconds) > 1e-9 {
		t.Errorf("three times the goal costs %v more than the goal", got)
	}
	last := 0.0
	for x := 0.01; x < 20; x += 0.01 {
		now := lateness(x)
		if now <= last || now-last > lateSeconds*0.011 {
			t.Fatalf("%.2f times the goal costs %v, and a little less costs %v", x, now, last)
		}
		last = now
	}
}

// A stream weighs by how near its tokens are to their goal. A goal that is out of reach weighs no more than
// the pace itself.
func TestHeld(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		pace  float64
		goal  time.Duration
		least float64
		most  float64
	}{
		{0.016, 200 * ms, 0, 1e-6},
		{0.016, 20 * ms, 0.8, 0.9},
		{0.020, 20 * ms, 4.9, 5.1},
		{0.100, 100 * ms, 0.99, 1.01}, // the usual goal, as a stream without goals
		{0.020, ms, 0.8, 1},
	} {
		if got := Held(c.pace, c.goal); got < c.least || got > c.most {
			t.Errorf("at %v with a goal of %v a stream weighs %v", c.pace, c.goal, got)
		}
	}
}

// Of the goals for the first token and for the last token, the nearer goal counts.
func TestTheNearerGoalCounts(t *testing.T) {
	a := Asked{Goals: Goals{TTFT: 2 * time.Second, Deadline: 10 * time.Second}, Waited: time.Second}
	for _, c := range []struct{ rest, x float64 }{{1, 1.5 / 2}, {8, 9.5 / 10}} {
		d := (&Stakes{Asked: &a, Rest: c.rest}).first(0.25)
		if got, want := d.late(0.25), lateness(c.x); math.Abs(got-want) > 1e-12 {
			t.Errorf("with %v s behind the first token it costs %v, want %v", c.rest, got, want)
		}
	}
	none := &Stakes{Pace: 1}
	if d := none.first(100); d.late(100) != 0 || none.tokens() != 0 {
		t.Error("a request without goals is late")
	}
}
