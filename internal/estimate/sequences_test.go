package estimate

import (
	"slices"
	"testing"
	"time"
)

// said is a load report of an engine, and the number of requests that had ended there.
type said struct {
	running, waiting, loading int
	usage                     float64
	ended                     int
	largest                   float64 // share of the KV cache that the largest waiting request needs
}

// The maximum of sequences that an engine runs is learned from reports only.
func TestHowManySequencesAnEngineRuns(t *testing.T) {
	const half = 0.5
	replaced := []said{{40, 1, 0, half, 0, 0}, {40, 3, 0, half, 1, 0}, {40, 2, 0, half, 2, 0}}
	noneEnds := []said{
		{40, 1, 0, half, 0, 0}, {40, 3, 0, half, 0, 0}, {40, 5, 0, half, 0, 0}, {40, 6, 0, half, 0, 0},
	}
	for _, c := range []struct {
		name    string
		reports []said // a second apart
		prompts time.Duration
		want    int
	}{
		{"as many run although some end", replaced, time.Hour, 40},
		{"none ends, and its prompts should be there", noneEnds, 0, 40},
		{"none ends, and it has prompts to compute", noneEnds, time.Minute, 0},
		{"a large request waits for room", []said{
			{40, 1, 0, half, 0, 0.6}, {40, 3, 0, half, 0, 0.6}, {40, 5, 0, half, 0, 0.6}, {40, 6, 0, half, 0, 0.6},
		}, 0, 0},
		{"a large request waits that has room", []said{
			{40, 1, 0, half, 0, 0.4}, {40, 3, 0, half, 0, 0.4}, {40, 5, 0, half, 0, 0.4}, {40, 6, 0, half, 0, 0.4},
		}, 0, 40},
		{"other numbers run", []said{
			{40, 1, 0, half, 0, 0}, {41, 3, 0, half, 1, 0}, {40, 2, 0, half, 2, 0}, {39, 2, 0, half, 3, 0},
		}, 0, 0},
		{"nobody waits", []said{{40, 0, 0, half, 0, 0}, {40, 0, 0, half, 1, 0}, {40, 0, 0, half, 9, 0}}, 0, 0},
		{"those that wait are loading", []said{
			{40, 2, 2, half, 0, 0}, {40, 1, 1, half, 1, 0}, {40, 3, 3, half, 9, 0},
		}, 0, 0},
		{"there is no room", []said{{40, 1, 0, 0.97, 0, 0}, {40, 3, 0, 0.98, 1, 0}, {40, 2, 0, 0.97, 9, 0}}, 0, 0},
		{"few and large ones run", []said{
			{5, 1, 0, half, 0, 0}, {5, 3, 0, half, 1, 0}, {5, 2, 0, half, 9, 0},
		}, 0, 0},
		{"a number that is usual, from the first", []said{{256, 1, 0, half, 0, 0}}, time.Hour, 256},
		{"more run later", append(slices.Clone(replaced), said{41, 0, 0, half, 3, 0}), time.Hour, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s Sequences
			now := time.Unix(1000, 0)
			for _, r := range c.reports {
				s.ended = r.ended
				s.Learn(Occupancy{
					Running: r.running, Queued: r.waiting - r.loading, Usage: r.usage, Largest: r.largest,
					Prompts: c.prompts,
				}, now)
				now = now.Add(time.Second)
			}
			if got := s.Believed(0); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

// A learned maximum may have had another cause, so each minute one more sequence is tried.
func TestOneSequenceMoreIsTried(t *testing.T) {
	var s Sequences
	start := time.Unix(1000, 0)
	o := Occupancy{Running: 40, Queued: 1, Usage: 0.5}
	for i := range equalReports {
		s.ended = i
		s.Learn(o, start.Add(time.Duration(i)*time.Second))
	}
	o.Queued = 0
	for i, want := range []int{40, 41, 42} {
		s.Learn(o, start.Add(time.Duration(i)*2*tryMoreAfter+10*time.Second))
		if got := s.Believed(0); got != want {
			t.Errorf("%d after %d minutes, want %d", got, 2*i, want)
		}
	}
	o.Running = 41 // the earlier limit had another cause, or the engine was restarted with a larger one
	if s.Learn(o, start.Add(time.Hour)); s.Believed(0) != 0 {
		t.Errorf("%d, though more run", s.Believed(0))
	}
}
