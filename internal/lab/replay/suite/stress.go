package suite

import (
	"context"
	"fmt"
)

// stressClaims are about what breaks rules that were tuned on quiet traffic. Nobody tunes for it: the
// baselines have the values that were best without.
func stressClaims() []claim {
	var all []claim
	for _, h := range []hardship{
		{
			"hot", "three requests in ten begin with the same 20,000 tokens", func(s *Setting) { s.Stress.Hot = true },
		},
		{"flood", "no two requests have anything in common", func(s *Setting) { s.Stress.Flood = true }},
		{"surge", "for a minute everything comes twice as fast", func(s *Setting) { s.Stress.Surge = true }},
		{"ticks", "all requests of three seconds come at once", func(s *Setting) { s.Raw = true }},
		{
			"bursts", "requests come as unevenly as ServeGen's clients send them",
			func(s *Setting) { s.Bursts = true },
		},
		{
			"slow_half", "half of the prefill replicas have 0.6 of the speed",
			func(s *Setting) { s.Cluster = "4P4~0.6P8D" },
		},
	} {
		all = append(all, h.claim())
	}
	return all
}

// hardship is one way in which traffic or replicas are not as the rules expect.
type hardship struct {
	name, what string
	change     func(*Setting)
}

// claim is what is promised under the hardship, in the usual cell.
func (h hardship) claim() claim {
	usual := cell{Conversation, "8P8D", 1, 1.6}
	at := func(policy string) Setting {
		s := usual.setting(policy)
		h.change(&s)
		return s
	}
	return claim{
		name: fmt.Sprintf("%s_ttft_mean_over_best_baseline/%v", h.name, usual), target: 1, bound: AtMost,
		how: "mean time to first token where " + h.what +
			", over that of the best of the tuned baselines (by one seed)",
		measure: func(ctx context.Context, l *lab) (Estimate, error) {
			rivals, err := l.rivals(ctx, usual.dev(), meanTTFT)
			if err != nil {
				return Estimate{}, err
			}
			return l.beside(ctx, meanTTFT, ratio, at, rivals, 1)
		},
	}
}
