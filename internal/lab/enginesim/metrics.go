package enginesim

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

const metricsType = "text/plain; version=1.0.0; charset=utf-8"

// metrics answers GET /metrics with vLLM's series.
func (s *Server) metrics(k *call) {
	sleep(s.life.ctx, s.scrapeDelay())
	w := metricsWriter{b: k.part[:0], model: s.o.Model, born: float64(s.process.started().UnixMilli()) / 1000}
	wrong := s.o.Wrong
	w.head("process_start_time_seconds", "gauge")
	w.b = append(appendExponent(append(w.b, "process_start_time_seconds "...), w.born), '\n')
	all := s.Stats()
	for _, m := range s.metricsInOrder() {
		if m.since <= s.process.minor && (m.until == 0 || s.process.minor < m.until) && wrong.shows(m.name) &&
			s.has(m.name) {
			w.write(m, all)
		}
	}
	for _, ranks := range s.histograms() {
		if wrong.shows(ranks[0].Name) && s.has(ranks[0].Name) {
			w.histogram(ranks)
		}
	}
	if s.o.Core.MoRIIO != 0 && s.process.versionAtLeast(33) && !wrong.NoStats {
		w.head("vllm:moriio_xfer_time_seconds", "histogram")
		w.b = append(w.b, "vllm:moriio_xfer_time_seconds_count{engine=\"0\"} 0.0\n"...)
	}
	if s.o.Core.Mooncake && s.process.versionAtLeast(33) && !wrong.NoStats {
		w.head("vllm:mooncake_num_failed_transfers", "counter")
		w.b = append(w.b, "vllm:mooncake_num_failed_transfers_total{engine=\"0\"} 0.0\n"...)
	}
	if s.process.minor >= 30 && wrong.shows("vllm:admission_rejections") {
		w.rejections()
	}
	if wrong.shows("vllm:cache_config_info") {
		w.head("vllm:cache_config_info", "gauge")
		for n, r := range s.cores.ranks {
			w.b = s.appendCacheConfig(w.b, n, r.cfg)
		}
	}
	w.tellAges()
	k.part = w.b
	k.respond(200, metricsType, k.part)
}

// histograms returns all histograms: for each histogram, one per rank.
func (s *Server) histograms() [][]core.Histogram {
	var all [][]core.Histogram
	s.eachRank(func(r *rank) {
		for f, h := range r.histograms() {
			if f == len(all) {
				all = append(all, nil)
			}
			all[f] = append(all[f], h)
		}
	})
	return all
}

// has reports whether an engine with this configuration has the series.
func (s *Server) has(name string) bool {
	o := &s.o
	switch {
	case strings.HasPrefix(name, "vllm:spec_decode_"):
		return o.Core.Speculative > 0
	case strings.HasPrefix(name, "vllm:nixl_"):
		return !o.Core.Mooncake && o.Core.MoRIIO == 0 && (o.Store == nil || o.Multi) // vLLM's Mooncake has none
	}
	return true
}

// metricsInOrder are the series in the order in which an engine registers them: those of a MultiConnector's
// children stand in the order of the children.
func (s *Server) metricsInOrder() []metric {
	switch {
	case s.o.Store == nil:
		return metricTable
	case s.o.Core.Tier.First:
		return slices.Concat(storeMetrics, metricTable)
	}
	return slices.Concat(metricTable, storeMetrics)
}

// storeMetrics are of the offloading connector (vLLM 0.32, offloading/metrics.py), which counts bytes, here
// of blocks of 16 tokens of a Llama 3 8B.
var storeMetrics = []metric{
	counter("vllm:kv_offload_total_bytes", `,transfer_type="CPU_to_GPU"`,
		func(s *core.Stats) uint64 { return s.Restored << 21 }),
	counter("vllm:kv_offload_total_bytes", `,transfer_type="GPU_to_CPU"`,
		func(s *core.Stats) uint64 { return s.Offloaded << 21 }),
}

// metric is one series per rank. since and until are minor versions.
type metric struct {
	name, kind, label string
	value             func(*core.Stats) float64
	since, until      int
}

var metricTable = []metric{
	counter("vllm:nixl_num_failed_transfers", "", func(s *core.Stats) uint64 { return s.NixlFailed }),
	counter("vllm:nixl_num_failed_notifications", "", func(s *core.Stats) uint64 { return s.NixlUnsaid }),
	counter("vllm:nixl_num_kv_expired_reqs", "", func(s *core.Stats) uint64 { return s.NixlExpired }),
	counter("vllm:nixl_num_notifications_after_expiry", "",
		func(s *core.Stats) uint64 { return s.NixlNotifiedLate }),
	gauge("vllm:num_requests_running", "", func(s *core.Stats) float64 { return float64(s.Running) }),
	gauge("vllm:num_requests_waiting", "", func(s *core.Stats) float64 { return float64(s.Waiting) }),
	gauge("vllm:num_requests_waiting_by_reason", `,reason="capacity"`,
		func(s *core.Stats) float64 { return float64(s.WaitingCapacity) }).from(21),
	gauge("vllm:num_requests_waiting_by_reason", `,reason="deferred"`,
		func(s *core.Stats) float64 { return float64(s.WaitingDeferred) }).from(21),
	gauge("vllm:num_requests_kv_fetch_by_stage", `,stage="waiting_to_start"`,
		func(s *core.Stats) float64 { return float64(s.FetchToStart) }).from(21),
	gauge("vllm:num_requests_kv_fetch_by_stage", `,stage="in_progress"`,
		func(s *core.Stats) float64 { return float64(s.FetchInProgress) }).from(21),
	gauge("vllm:num_requests_kv_fetch_by_stage", `,stage="completed_waiting"`,
		func(s *core.Stats) float64 { return float64(s.FetchDone) }).from(21),
	gauge("vllm:kv_cache_usage_perc", "", func(s *core.Stats) float64 { return s.Usage }).from(10),
	{
		name: "vllm:gpu_cache_usage_perc", kind: "gauge", value: func(s *core.Stats) float64 { return s.Usage },
		until: 10,
	},
	counter("vllm:prefix_cache_queries", "", func(s *core.Stats) uint64 { return s.PrefixQueries }),
	counter("vllm:prefix_cache_hits", "", func(s *core.Stats) uint64 { return s.PrefixHits }),
	counter("vllm:external_prefix_cache_queries", "", func(s *core.Stats) uint64 { return s.ExternalQueries }),
	counter("vllm:external_prefix_cache_hits", "", func(s *core.Stats) uint64 { return s.ExternalHits }),
	counter("vllm:num_preemptions", "", func(s *core.Stats) uint64 { return s.Preemptions }),
	counter("vllm:prompt_tokens", "", func(s *core.Stats) uint64 { return s.PromptTokens }),
	counter("vllm:prompt_tokens_by_source", `,source="local_compute"`,
		func(s *core.Stats) uint64 { return s.PromptComputed }),
	counter("vllm:prompt_tokens_by_source", `,source="local_cache_hit"`,
		func(s *core.Stats) uint64 { return s.PromptLocal }),
	counter("vllm:prompt_tokens_by_source", `,source="external_kv_transfer"`,
		func(s *core.Stats) uint64 { return s.PromptExternal }),
	counter("vllm:prompt_tokens_cached", "",
		func(s *core.Stats) uint64 { return s.PromptLocal + s.PromptExternal }),
	counter("vllm:generation_tokens", "", func(s *core.Stats) uint64 { return s.GenerationTokens }),
	finished("stop", core.FinishStop), finished("length", core.FinishLength),
	finished("abort", core.FinishAbort), finished("error", core.FinishError),
	counter("vllm:request_success", `,finished_reason="repetition"`, never).from(30),
	counter("vllm:prompt_tokens_cached_by_source", `,source="device"`,
		func(s *core.Stats) uint64 { return s.PromptLocal }).from(30),
	counter("vllm:prompt_tokens_cached_by_source", `,source="host"`, never).from(30),
	counter("vllm:prompt_tokens_cached_by_source", `,source="p2p"`,
		func(s *core.Stats) uint64 { return s.PromptExternal }).from(30),
	counter("vllm:prompt_tokens_cached_by_source", `,source="disk"`, never).from(30),
	counter("vllm:prompt_tokens_cached_by_source", `,source="external_unspecified"`, never).from(30),
	counter("vllm:spec_decode_num_drafts", "", func(s *core.Stats) uint64 { return s.SpecDrafts }),
	counter("vllm:spec_decode_num_draft_tokens", "", func(s *core.Stats) uint64 { return s.SpecDrafted }),
	counter("vllm:spec_decode_num_accepted_tokens", "", func(s *core.Stats) uint64 { return s.SpecAccepted }),
	counter("vllm:mm_cache_queries", "", never).from(30), counter("vllm:mm_cache_hits", "", never).from(30),
	counter("vllm:estimated_flops_per_gpu", "", never).from(30),
	counter("vllm:estimated_read_bytes_per_gpu", "", never).from(30),
	counter("vllm:estimated_write_bytes_per_gpu", "", never).from(30),
	gauge("vllm:engine_sleep_state", `,sleep_state="awake"`,
		asleep(func(s *core.Stats) bool { return !s.Asleep })),
	gauge("vllm:engine_sleep_state", `,sleep_state="weights_offloaded"`,
		asleep(func(s *core.Stats) bool { return s.Asleep && s.SleepLevel == 1 })),
	gauge("vllm:engine_sleep_state", `,sleep_state="discard_all"`,
		asleep(func(s *core.Stats) bool { return s.Asleep && s.SleepLevel == 2 })),
}

// asleep returns the value of a sleep state: 1 or 0.
func asleep(holds func(*core.Stats) bool) func(*core.Stats) float64 {
	return func(s *core.Stats) float64 {
		if holds(s) {
			return 1
		}
		return 0
	}
}

// never counts events that the simulator does not have.
func never(*core.Stats) uint64 { return 0 }

func counter(name, label string, value func(*core.Stats) uint64) metric {
	return metric{
		name: name, kind: "counter", label: label, value: func(s *core.Stats) float64 { return float64(value(s)) },
	}
}

func gauge(name, label string, value func(*core.Stats) float64) metric {
	return metric{name: name, kind: "gauge", label: label, value: value}
}

// from sets the first minor version with the series.
func (m metric) from(minor int) metric {
	m.since = minor
	return m
}

func finished(name string, r core.Reason) metric {
	return counter("vllm:request_success", `,finished_reason="`+name+`"`,
		func(s *core.Stats) uint64 { return s.Finished[r] })
}

type metricsWriter struct {
	b     []byte
	model string
	last  string
	born  float64  // start of the process, Unix seconds
	ages  []string // labels of the last name's counters, for their _created series
}

// head writes the lines before the first series of a name.
func (w *metricsWriter) head(name, kind string) {
	if name == w.last {
		return
	}
	w.tellAges()
	w.last = name
	if kind == "counter" {
		name += "_total"
	}
	w.b = fmt.Appendf(w.b, "# HELP %s Simulated.\n# TYPE %s %s\n", name, name, kind)
}

// write writes one series per rank. Labels are in prometheus_client's order.
func (w *metricsWriter) write(m metric, all []core.Stats) {
	w.head(m.name, m.kind)
	for n := range all {
		w.b = append(w.b, m.name...)
		if m.kind == "counter" {
			w.b = append(w.b, "_total"...)
		}
		labels := w.labels(m.label, n)
		w.b = append(w.b, labels...)
		w.b = append(appendExponent(append(w.b, ' '), m.value(&all[n])), '\n')
		if m.kind == "counter" {
			w.ages = append(w.ages, labels)
		}
	}
}

// tellAges writes the _created series of the last name, behind its series, as prometheus_client does.
func (w *metricsWriter) tellAges() {
	name := w.last + "_created"
	if len(w.ages) > 0 {
		w.b = fmt.Appendf(w.b, "# HELP %s Simulated.\n# TYPE %s gauge\n", name, name)
	}
	for _, labels := range w.ages {
		w.b = append(appendExponent(append(append(append(w.b, name...), labels...), ' '), w.born), '\n')
	}
	w.ages = w.ages[:0]
}

// rejections writes the counters of requests refused for lack of room. They belong to the server, not to an
// engine.
func (w *metricsWriter) rejections() {
	const name = "vllm:admission_rejections"
	w.head(name, "counter")
	for _, reason := range []string{"max_num_queued_reqs", "max_num_queued_tokens"} {
		labels := `{model_name="` + w.model + `",reason="` + reason + `"}`
		w.b = append(append(append(append(w.b, name...), "_total"...), labels...), " 0.0\n"...)
		w.ages = append(w.ages, labels)
	}
}

// histogram writes one histogram of each rank.
func (w *metricsWriter) histogram(ranks []core.Histogram) {
	name := ranks[0].Name
	w.head(name, "histogram")
	for n, h := range ranks {
		total := uint64(0)
		for i, count := range h.Counts {
			le := "+Inf"
			if i < len(h.Bounds) {
				le = string(appendExponent(nil, h.Bounds[i]))
			}
			total += count
			w.line(name+"_bucket", n, `,le="`+le+`"`, float64(total))
		}
		w.line(name+"_count", n, "", float64(total))
		w.line(name+"_sum", n, "", h.Sum)
		w.ages = append(w.ages, w.labels("", n))
	}
}

func (w *metricsWriter) line(name string, n int, label string, v float64) {
	w.b = append(append(append(append(w.b, name...), `{engine="`...), strconv.Itoa(n)...), '"')
	w.b = append(append(append(append(w.b, label...), `,model_name="`...), w.model...), `"} `...)
	w.b = append(appendExponent(w.b, v), '\n')
}

func (w *metricsWriter) labels(more string, n int) string {
	before := ""
	if strings.HasPrefix(more, `,finished_reason`) {
		before, more = more, ""
	}
	return `{engine="` + strconv.Itoa(n) + `"` + before + `,model_name="` + w.model + `"` + more + "}"
}

// appendExponent writes a value like Python's repr: 1.0, and 1.79524209861e+09 for large values.
func appendExponent(dst []byte, f float64) []byte {
	if f < 1e6 {
		return appendFloat(dst, f)
	}
	return strconv.AppendFloat(dst, f, 'e', -1, 64)
}

// appendCacheConfig writes cache_config_info. As in vLLM, every rank shows the sum of all ranks' blocks
// beside its own size in tokens.
func (s *Server) appendCacheConfig(dst []byte, n int, c core.Config) []byte {
	blocks := c.Blocks * len(s.cores.ranks)
	tokens := c.Blocks * c.BlockSize
	size, caching := cmp.Or(s.o.Wrong.TellBlockSize, c.BlockSize), "True"
	if c.NoPrefixCaching {
		caching = "False"
	}
	return fmt.Appendf(dst, `vllm:cache_config_info{_block_size_resolved="True",block_size="%d",`+
		`cache_dtype="%s",cache_hit_alignment_tokens="None",`+
		`effective_attention_block_size="%d",enable_prefix_caching="%s",engine="%d",`+
		`gpu_memory_utilization="0.92",hash_block_size="None",`+
		`is_attention_free="False",kv_cache_max_concurrency="%.1f",kv_cache_size_tokens="%d",`+
		`num_cpu_blocks="None",num_gpu_blocks="%d",`+
		"num_gpu_blocks_override=\"None\",prefix_caching_hash_algo=\"sha256\",prefix_match_unit=\"None\","+
		"sliding_window=\"None\",user_specified_block_size=\"True\"} 1.0\n",
		size, cmp.Or(s.o.Wrong.CacheDType,
			"auto"), size, caching, n, float64(tokens)/float64(c.MaxModelLen), tokens, blocks)
}
