package suite

import (
	"context"
	"fmt"
	"time"
)

// pressure is so many clients with prompts of 16,000 tokens and long answers on four and four engines of
// 822,000 tokens of KV that they ask for 1.2 times what decode holds.
func pressure(policy string) Setting {
	const kv = 822_000
	const prompt, answer = 16_000, 3_000
	ceiling := 4 * kv / (prompt + answer/2)
	return Setting{
		Workload: Clients, Cluster: "4P4D", Cache: kv / 418e3, Policy: policy, EventLag: 100 * time.Millisecond,
		Poll: time.Second,
		Loops: Loops{
			Clients: ceiling * 12 / 10, Calls: 5, Input: prompt, MinOutput: answer / 2, MaxOutput: answer * 3 / 2,
			Stagger: 200 * time.Millisecond,
		},
	}
}

func pressureClaims() []claim {
	const counted = "least-requests"
	return []claim{{
		name: "decode_pressure_ttft_p99_below_count/clients/4P4D", target: 0.3, bound: AtLeast,
		how: "1 - p99 of the time to first token over that of a choice by counts without admission, at 1.2 times " +
			"the KV of the decode pool",
		measure: func(ctx context.Context, l *lab) (Estimate, error) {
			return l.compare(ctx, steady(p99TTFT), reduction, pressure(ours), pressure(counted), l.many())
		},
	}, {
		name: "decode_pressure_good_above_count/clients/4P4D", target: 0.1, bound: AtLeast,
		how: "share of good requests, refused ones not being good, where nobody is let in whose first token " +
			"would come after 5 s, less that of a choice by counts without admission",
		measure: func(ctx context.Context, l *lab) (Estimate, error) {
			return l.compare(ctx, steady(good), difference, pressure(limited), pressure(counted), l.many())
		},
	}, {
		name: "decode_pressure_cold_longest_wait/clients/4P4D", target: 10, bound: AtMost,
		how: "longest time to a first token in seconds, from a router that has seen no answer yet, where nobody " +
			"is let in whose first token would come after 5 s",
		measure: func(ctx context.Context, l *lab) (Estimate, error) {
			runs, err := l.seeds(ctx, pressure(limited), l.many())
			if err != nil {
				return Estimate{}, err
			}
			return plain(longestTTFT, runs), nil
		},
	}}
}

// transferClaims are about 64 clients with prompts of 8,000 tokens: neither always moving the KV nor never
// doing so may be better than deciding.
func transferClaims() []claim {
	var all []claim
	for _, link := range []float64{40, 3, 1} {
		at := func(policy string) Setting {
			return Setting{
				Workload: Clients, Cluster: "4P4D", Cache: 1, Link: link, Policy: policy,
				EventLag: 100 * time.Millisecond, Poll: time.Second,
				Loops: Loops{
					Clients: 64, Calls: 20, Input: 8_000, MinOutput: 128, MaxOutput: 384, Stagger: 50 * time.Millisecond,
				},
			}
		}
		for _, what := range []struct {
			name, of string
			figure
		}{
			{"ttft_p99", "p99 of the time to first token, of all requests as it was published: of these, the first " +
				"of each client come at once,", p99TTFT},
			{
				"steady_ttft_p99", "p99 of the time to first token, without the first request of each client,",
				steady(p99TTFT),
			},
			{"e2e_mean", "mean time to the last token", steady(meanEnd)},
		} {
			all = append(all, claim{
				name: fmt.Sprintf("%s_over_better_fixed_choice/clients/4P4D/%gGBs", what.name, link), target: 0.05,
				bound: AtMost,
				how:   what.of + " over that of the better of always and never transferring, - 1",
				measure: func(ctx context.Context, l *lab) (Estimate, error) {
					return l.beside(ctx, what.figure, excess, at, []string{split, "tandem-local"}, l.many())
				},
			})
		}
	}
	return all
}
