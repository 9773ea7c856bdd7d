package core

import (
	"slices"
	"time"
)

// family is one of vLLM's histograms (v1/metrics/loggers.py). Histograms of requests observe successful ends;
// histograms of tokens observe each token.
type family uint8

const (
	promptLength family = iota
	outputLength
	batchTokens
	longestOutput
	choicesWanted
	maxTokensWanted
	firstTokenTime
	interTokenTime
	perTokenTime
	wholeTime
	queueTime
	inferenceTime
	prefillTime
	decodeTime
	preemptionCount
	promptComputed
	readTime
	postTime
	readBytes
	readDescriptors
	families
)

// familyNames are in the order of vLLM's answer.
var familyNames = [families]string{
	"vllm:request_prompt_tokens", "vllm:request_generation_tokens", "vllm:iteration_tokens_total",
	"vllm:request_max_num_generation_tokens",
	"vllm:request_params_n", "vllm:request_params_max_tokens", "vllm:time_to_first_token_seconds",
	"vllm:inter_token_latency_seconds",
	"vllm:request_time_per_output_token_seconds", "vllm:e2e_request_latency_seconds",
	"vllm:request_queue_time_seconds",
	"vllm:request_inference_time_seconds", "vllm:request_prefill_time_seconds",
	"vllm:request_decode_time_seconds", "vllm:request_num_preemptions",
	"vllm:request_prefill_kv_computed_tokens", "vllm:nixl_xfer_time_seconds", "vllm:nixl_post_time_seconds",
	"vllm:nixl_bytes_transferred",
	"vllm:nixl_num_descriptors",
}

var (
	requestBounds = []float64{
		0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
	}
	tokenBounds = []float64{
		0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
	}
	firstBounds = []float64{
		0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640,
		2560,
	}
	stepBounds      = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
	choiceBounds    = []float64{1, 2, 5, 10, 20}
	preemptedBounds = []float64{1, 2, 3, 4, 5, 10, 20}
	readBounds      = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 5}
	postBounds      = []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 5}
	byteBounds      = []float64{
		1 << 11, 1 << 13, 1 << 15, 1 << 17, 1 << 19, 1 << 21, 1 << 23, 1 << 25, 1 << 27, 1 << 29, 1 << 31, 1 << 33,
	}
	descBounds = []float64{10, 20, 30, 50, 75, 100, 200, 400, 1000, 2000, 4000, 10000, 20000, 50000}
)

// tokenBytes is the KV of a token in nixl_bytes_transferred: that of Llama 3 8B in bfloat16.
const tokenBytes = 128 << 10

// bounds returns the buckets of f. Buckets of lengths are 1, 2, 5, 10, ... up to maxLen.
func (f family) bounds(maxLen int) []float64 {
	switch f {
	case firstTokenTime:
		return firstBounds
	case interTokenTime, perTokenTime:
		return tokenBounds
	case wholeTime, queueTime, inferenceTime, prefillTime, decodeTime:
		return requestBounds
	case batchTokens:
		return stepBounds
	case choicesWanted:
		return choiceBounds
	case preemptionCount:
		return preemptedBounds
	case readTime:
		return readBounds
	case postTime:
		return postBounds
	case readBytes:
		return byteBounds
	case readDescriptors:
		return descBounds
	}
	var all []float64
	for unit := 1; ; unit *= 10 {
		for _, m := range []int{1, 2, 5} {
			if m*unit > maxLen {
				return all
			}
			all = append(all, float64(m*unit))
		}
	}
}

// Histogram holds the observations of one vLLM histogram since the start.
type Histogram struct {
	Name   string // vLLM's
	Bounds []float64
	Counts []uint64 // per bucket, not cumulative; the last bucket has no upper bound
	Sum    float64
}

func (h *Histogram) observe(v float64) {
	i, _ := slices.BinarySearch(h.Bounds, v)
	h.Counts[i]++
	h.Sum += v
}

func (e *Engine) bootHistograms() {
	for f := range families {
		b := f.bounds(e.cfg.MaxModelLen)
		e.counted.seen[f] = Histogram{Name: familyNames[f], Bounds: b, Counts: make([]uint64, len(b)+1)}
	}
}

// Histograms returns a copy of all histograms, in the order of vLLM's answer.
func (e *Engine) Histograms() []Histogram {
	all := slices.Clone(e.counted.seen[:])
	for f := range all {
		all[f].Counts = slices.Clone(all[f].Counts)
	}
	return all
}

// observeToken observes a token that leaves the engine at the time at.
func (e *counted) observeToken(at time.Duration, r *request, out int) {
	if out == 1 {
		r.times.first = at
		e.seen[firstTokenTime].observe((at - r.times.arrived).Seconds())
	} else {
		e.seen[interTokenTime].observe((at - r.times.latest).Seconds())
	}
	r.times.latest = at
}

func (e *counted) observeEnd(at time.Duration, r *request, out int) {
	see := func(f family, v float64) { e.seen[f].observe(v) }
	see(promptLength, float64(r.text.prompt))
	see(outputLength, float64(out))
	see(longestOutput, float64(out))
	if r.ask.choices > 0 {
		see(choicesWanted, float64(r.ask.choices))
	}
	see(maxTokensWanted, float64(r.ask.maxOut))
	see(wholeTime, (at - r.times.arrived).Seconds())
	see(queueTime, (r.times.began - r.times.arrived).Seconds())
	see(inferenceTime, (at - r.times.began).Seconds())
	see(prefillTime, (r.times.first - r.times.began).Seconds())
	see(decodeTime, (at - r.times.first).Seconds())
	if out > 1 {
		see(perTokenTime, (at-r.times.first).Seconds()/float64(out-1))
	}
	see(preemptionCount, float64(r.done.preempts))
	// On D, P's cached_tokens replace D's, so this counts tokens that P computed.
	see(promptComputed, float64(max(0, r.text.prompt-r.usageCached())))
}

// observeRead observes a read of a peer's blocks. took includes posting the descriptors. Each rank counts its
// own transfers.
func (e *Engine) observeRead(took time.Duration, r *request) {
	posts := e.cfg.posts(r.load.transfer.peer().Ranks)
	posting := r.load.posting / time.Duration(posts)
	transfers := e.cfg.TensorParallel * posts
	bytes := r.load.reads * e.cfg.BlockSize * tokenBytes
	bytes = bytes * e.cfg.headsOf(e.cfg.TensorParallel) / e.cfg.KVHeads / posts
	for range transfers {
		e.counted.seen[readTime].observe(took.Seconds())
		e.counted.seen[postTime].observe(posting.Seconds())
		e.counted.seen[readBytes].observe(float64(bytes))
		e.counted.seen[readDescriptors].observe(float64(r.load.descriptors))
	}
	c := &e.counted.counts
	c.NixlReading += took * time.Duration(transfers)
	c.NixlPosting += posting * time.Duration(transfers)
}
