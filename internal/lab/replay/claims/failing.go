package claims

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// failing is something that goes wrong with replicas at half of our capacity.
type failing struct{ name, what, troubles string }

// failings are in the middle of a play of 558 s, of which the first fifth is not counted.
func failings() []failing {
	return []failing{
		{
			"decode_fails", "a decode replica answers everything with an error at once, for a minute",
			"d0:fail@250s+60s",
		},
		{"prefill_fails", "a prefill replica does", "p0:fail@250s+60s"},
		{
			"decode_half_fails", "a decode replica answers half of what it gets with an error", "d0:fail=0.5@250s+60s",
		},
		{
			"three_decode_fail", "three decode replicas of eight answer everything with an error",
			"d0:fail@250s+60s,d1:fail@250s+60s,d2:fail@250s+60s",
		},
		{"decode_slow", "everything takes a decode replica 20 times as long, for a minute", "d0:slow=20@250s+60s"},
		{
			"churn", "two replicas of each pool leave in turn, and come back empty after a minute",
			"d0:gone@200s+60s,p0:gone@270s+60s,d1:gone@340s+60s,p1:gone@410s+60s",
		},
	}
}

// guarded are the baselines that hold the load without troubles: Dynamo behind Envoy's outlier detection and
// behind smg's circuit breaker, and vllm-router with the latter, which is its own.
func guarded() []string { return []string{"dynamo:credit=3", "dynamo:credit=3+breaker", "kv-aware"} }

// halfCapacity is half of the load that ours holds with the larger cache.
const halfCapacity = 2.15

// failingClaims are about replicas that fail, are slow, or leave. One seed: they are about a minute, not
// about chance.
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

// besideOnce compares a figure of ours with the best of other policies, in one play of each.
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

// outside compares the mean time to first token between two settings. It takes only the requests that come
// while nothing is wrong in the first setting.
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

// drop removes from keep the requests that came from one time until another.
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

// span is from the beginning of the first trouble to the end of the last.
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
