package tiers

import (
	"io"
	"math"
	"math/rand/v2"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/lab/trace"
)

// The set-up of llm-d's precise guide (the blog of 24 September 2025, and benchmarking in llm-d-kv-cache):
// Qwen3-32B on H100, 8 replicas on two GPUs each, nothing split. The cost of steps is the preset of measured
// kernels.
const (
	guideReplicas = 8
	guideBlock    = 64
	guideTokens   = 307_328 // of KV, as vLLM reported

	guideGroups, guidePrompts = 150, 5
	// 6,000 and 1,200 random tokens, sent as text, came to the engines as 7,576 tokens in the mean: the input
	// length in the report of the same load, in llm-d's guide inference-scheduling.
	guideShared = 6000 * guideLong / 7200 / guideBlock * guideBlock
	guideLong   = 7576
	guideOutput = 1000

	// The load generator sends at most so many requests at once: ten for each worker, and a worker for every two
	// CPUs (inference-perf, config.py of 2025). The record does not say how many CPUs. 160 are a guess: so many
	// have the machines with 8 H100 of IBM, where two of the authors work. Throughputs of the record led to it.
	guideInFlight = 10 * 160 / 2
	guidePause    = 2 * time.Second // between the last answer of a stage and the next stage
)

// guideStage is some seconds of requests.
type guideStage struct{ rate, seconds int }

// guideStages are the stages, a warm-up first.
func guideStages() []guideStage {
	return []guideStage{
		{15, 50},
		{3, 20},
		{10, 20},
		{15, 20},
		{20, 38},
		{22, 34},
		{25, 30},
		{30, 25},
		{35, 21},
		{40, 38},
		{43, 36},
		{46, 33},
		{49, 30},
		{52, 29},
		{55, 27},
		{57, 26},
		{60, 25},
	}
}

// Guide is the record of llm-d's precise guide: four policies, and Tandem.
func Guide() Record {
	ttft := func(s float64) [4]float64 { return [4]float64{2: s} }
	return Record{
		fleet: guideFleet, load: func(seed uint64) staged { return newGuideLoad(seed, guideStages()) },
		span: 70 * time.Minute, // about
		Arms: []Arm{
			{"llm-d, precise", "llm-d-tiers", false, theirPoll, ttft(0.298)},
			{"llm-d, by what was sent", "llm-d-sent", false, theirPoll, ttft(13.316)},
			{"random", "random", false, theirPoll, ttft(45.281)},
			{"llm-d, by load", "llm-d-tiers:prefix=0:queue=1:usage=1", false, theirPoll, ttft(46.987)},
			{"Tandem", "tandem", false, ourPoll, [4]float64{}},
		},
	}
}

func guideFleet(Arm) cluster.Config {
	preset, _ := core.FindPreset("h100-qwen3-32b-2")
	c := cluster.Config{
		TokenBytes: preset.TokenBytes, EventLag: 100 * time.Millisecond, Hop: hop,
		Host: cluster.HostTime{Request: request, Token: token}, StepLoad: true,
	}
	for class := range c.Links {
		c.Links[class] = link
	}
	for range guideReplicas {
		c.Nodes[cluster.Decode] = append(c.Nodes[cluster.Decode], cluster.Node{Engine: core.Config{
			BlockSize: guideBlock, Blocks: guideTokens/guideBlock + 1, MaxModelLen: 40_960, Vocab: 1 << 17,
			MaxSeqs: 1024, Cost: preset.Cost,
		}})
	}
	return c
}

// guideLoad is the requests of the record, as its load generator makes them: each stage begins with the first
// prompt, and after the last answer of the stage before.
type guideLoad struct {
	stages []guideStage // to come
	order  []int        // of prompts
	rnd    *rand.Rand
	begins []time.Duration
	at     []time.Duration // of the running stage's requests
	next   int
	open   int // requests that have not ended
	now    time.Duration
}

func newGuideLoad(seed uint64, stages []guideStage) *guideLoad {
	rnd := rand.New(rand.NewPCG(seed, 0x6775696465))
	return &guideLoad{stages: stages, rnd: rnd, order: rnd.Perm(guideGroups * guidePrompts)}
}

// Next gives one request, or waits for ends.
func (l *guideLoad) Next() (*trace.Session, error) {
	switch {
	case l.next == len(l.at) && l.open > 0 || l.open == guideInFlight:
		return nil, cluster.ErrNotYet
	case l.next == len(l.at) && len(l.stages) == 0:
		return nil, io.EOF
	case l.next == len(l.at):
		l.begin(l.stages[0])
		l.stages = l.stages[1:]
	}
	which := l.order[l.next%len(l.order)]
	group := uint64(which/guidePrompts) + 1
	ids := make([]uint64, 0, guideLong/guideBlock)
	for i := range guideLong / guideBlock {
		own := uint64(which%guidePrompts + 1)
		if i < guideShared/guideBlock {
			own = 0
		}
		ids = append(ids, group<<32|own<<16|uint64(i))
	}
	s := trace.Single(l.at[l.next], guideBlock, guideLong, guideOutput, ids)
	l.next++
	l.open++
	return s, nil
}

// begin draws the times of a stage: how many come in each second, and when they come in the second.
func (l *guideLoad) begin(s guideStage) {
	start := l.now + guidePause
	l.begins = append(l.begins, start)
	l.at, l.next = l.at[:0], 0
	for second := start; len(l.at) < s.rate*s.seconds; second += time.Second {
		times := make([]float64, l.poisson(float64(s.rate)))
		sum := 0.0
		for i := range times {
			sum += l.rnd.ExpFloat64()
			times[i] = sum
		}
		for _, t := range times {
			l.at = append(l.at, second+time.Duration(t/sum*float64(time.Second)))
		}
	}
	l.at = l.at[:s.rate*s.seconds]
}

func (l *guideLoad) poisson(mean float64) int {
	n := 0
	for p := l.rnd.Float64(); p > math.Exp(-mean); p *= l.rnd.Float64() {
		n++
	}
	return n
}

// Ended makes room for a request, or ends a stage.
func (l *guideLoad) Ended(now time.Duration) {
	l.open--
	l.now = now
}

func (l *guideLoad) began() []time.Duration { return l.begins }

var _ cluster.Paced = (*guideLoad)(nil)
