package claims

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// loaded is the conversation on eight prefill and eight decode replicas with the larger cache, at a share of
// Tandem's capacity.
func loaded(part float64) cell { return cell{Conversation, "8P8D", 4, part * 2 * halfCapacity} }

// staleClaims compare fresh knowledge, which no usual deployment has, with the old knowledge of a bad
// deployment.
func staleClaims() []claim {
	var all []claim
	for _, c := range []struct{ routers, policy, what string }{
		{"", ours, ""},
		{"x4", shared, " by four routers that tell each other of their bookings ten times a second"},
		{"x4", ours, " by four routers that do not know of each other"},
	} {
		all = append(all, claim{
			name:   fmt.Sprintf("ttft_mean_stale_of_%s_over_fresh/conversation/8P8D%s/cache4", c.policy, c.routers),
			target: 0.15, bound: AtMost,
			how: "mean time to first token with reports every 5 s and events 1 s late" + c.what +
				" over that of one with reports every 0.1 s and no lag, - 1, at 80 % of the capacity",
			measure: func(ctx context.Context, l *lab) (Estimate, error) {
				at := loaded(0.8)
				fresh, stale := at.setting(ours), at.setting(c.policy)
				fresh.EventLag, fresh.Poll = 0, 100*time.Millisecond
				stale.EventLag, stale.Poll = time.Second, 5*time.Second
				stale.Cluster += c.routers
				return l.compare(ctx, meanTTFT, excess, stale, fresh)
			},
		})
	}
	return all
}

// overloadClaims are about the goodput under far more load than the fleet can serve.
func overloadClaims() []claim {
	var all []claim
	for _, policy := range []string{ours, limited} {
		all = append(all, claim{
			name:   fmt.Sprintf("goodput_of_%s_at_twice_capacity_over_peak/conversation/8P8D/cache4", policy),
			target: 0.9, bound: AtLeast,
			how: "good requests a second at twice the capacity over the most at 0.85, 1, 1.15, 1.5 and 2 times the " +
				"capacity",
			measure: func(ctx context.Context, l *lab) (Estimate, error) {
				c := loaded(1)
				return l.goodput(ctx, c.setting(policy), c.Load)
			},
		})
	}
	return all
}

func (l *lab) goodput(ctx context.Context, s Setting, capacity float64) (Estimate, error) {
	parts := []float64{0.85, 1, 1.15, 1.5, 2}
	samples, sessions := make([]*sample, len(parts)), 0
	var note strings.Builder
	fmt.Fprintf(&note, "capacity at load %.3g, goodput there", capacity)
	for i, part := range parts {
		runs, err := l.once(ctx, s.at(part*capacity))
		if err != nil {
			return Estimate{}, err
		}
		samples[i], sessions = sampleOf(good, runs, nil), max(sessions, units(runs))
		fmt.Fprintf(&note, ", x%g %.3g", part, part*value(good, runs))
	}
	e := bootstrap(sessions, func(times []float64) float64 {
		peak, last := 0.0, 0.0
		for i, part := range parts {
			last = part * samples[i].sum(times)
			peak = max(peak, last)
		}
		return last / peak
	})
	e.Note = note.String()
	return e, nil
}
