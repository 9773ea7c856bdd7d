package replica

import (
	"math"
	"testing"
	"time"
)

func TestReportOverTheWire(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	if r := ReportOf(Load{}, now); r != nil {
		t.Errorf("%+v of nothing", r)
	}
	for name, l := range map[string]Load{
		"all known": {
			At: now.Add(-time.Second), Source: Metrics, Running: 3, Waiting: 2, Loading: 1, Fetching: 1, Usage: 0.5,
		},
		"nothing known": {
			At: now, Source: Metrics, Running: -1, Waiting: -1, Loading: -1, Fetching: -1, Usage: math.NaN(),
		},
	} {
		r := ReportOf(l, now)
		got := r.Load(now)
		if !got.At.Equal(l.At) || got.Running != l.Running || got.Waiting != l.Waiting ||
			got.Loading != l.Loading || got.Fetching != l.Fetching ||
			math.Float64bits(got.Usage) != math.Float64bits(l.Usage) {
			t.Errorf("%s: %+v became %+v", name, l, got)
		}
		if !r.Plausible() {
			t.Errorf("%s: %+v is not plausible", name, r)
		}
	}
}

// An impossible report is corrected to the nearest possible values.
func TestNonsenseOfAReport(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	r := &Report{Age: -time.Hour, Running: math.MaxInt, Waiting: math.MinInt, Loading: -7, Usage: math.Inf(1)}
	if r.Plausible() {
		t.Errorf("%+v is plausible", r)
	}
	if got, want := r.Load(
		now,
	), (Load{At: now, Source: Metrics, Running: 1 << 30, Waiting: -1, Loading: -1, Usage: 1}); got != want {
		t.Errorf("it is taken for %+v, want %+v", got, want)
	}
}
