package replay

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

func TestTune(t *testing.T) {
	p := Play{Trace: file(t, 100), Cluster: "2P2D", Profile: "8b", Seed: 3}
	best, tried, err := p.Tune(t.Context(), "llm-d", func(o *Outcome) float64 {
		if o.Policy == "llm-d:prefix=10" {
			return 1
		}
		return 2
	})
	if err != nil || best != "llm-d:prefix=10" || len(tried) != 5 {
		t.Errorf("best %q of %d, %v", best, len(tried), err)
	}
	if best, _, _ := p.Tune(t.Context(), "llm-d", func(*Outcome) float64 { return 1 }); best != "llm-d" {
		t.Errorf("when all are equal %q is the best, want the authors' values", best)
	}
	if best, tried, err := p.Tune(t.Context(), "lmetric", Loss); err != nil || best != "lmetric" ||
		tried != nil {
		t.Errorf("without parameters: %q, %d played, %v", best, len(tried), err)
	}
	if _, _, err := p.Tune(t.Context(), "llm-d:prefi=1", Loss); err == nil {
		t.Error("an unknown parameter was tuned")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := p.Tune(ctx, "llm-d", Loss); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestTunedPoliciesArePlayedToo(t *testing.T) {
	p := Play{
		Trace: file(t, 60), Cluster: "2P2D", Profile: "8b", Policies: []string{"random", "llm-d"},
		Tuned: true,
	}
	all, err := p.Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range all {
		names = append(names, o.Policy)
	}
	if len(names) < 2 || len(names) > 3 || !slices.Equal(names[:2], []string{"random", "llm-d"}) {
		t.Errorf("played %q", names)
	}
}

func TestDevIsNotWhatIsReported(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{
		0: 30 * time.Minute, 10 * time.Minute: 5 * time.Minute,
	} {
		p := Play{For: given, Seed: 7}
		if d := p.Dev(); d.For != want || d.Seed == 7 {
			t.Errorf("of %v: %v with seed %d", given, d.For, d.Seed)
		}
	}
}

// Eight requests with 2 s, one refused request, and one whose client got an error.
func TestLossByHand(t *testing.T) {
	if got := Loss(&Outcome{Measured: 10, Refused: 1, Failed: 1, TTFT: Quantiles{Mean: 2}}); got != 7.6 {
		t.Errorf("%v, want (8*2 + 2*30)/10", got)
	}
}
