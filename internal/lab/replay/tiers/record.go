package tiers

import (
	"io"
	"math/rand/v2"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/lab/trace"
)

// The set-up of the record (llm-d, guides/pd-disaggregation at 3cfabd6): gpt-oss-120b on H200, 8 prefill
// replicas on one GPU each and 2 decode replicas on four GPUs each, vLLM 0.27.1. What the record does not
// say is worked out from the model and the GPU, never from the record's results.
const (
	prefillReplicas = 8
	decodeReplicas  = 2

	blockSize = 128
	// The KV of a prefill replica, as vLLM reported it: for prompts of 131,072 tokens, which take 1,024 blocks
	// of full attention and 66 of the sliding window (127 tokens and a step of 8,192, and one more block).
	prefillTokens = 1_630_790
	prefillBlocks = prefillTokens * (1024 + 66) / 131_072
	hostMemory    = 100 << 30 // bytes beside each prefill replica

	// The KV of a token: 18 layers of full attention with 8 heads of 64 values for keys and for values, 2 bytes
	// each. The other 18 layers need 128 tokens of a prompt, and vLLM keeps as many blocks for them until they
	// are evicted.
	tokenBytes = 18 * 2 * 8 * 64 * 2
	// Of a decode replica: 0.9 of four GPUs with 150.7 GB, less 66 GB of weights, and 5 GB on each to compute.
	decodeTokens = (4*135_630_000_000 - 66_000_000_000 - 4*5_000_000_000) / tokenBytes

	pcie = 50_000_000_000 // bytes a second between host memory and a GPU: PCIe 5.0 with 16 lanes has 63e9
	link = 40_000_000_000 // between replicas: 400 Gbit/s have 50e9

	// As in other plays: measured hosts, and the usual fleet.
	request = 8 * time.Millisecond
	token   = 1500 * time.Nanosecond
	hop     = 500 * time.Microsecond
	handoff = 2 * time.Millisecond

	groups, prompts = 1000, 5 // prefixes, and prompts behind each
	shared, own     = 16_000, 256
	output          = 256
	stage, pause    = time.Minute, time.Minute
)

// rates are the requests a second of the stages.
func rates() []int { return []int{5, 10, 15, 20, 25, 30, 35, 40} }

// prefillCost is the time of a step on one H200. llm-d's guide measured 33,821 tokens a second of such a
// replica: 8,192 token ids over the time to the first token of so many, alone in the fleet
// (guides/recipes/router/calibration). The way through the fleet takes a part of this time; no text is
// tokenized. Attention takes what the same operations take in the measured kernels of another model on this
// GPU (h200-llama-8b-1): 18 layers of 4,096 values against 32. The rest is for each token.
func prefillCost() core.Cost {
	const step = 8192
	way := 4*hop + 2*request + handoff + time.Duration(step*tokenBytes*int64(time.Second)/link)
	d := decodeCost()
	c := core.Cost{T0: 5e-3, B: 1.12e-9 * 18 / 32, Host: 0.5e-3}
	took := step/33_821.0 - way.Seconds() - (d.Host + d.D0 + d.D1 + d.D2*step)
	c.A = (took-c.T0-c.Host)/step - c.B*step/2
	c.D0, c.D1 = c.T0, c.A
	return c
}

// decodeCost is the time of a step on four H200. The guide's plain load (45 requests a second of 5,000 and
// 250 tokens, another workload of the same report) has 7.4 ms a token with 41 requests on each replica. Of
// these, each token of KV takes its bytes at 70 % of the GPUs' bandwidth, and each request the experts that
// it adds.
func decodeCost() core.Cost {
	c := core.Cost{D1: 60e-6, D2: tokenBytes / (4 * 4.8e12 * 0.7), Host: 0.5e-3}
	c.D0 = 7.4e-3 - c.Host - 41*(c.D1+5125*c.D2)
	c.T0 = 5e-3
	c.A = 6e-6 // nothing is prefilled there in the record
	return c
}

// fleet makes the engines, with host memory or without. vLLM 0.27 keeps every block of a sliding window, on
// the GPU and in host memory (prefix_cache_retention_interval is unset before 0.29).
func fleet(tier bool) cluster.Config {
	c := cluster.Config{
		TokenBytes: tokenBytes, LinkModel: cluster.Shared, EventLag: 100 * time.Millisecond,
		Setup: handoff, Hop: hop, Host: cluster.HostTime{Request: request, Token: token}, StepLoad: true,
	}
	for class := range c.Links {
		c.Links[class] = link
	}
	engine := func(blocks int, cost core.Cost) core.Config {
		return core.Config{
			BlockSize: blockSize, Blocks: blocks + 1, MaxModelLen: 131_072, Vocab: 1 << 17, MaxSeqs: 1024,
			Cost: cost,
		}
	}
	p := engine(prefillBlocks, prefillCost())
	p.Groups = []core.Group{{Kind: "full_attention"}, {Kind: "sliding_window", Window: 128}}
	p.Retain = true
	if tier {
		copied := time.Duration(blockSize * tokenBytes * int64(time.Second) / pcie)
		p.Tier = core.Tier{Blocks: hostMemory / (blockSize * tokenBytes), Read: copied, Write: copied}
	}
	for range prefillReplicas {
		c.Nodes[cluster.Prefill] = append(c.Nodes[cluster.Prefill], cluster.Node{Engine: p})
	}
	for range decodeReplicas {
		c.Nodes[cluster.Decode] = append(c.Nodes[cluster.Decode],
			cluster.Node{Engine: engine(decodeTokens/blockSize, decodeCost())})
	}
	return c
}

// load is the requests of the record, as its load generator (inference-perf) makes them: all prompts in a
// random order, and from the beginning again; the times of a stage are drawn.
type load struct {
	at    []time.Duration
	order []int // of prompts
	next  int
}

func newLoad(seed uint64) *load {
	rnd := rand.New(rand.NewPCG(seed, 0x74696572))
	l := &load{order: rnd.Perm(groups * prompts)}
	begin := time.Duration(0)
	for _, rate := range rates() {
		at := 0.0
		times := make([]float64, rate*int(stage.Seconds()))
		for i := range times {
			at += rnd.ExpFloat64()
			times[i] = at
		}
		for _, t := range times { // as many as the rate says, in the whole stage
			l.at = append(l.at, begin+time.Duration(t/at*float64(stage)))
		}
		begin += stage + pause
	}
	return l
}

// Next gives one request.
func (l *load) Next() (*trace.Session, error) {
	if l.next == len(l.at) {
		return nil, io.EOF
	}
	which := l.order[l.next%len(l.order)]
	group := uint64(which/prompts) + 1
	ids := make([]uint64, 0, (shared+own)/blockSize)
	for i := range shared / blockSize {
		ids = append(ids, group<<32|uint64(i))
	}
	for i := range own / blockSize {
		ids = append(ids, group<<32|uint64(which%prompts+1)<<16|uint64(i))
	}
	s := trace.Single(l.at[l.next], blockSize, shared+own, output, ids)
	l.next++
	return s, nil
}

func (l *load) began() []time.Duration {
	all := make([]time.Duration, len(rates()))
	for i := range all {
		all[i] = time.Duration(i) * (stage + pause)
	}
	return all
}
