package claims

import (
	"context"
	"time"
)

// pressure is clients with prompts of 16,000 tokens and long answers, on four and four engines with 822,000
// tokens of KV. The clients ask for 1.2 times the decode engines' capacity.
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

// pressureClaims are about more prompts than the decode pool has room for.
func pressureClaims() []claim {
	const counted = "least-requests"
	return []claim{{
		name: "decode_pressure_ttft_p99_below_count/clients/4P4D", target: 0.3, bound: AtLeast,
		how: "1 - p99 of the time to first token over that of a choice by counts without admission, at 1.2 times " +
			"the KV of the decode pool",
		measure: func(ctx context.Context, l *lab) (Estimate, error) {
			return l.compare(ctx, steady(p99TTFT), reduction, pressure(ours), pressure(counted))
		},
	}, {
		name: "decode_pressure_good_above_count/clients/4P4D", target: 0.1, bound: AtLeast,
		how: "share of good requests, refused ones not being good, where nobody is let in whose first token " +
			"would come after 5 s, less that of a choice by counts without admission",
		measure: func(ctx context.Context, l *lab) (Estimate, error) {
			return l.compare(ctx, steady(good), difference, pressure(limited), pressure(counted))
		},
	}, {
		name: "decode_pressure_cold_longest_wait/clients/4P4D", target: 10, bound: AtMost,
		how: "longest time to a first token in seconds, from a router that has seen no answer yet, where nobody " +
			"is let in whose first token would come after 5 s",
		measure: func(ctx context.Context, l *lab) (Estimate, error) {
			runs, err := l.once(ctx, pressure(limited))
			if err != nil {
				return Estimate{}, err
			}
			return plain(longestTTFT, runs), nil
		},
	}}
}
