package suite

import (
	"context"
	"fmt"
)

// localClaims are about prefilling where it is decoded, beside never doing so, at 80 % of what the fleet
// holds without it.
func localClaims() []claim {
	at := func(ctx context.Context, l *lab) (cell, error) {
		return l.share(ctx, cell{Conversation, "8P8D", 4, 0}, split, guessOthers, 0.8)
	}
	return []claim{{
		name: "ttft_mean_below_without_local/conversation/8P8D/cache4", target: 0.2, bound: AtLeast,
		how: "1 - mean time to first token over that of " + split + ", at 80 % of the capacity of the latter",
		measure: func(ctx context.Context, l *lab) (Estimate, error) {
			c, err := at(ctx, l)
			if err != nil {
				return Estimate{}, err
			}
			return l.compare(ctx, meanTTFT, reduction, c.setting(ours), c.setting(split), l.many())
		},
	}, {
		name: "tpot_p99_with_local/conversation/8P8D/cache4", target: slo.TPOT.Seconds(), bound: AtMost,
		how: "p99 of the seconds a token, at the same load",
		measure: func(ctx context.Context, l *lab) (Estimate, error) {
			c, err := at(ctx, l)
			if err != nil {
				return Estimate{}, err
			}
			runs, err := l.seeds(ctx, c.setting(ours), l.many())
			if err != nil {
				return Estimate{}, err
			}
			return plain(p99TPOT, runs), nil
		},
	}}
}

// fleet is a shape in which the joint choice is compared with one in sequence, and the load at which 90 % of
// its requests are good with the joint one, with Local(d) and without: found by bisection with one seed.
type fleet struct {
	shape           string
	capacity, split float64
	scarce          bool // decode is scarce and links are unequal
}

func fleets() []fleet {
	return []fleet{
		{"4P4D", 1.3, 0.69, false},
		{"8P8D", 3.25, 2.1, false},
		{"16P16D", 7.25, 4.95, false},
		{"6P2D", 1.22, 1.23, false},
		{"2P6D", 1.4, 0.257, false},
		{"4P4D+4P4D@4", 3.24, 1.98, false},
		{"4P4D+4P4D@1", 3.17, 2.05, false},
		{"6P2D+2P6D@4", 3.03, 1.91, false},
		{"6P2D+2P6D@1", 2.92, 1.78, false},
		{"8P3D", 1.95, 1.93, false},
		{"4P2D+4P1D@4", 1.75, 1.69, true},
		{"4P2D+4P1D@1", 1.8, 1.54, true},
	}
}

// The parts of a fleet's capacity at which the two are compared. Decode is scarce only near it.
const (
	insideCapacity = 0.85
	nearCapacity   = 0.95
)

// sequenceClaims compare the joint choice with the same terms chosen in sequence: prefill first, then decode
// given it.
func sequenceClaims() []claim {
	var all []claim
	for _, f := range fleets() {
		for _, pair := range []struct {
			joint, sequential string
			capacity          float64
		}{
			{ours, "tandem-sequential", f.capacity},
			{split, "tandem-split-sequential", f.split},
		} {
			all = append(all, inSequence(f.shape, pair.joint, pair.sequential, pair.capacity, insideCapacity, 1.03))
			if f.scarce {
				all = append(all, inSequence(f.shape, pair.joint, pair.sequential, pair.capacity, nearCapacity, 0.75))
			}
		}
	}
	return all
}

func inSequence(shape, joint, sequential string, capacity, part, target float64) claim {
	at := cell{Conversation, shape, 1, part * capacity}
	return claim{
		name: fmt.Sprintf("ttft_mean_of_%s_over_%s/%v/%g", joint, sequential, at, part), target: target,
		bound: AtMost,
		how: fmt.Sprintf("mean time to first token over that of the same terms with prefill chosen first, at "+
			"%g of the capacity: load %.3g", part, at.Load),
		measure: func(ctx context.Context, l *lab) (Estimate, error) {
			return l.compare(ctx, meanTTFT, ratio, at.setting(joint), at.setting(sequential), l.many())
		},
	}
}

func oracleClaims() []claim {
	var all []claim
	for _, oracle := range []string{"oracle", "oracle-terms"} {
		all = append(all, claim{
			name: fmt.Sprintf("ttft_mean_over_%s/conversation/8P8D/cache4", oracle), target: 0.1, bound: AtMost,
			how: "mean time to first token over that of a router that knows the true state of everything, - 1, at " +
				"80 % of the capacity",
			measure: func(ctx context.Context, l *lab) (Estimate, error) {
				c, err := l.loaded(ctx, 0.8)
				if err != nil {
					return Estimate{}, err
				}
				return l.compare(ctx, meanTTFT, excess, c.setting(ours), c.setting(oracle), l.many())
			},
		})
	}
	return all
}
