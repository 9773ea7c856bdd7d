package policies

import (
	"fmt"
	"math"
	"strings"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// withLocal behind the name of a policy of the field lets it prefill where it decodes: "lmetric+local:k=2".
// Behind it may stand settings of the rule, and without any it is the one that Dynamo ships.
const withLocal = "+local"

// localRule decides, after a policy has chosen a pair, whether the request is prefilled where it decodes. A
// policy of the field without such a rule can be given one: otherwise Tandem would have a choice that the
// policy is denied.
//
// There are two kinds of rules. By tokens, as in Dynamo and llm-d: few tokens are left to be computed, or
// too many requests wait for a prefill replica. Or by seconds: k times the local time to the first token is
// less than the pair's time. The local time includes the delay of other requests there.
type localRule struct {
	Picker
	tokens, share, near, queue float64
	k, pause                   float64
}

func (x *localRule) params() []Param {
	return []Param{
		{"tokens", &x.tokens, "uncached tokens below which decode prefills by itself", nil},
		{"share", &x.share, "of the prompt that these must be less than, too; above 1 for any", nil},
		{
			"near", &x.near, "1: looked at is the decode replica with the fewest tokens to compute",
			nil,
		},
		{
			"queue", &x.queue, "requests that wait for prefill replicas, from which on decode prefills by itself; " +
				"0 for never", nil,
		},
		{
			"k", &x.k, "in the place of tokens: so many times the seconds to the first token there must be less " +
				"than those by way of a prefill replica", nil,
		},
		{"pause", &x.pause, "share of the own prefill that each request there counts as a second of the wait", nil},
	}
}

// localKept is how much of a decode replica's room is left alone by the rule by seconds.
const localKept = 1.1

// Pick asks the policy, and then the rule.
func (x *localRule) Pick(q *Query, ps, ds []Replica) (p, d int) {
	p, d = x.Picker.Pick(q, ps, ds)
	if p < 0 {
		return p, d
	}
	if x.k > 0 {
		return x.bySeconds(q, ps, ds, p, d)
	}
	if x.queue > 0 && waiting(ps) >= x.queue {
		return -1, d
	}
	at := d
	if x.near != 0 {
		at = least(q, ds, q.work)
	}
	left := float64(q.Tokens - ds[at].Matched)
	if x.near != 0 {
		left = q.work(&ds[at])
	}
	if left < x.tokens && left < x.share*float64(q.Tokens) {
		return -1, at
	}
	return p, d
}

// waiting is the requests that wait for a prefill replica. Each replica computes one at a time.
func waiting(ps []Replica) float64 {
	n := 0
	for i := range ps {
		n += max(0, ps[i].Requests-1)
	}
	return float64(n)
}

// bySeconds compares the pair with the decode replica where the first token would come soonest.
func (x *localRule) bySeconds(q *Query, ps, ds []Replica, p, d int) (int, int) {
	cost := func(r *Replica) float64 {
		if float64(r.Prompts+q.Tokens)*localKept >= float64(r.Capacity) {
			return math.Inf(1)
		}
		own := r.Speed.Prefill(q.Tokens-r.Matched, r.Matched)
		return r.Work.Seconds() + own + x.pause*own*float64(r.Requests)
	}
	at := least(q, ds, cost)
	r := &ps[p]
	pair := r.Work.Seconds() + r.Speed.Prefill(q.Tokens-r.Matched, r.Matched) +
		q.PerToken(p, d)*float64(q.Tokens-ds[d].Matched)
	if x.k*cost(&ds[at]) < pair {
		return -1, at
	}
	return p, d
}

// cutLocal takes the rule off a policy's name; "" where there is none.
func cutLocal(name string) (policy, rule string) {
	if at := strings.Index(name, withLocal); at >= 0 {
		return name[:at], name[at:]
	}
	return name, ""
}

// localize puts a rule around a policy of the field, for a fleet with two pools.
func localize(picker Picker, rule string) (Picker, error) {
	settings, ok := strings.CutPrefix(rule, withLocal)
	if settings != "" {
		settings, ok = strings.CutPrefix(settings, ":")
	}
	if !ok {
		return nil, fmt.Errorf("%q is not like %s:k=2", rule, withLocal)
	}
	x := &localRule{Picker: picker, tokens: 2048, share: 0.7}
	if settings != "" {
		x.tokens, x.share = 0, 2
	}
	if err := set(x, settings); err != nil {
		return nil, fmt.Errorf("%s: %w", withLocal, err)
	}
	return x, nil
}

// Locals are the rules that tuning tries behind a policy's name: none, the authors' rules, and thresholds
// and seconds around the values that were best elsewhere.
func Locals() []string {
	return []string{
		"",
		"+local",                     // Dynamo 1.6: fewer than 2,048 tokens and 70 % of the prompt
		"+local:tokens=16",           // llm-d's sample
		"+local:tokens=1000:queue=2", // Dynamo's first: or two wait for a prefill replica
		"+local:tokens=4096:near=1",
		"+local:tokens=16384:near=1",
		"+local:k=1.3:pause=0.1",
		"+local:k=2",
		"+local:k=2:pause=0.03",
		"+local:k=3.5",
	}
}

// mixed reports whether a fleet has one pool, of replicas that do everything.
func mixed(c *cluster.Config) bool { return len(c.Nodes[cluster.Prefill]) == 0 }

// dynamoMixed is Dynamo's cost in one pool: prefill tokens under way and own, less credit for the overlap,
// and the tokens of all active requests there.
type dynamoMixed struct{ credit, blocks float64 }

func defaultDynamoMixed() *dynamoMixed { return &dynamoMixed{credit: 1, blocks: 1} }

func (y *dynamoMixed) params() []Param {
	return []Param{
		{"credit", &y.credit, "of a matched token", []float64{0.5, 1, 1.5, 2, 3, 4}},
		{"blocks", &y.blocks, "weight of a token of those that are active there", nil},
	}
}

// Pick adds tokens.
func (y *dynamoMixed) Pick(q *Query, ps, ds []Replica) (p, d int) {
	p = least(q, ps, func(r *Replica) float64 {
		return float64(r.Tokens+q.Tokens) - y.credit*float64(r.Matched) + y.blocks*float64(r.Prompts)
	})
	return p, least(q, ds, func(r *Replica) float64 { return float64(r.Prompts) })
}

// WithoutLocal is a policy's form without its rule.
func WithoutLocal(form string) string {
	name, _ := cutLocal(form)
	return name
}
