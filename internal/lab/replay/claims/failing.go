package claims

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// failing is a failure of replicas at half of Tandem's capacity.
type failing struct{ name, what, troubles string }

// failings happen in the middle of a play of 558 s. The first fifth of the play is not counted.
func failings() []failing {
	return []failing{
		{
			"decode_fails", "a decode replica answers every request with an error at once, for a minute",
			"d0:fail@250s+60s",
		},
		{"prefill_fails", "a prefill replica does so", "p0:fail@250s+60s"},
		{
			"decode_half_fails", "a decode replica answers half of its requests with an error", "d0:fail=0.5@250s+60s",
		},
		{
			"three_decode_fail", "three decode replicas of eight answer every request with an error",
			"d0:fail@250s+60s,d1:fail@250s+60s,d2:fail@250s+60s",
		},
		{"decode_slow", "a decode replica is 20 times slower, for a minute", "d0:slow=20@250s+60s"},
		{
			"churn", "two replicas of each pool leave in turn, and come back empty after a minute",
			"d0:gone@200s+60s,p0:gone@270s+60s,d1:gone@340s+60s,p1:gone@410s+60s",
		},
	}
}

// guarded are the baselines that hold the load without failures: Dynamo with Envoy's outlier detection,
// Dynamo with smg's circuit breaker, and vllm-router with its own circuit breaker, which is the same as
// smg's.
func guarded() []string { return []string{"dynamo:credit=3", "dynamo:credit=3+breaker", "kv-aware"} }

// halfCapacity is half of Tandem's capacity with the larger cache.
const halfCapacity = 2.15

// failingClaims are about replicas that fail, are slow, or leave. They use one seed, because they compare one
// minute and not random effects.
func failingClaims() []claim {
	c := cell{Conversation, "8P8D", 4, halfCapacity}
	var all []claim
	for _, f := range failings() {
		at := func(policy string) Setting {
			s := c.setting(policy)
			s.Troubles = f.troubles
			return s
		}
		all = append(all, claim{
			name: fmt.Sprintf("%s_errors_beyond_best_baseline/%v", f.name, c), target: 0, bound: AtMost,
			how: "clients that get an error, of 10,000, less those of the baseline with the fewest, where " + f.what,
			measure: func(ctx context.Context, l *lab) (Estimate, error) {
				return l.besideOnce(ctx, errors10k, difference, at, guarded())
			},
		}, claim{
			name: fmt.Sprintf("%s_ttft_mean_over_best_baseline/%v", f.name, c), target: 1, bound: AtMost,
			how: "mean time to first token over that of the best baseline, an error counting as 30 s, where " + f.what,
			measure: func(ctx context.Context, l *lab) (Estimate, error) {
				return l.besideOnce(ctx, meanTTFT, ratio, at, guarded())
			},
		}, claim{
			name: fmt.Sprintf("%s_ttft_mean_outside/%v", f.name, c), target: 1.05, bound: AtMost,
			how: "mean time to first token of requests that come before or after, over that without any trouble, " +
				"where " + f.what,
			measure: func(ctx context.Context, l *lab) (Estimate, error) {
				return l.outside(ctx, at(ours), c.setting(ours))
			},
		})
	}
	return all
}

// besideOnce compares a figure of Tandem with the best of other policies, with one play of each.
func (l *lab) besideOnce(
	ctx context.Context, f figure, with func(a, b float64) float64, at func(policy string) Setting,
	others []string,
) (Estimate, error) {
	best := ""
	least := 0.0
	note := []string{}
	for _, name := range others {
		runs, err := l.once(ctx, at(name))
		if err != nil {
			return Estimate{}, err
		}
		v := value(f, runs)
		note = append(note, fmt.Sprintf("%s %.3g", name, v))
		if best == "" || v < least {
			best, least = name, v
		}
	}
	e, err := l.compare(ctx, f, with, at(ours), at(best))
	e.Note += " of " + best + "; " + strings.Join(note, ", ")
	return e, err
}

// outside compares the mean TTFT of two settings. It counts only the requests that arrive while no replica
// fails in the first setting.
func (l *lab) outside(ctx context.Context, troubled, calm Setting) (Estimate, error) {
	a, err := l.once(ctx, troubled)
	if err != nil {
		return Estimate{}, err
	}
	b, err := l.once(ctx, calm)
	if err != nil {
		return Estimate{}, err
	}
	from, to, err := span(troubled.Troubles)
	if err != nil {
		return Estimate{}, err
	}
	keep := common(a, b)
	drop(keep, a, from, to)
	sa, sb := sampleOf(meanTTFT, a, keep), sampleOf(meanTTFT, b, keep)
	e := bootstrap(units(a, b), func(times []float64) float64 { return ratio(sa.sum(times), sb.sum(times)) })
	all := ones(units(a, b))
	e.Note = fmt.Sprintf("%.3g against %.3g, of %d requests", sa.sum(all), sb.sum(all), len(sa.number))
	return e, nil
}

// drop removes the requests that arrived between two times from keep.
func drop(keep []map[id]bool, runs []*Trial, from, to time.Duration) {
	for i, r := range runs {
		for k := range r.Answers {
			x := &r.Answers[k]
			if at := time.Duration(float64(x.At) * 1e9); at >= from && at < to {
				delete(keep[i], x.id())
			}
		}
	}
}

// span is the time from the begin of the first failure to the end of the last.
func span(troubles string) (from, to time.Duration, err error) {
	all, err := cluster.ParseTroubles(troubles)
	for i, t := range all {
		if i == 0 || t.From < from {
			from = t.From
		}
		to = max(to, t.To)
	}
	return from, to, err
}
