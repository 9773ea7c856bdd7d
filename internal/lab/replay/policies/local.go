package policies

import (
	"fmt"
	"math"
	"strings"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// withLocal after the name of another router's policy adds a rule for local prefills: "lmetric+local:k=2".
// Settings of the rule may follow. Without settings it is Dynamo's default rule.
const withLocal = "+local"

// localRule decides, after a policy has chosen a pair, whether the decode replica prefills the request
// itself. It is added to policies without such a rule, so that Tandem has no choice that its rivals lack.
//
// There are two kinds of rules. A rule by tokens, as in Dynamo and llm-d, prefills locally if few tokens are
// left to compute, or if too many requests wait for a prefill replica. A rule by seconds prefills locally if
// k times the local TTFT is less than the pair's TTFT. The local TTFT includes the delay of other requests
// there.
type localRule struct {
	Picker
	tokens, share, near, queue float64
	k, pause                   float64
}

func (x *localRule) params() []Param {
	return []Param{
		{"tokens", &x.tokens, "below this many uncached tokens, decode prefills itself", nil},
		{"share", &x.share, "and below this share of the prompt; above 1 for any", nil},
		{
			"near", &x.near, "1: count the tokens at the decode replica with the fewest tokens to compute",
			nil,
		},
		{
			"queue", &x.queue, "decode prefills itself if this many requests wait for prefill replicas; " +
				"0 for never", nil,
		},
		{
			"k", &x.k, "instead of tokens: decode prefills itself if k times its TTFT is less than the pair's TTFT",
			nil,
		},
		{"pause", &x.pause, "each request there adds this share of the own prefill time to the local TTFT", nil},
	}
}

// localKept is the reserve of the rule by seconds: prompts times this factor must fit on a decode replica.
const localKept = 1.1

// Pick applies the policy and then the rule.
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

// waiting is the number of requests that wait for a prefill replica. Each replica computes one at a time.
func waiting(ps []Replica) float64 {
	n := 0
	for i := range ps {
		n += max(0, ps[i].Requests-1)
	}
	return float64(n)
}

// bySeconds compares the pair with the decode replica that would give the first token soonest.
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

// cutLocal splits a name into the policy and its rule; "" without a rule.
func cutLocal(name string) (policy, rule string) {
	if at := strings.Index(name, withLocal); at >= 0 {
		return name[:at], name[at:]
	}
	return name, ""
}

// localize adds a rule to another router's policy, for a fleet with two pools.
func localize(picker Picker, rule string) (Picker, error) {
	settings, ok := strings.CutPrefix(rule, withLocal)
	if settings != "" {
		settings, ok = strings.CutPrefix(settings, ":")
	}
	if !ok {
		return nil, fmt.Errorf("%q: want a rule like %s:k=2", rule, withLocal)
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

// Locals are the rules that tuning tries with a policy: none, the authors' rules, and rules by tokens and by
// seconds near the values that were best elsewhere.
func Locals() []string {
	return []string{
		"",
		"+local",                     // Dynamo 1.6: fewer than 2,048 tokens and 70 % of the prompt
		"+local:tokens=16",           // llm-d's sample
		"+local:tokens=1000:queue=2", // Dynamo's first rule: or two requests wait for a prefill replica
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

// dynamoMixed is Dynamo's cost in one pool: the prefill tokens of running requests and of this one, minus a
// credit for the overlap, plus the tokens of all active requests.
type dynamoMixed struct{ credit, blocks float64 }

func defaultDynamoMixed() *dynamoMixed { return &dynamoMixed{credit: 1, blocks: 1} }

func (y *dynamoMixed) params() []Param {
	return []Param{
		{"credit", &y.credit, "of a matched token", []float64{0.5, 1, 1.5, 2, 3, 4}},
		{"blocks", &y.blocks, "weight of a token of the replica's active requests", nil},
	}
}

// Pick adds tokens.
func (y *dynamoMixed) Pick(q *Query, ps, ds []Replica) (p, d int) {
	p = least(q, ps, func(r *Replica) float64 {
		return float64(r.Tokens+q.Tokens) - y.credit*float64(r.Matched) + y.blocks*float64(r.Prompts)
	})
	return p, least(q, ds, func(r *Replica) float64 { return float64(r.Prompts) })
}

// WithoutLocal is the form of a policy without its rule for local prefills.
func WithoutLocal(form string) string {
	name, _ := cutLocal(form)
	return name
}
