package policies

import (
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// llmdTiers is llm-d's precise P/D profile (guides/pd-disaggregation/router/pd-multi-tier.values.yaml): the
// share of matched blocks 3, each block of lower memory weighing less, the queue 2 and free KV memory 2, by
// the last report; decode by active requests. Every request is split.
type llmdTiers struct {
	prefix, queue, usage, cpu float64
	most                      int // tokens of a prompt that are matched; 0 for all
}

func defaultLLMDTiers() *llmdTiers { return &llmdTiers{prefix: 3, queue: 2, usage: 2} }

func (l *llmdTiers) params() []Param {
	return []Param{
		{"cpu", &l.cpu, "weight of a block that only host memory has, of 1 for the GPU", []float64{0, 0.4, 0.8}},
		{"prefix", &l.prefix, "weight of the share of matched blocks", nil},
		{"queue", &l.queue, "weight of the queue, as a share of the spread between the replicas", nil},
		{"usage", &l.usage, "weight of free KV memory", nil},
	}
}

// Pick scores.
func (l *llmdTiers) Pick(q *Query, ps, ds []Replica) (p, d int) {
	idle := idleness(ps)
	tokens := q.Tokens
	if l.most > 0 {
		tokens = min(tokens, l.most)
	}
	p = least(q, ps, func(r *Replica) float64 {
		blocks := float64(r.OnGPU) + l.cpu*float64(max(0, r.Matched-r.OnGPU))
		return -(l.prefix*blocks/float64(tokens) + l.queue*idle(r) + l.usage*(1-r.Usage))
	})
	return p, least(q, ds, requests)
}

// llm-d's default of 2025 remembers what was sent to a replica: the newest 31,250 blocks of 64 letters, of at
// most 256 blocks a prompt. With four letters a token, as llm-d says, a block of ours has four of theirs.
const (
	sentHead   = 256 * 64 / 4
	sentBlocks = 31_250 * 64 / 4 / sentBlock
	sentBlock  = 64 // tokens of a block of the engines
)

func defaultLLMDSent() *llmdTiers { return &llmdTiers{prefix: 1, queue: 1, usage: 1, most: sentHead} }

// believed is for how long llm-d believes that a prompt is where it was sent (speculativeTTL).
const believed = 2 * time.Second

// byTier follows the blocks on the GPUs of one side by themselves. The zero value follows nothing.
//
// As llm-d's index does (pkg/kvevents/pool.go, isPrefixIndexableSpecKind), it leaves out what is told of
// sliding windows and states. So it takes a prefix for present that an engine cannot use, because the blocks
// of its windows are gone.
type byTier struct {
	gpu   *kv.Index
	all   *kv.Index
	depth []int32
	seen  kv.Batch
	thin  map[int]bool // groups
}

func newByTier(all *kv.Index, size, replicas int) byTier {
	return byTier{
		gpu: kv.NewIndex(kv.Options{Chain: kv.NewChain("", size)}), all: all, depth: make([]int32, replicas),
		thin: map[int]bool{},
	}
}

// apply reads events. It reports whether it does: then nobody else has to.
func (t *byTier) apply(h kv.Holder, b *kv.Batch) bool {
	if t.gpu == nil {
		return false
	}
	t.seen.Events = t.seen.Events[:0]
	for _, e := range b.Events {
		if e.SpecKind != "" {
			t.thin[e.Group] = e.SpecKind != "full_attention"
		}
		if !t.thin[e.Group] {
			t.seen.Events = append(t.seen.Events, e)
		}
	}
	t.all.Apply(h, &t.seen)
	t.seen.Events = slices.DeleteFunc(t.seen.Events, func(e kv.Event) bool { return e.Tier != kv.GPU })
	t.gpu.Apply(h, &t.seen)
	return true
}

// match sets OnGPU of the replicas, which have Matched.
func (t *byTier) match(q *cluster.Query, size int, rs []Replica) {
	if t.gpu == nil {
		return
	}
	t.gpu.Match(q.Keys, t.depth)
	for i := range rs {
		rs[i].OnGPU = min(int(t.depth[i])*size, rs[i].Matched)
	}
}

// believe says that a replica will have a prompt.
func (t *byTier) believe(i int, keys []kv.Key, now time.Time) {
	if t.gpu != nil && i >= 0 {
		t.gpu.Speculate(kv.Holder(i), keys, now.Add(believed))
		t.all.Speculate(kv.Holder(i), keys, now.Add(believed))
	}
}

func (t *byTier) expire(now time.Time) {
	if t.gpu != nil {
		t.gpu.Expire(now)
		t.all.Expire(now)
	}
}
