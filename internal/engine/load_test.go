package engine

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/replica"
)

func TestParseORCA(t *testing.T) {
	nan := math.NaN()
	for _, tt := range []struct {
		value            string
		running, waiting int
		usage            float64
		ok               bool
	}{
		{`TEXT named_metrics.num_requests_waiting=3.0, named_metrics.kv_cache_usage_perc=0.25`, -1, 3, 0.25, true},
		{
			`JSON {"named_metrics": {"num_requests_waiting": 0.0, "kv_cache_usage_perc": 0.0004883408619216212}}`, -1,
			0, 0.0004883408619216212, true,
		},
		{`{"named_metrics":{"kv_cache_usage_perc":0.5,"other":"x"}}`, -1, -1, 0.5, true},
		{`named_metrics.kv_cache_usage_perc=0.5`, -1, -1, 0.5, true},
		{`text kv_cache_usage_perc=1.0000001`, -1, -1, 1, true},
		{`TEXT cpu_utilization=0.3, named_metrics.num_requests_running=2, rps_fractional=x`, 2, -1, nan, true},
		{`TEXT `, -1, -1, nan, false},
		{`TEXT`, -1, -1, nan, false},
		{``, -1, -1, nan, false},
		{`JSON {"named_metrics": {}}`, -1, -1, nan, false},
		{`JSON {"named_metrics": {"kv_cache_usage_perc": NaN}}`, -1, -1, nan, false},
		{`JSON {"named_metrics": {"kv_cache_usage_perc": null}}`, -1, -1, nan, false},
		{`JSON [1]`, -1, -1, nan, false},
		{`TEXT named_metrics.kv_cache_usage_perc=nan`, -1, -1, nan, false},
		{`TEXT named_metrics.kv_cache_usage_perc=-0.1`, -1, -1, nan, false},
		{`TEXT named_metrics.kv_cache_usage_perc=7`, -1, -1, nan, false},
		{`TEXT named_metrics.num_requests_waiting=inf`, -1, -1, nan, false},
		{`TEXT named_metrics.num_requests_waiting=1, named_metrics.num_requests_waiting=2`, -1, -1, nan, false},
		{`TEXT hello`, -1, -1, nan, false},
	} {
		l, ok := ParseORCA(tt.value)
		if ok != tt.ok || l.Running != tt.running || l.Waiting != tt.waiting || !same(l.Usage, tt.usage) ||
			ok != (l.Source == replica.ORCA) {
			t.Errorf("ParseORCA(%q) = %+v %v, want %d running, %d waiting, usage %v, %v",
				tt.value, l, ok, tt.running, tt.waiting, tt.usage, tt.ok)
		}
	}
}

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

func FuzzORCA(f *testing.F) {
	f.Add("TEXT named_metrics.num_requests_waiting=3.0, named_metrics.kv_cache_usage_perc=0.25")
	f.Add(`JSON {"named_metrics": {"num_requests_waiting": 0.0, "kv_cache_usage_perc": 0.5}}`)
	f.Fuzz(func(t *testing.T, value string) {
		l, ok := ParseORCA(value)
		if ok != l.Known() || l.Usage < 0 || l.Usage > 1 || l.Running < -1 || l.Waiting < -1 {
			t.Errorf("ParseORCA(%q) = %+v %v, want values in range, and true only for a known load", value, l, ok)
		}
	})
}

func golden(t testing.TB, name string) []byte {
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseMetrics(t *testing.T) {
	m, err := ParseMetrics(golden(t, "metrics-0.32.0.txt"))
	if err != nil {
		t.Fatal(err)
	}
	idle := replica.Load{Source: replica.Metrics, Loading: -1, Fetching: -1}
	if len(m.Loads) != 1 || m.Loads[0] != idle {
		t.Errorf("got loads %+v, want an idle rank 0", m.Loads)
	}
	want := Rank{Cache: Cache{BlockSize: 32, Blocks: 8191, DType: "auto", PrefixCaching: true}}
	if got := m.Ranks[0]; got != want || m.Started != 1.79524209861e+09 {
		t.Errorf("got rank 0 %+v, started %v; want %+v", got, m.Started, want)
	}
}

// num_gpu_blocks is the sum over both ranks, kv_cache_size_tokens is the number of one rank.
func TestParseMetricsDataParallel(t *testing.T) {
	for name, size := range map[string]string{
		"with tokens": `kv_cache_size_tokens="262144",`, "without": "", "None": `kv_cache_size_tokens="None",`,
	} {
		m, err := ParseMetrics([]byte(`
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
vllm:num_requests_running{engine="1",model_name="ti,\"ny}"} 4.0
vllm:num_requests_waiting{model_name="engine=\"7\"",engine="1"} 5.0 1795242160
vllm:num_requests_kv_fetch_by_stage{engine="1",model_name="tiny",stage="in_progress"} 6.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="tiny"} NaN
vllm:nixl_num_notifications_after_expiry_total{engine="1",model_name="tiny"} 9.0
vllm:nixl_xfer_time_seconds_bucket{engine="1",le="0.005",model_name="tiny"} 1.0
vllm:nixl_xfer_time_seconds_count{engine="1",model_name="tiny"} 3.0
vllm:nixl_xfer_time_seconds_sum{engine="1",model_name="tiny"} 0.25
vllm:nixl_post_time_seconds_sum{engine="1",model_name="tiny"} 0.125
vllm:nixl_bytes_transferred_sum{engine="1",model_name="tiny"} 1.5e+09
vllm:cache_config_info{block_size="32",enable_prefix_caching="False",engine="0",` + size + `num_gpu_blocks="16384"} 1.0
vllm:cache_config_info{block_size="32",enable_prefix_caching="False",engine="1",` + size + `num_gpu_blocks="16384"} 1.0
`))
		if err != nil {
			t.Fatal(err)
		}
		l0, l1 := m.Loads[0], m.Loads[1]
		if len(m.Loads) != 2 || l0.Running != 3 || l0.Waiting != -1 || l0.Usage != 0.25 || l1.Running != 4 ||
			l1.Waiting != 5 || !math.IsNaN(l1.Usage) || l0.Loading != -1 || l1.Loading != 6 ||
			l0.Fetching != -1 || l1.Fetching != 6 {
			t.Errorf("%s: got loads %+v, want the values of the page, and unknown where it has none", name, m.Loads)
		}
		if want := (replica.Reads{Count: 3, Bytes: 1.5e9, Seconds: 0.25, Posting: 0.125}); l1.Reads != want ||
			l0.Reads != (replica.Reads{}) {
			t.Errorf("%s: got reads %+v and %+v, want none and %+v", name, l0.Reads, l1.Reads, want)
		}
		r1 := m.Ranks[1]
		if r1.Counters.NIXLAfterExpiry != 9 || !math.IsNaN(m.Ranks[0].Counters.NIXLAfterExpiry) {
			t.Errorf("%s: got rank 1 %+v, want 9 reads after expiry, and an unknown number for rank 0", name, r1)
		}
		if r1.Cache.Blocks != 8191 || r1.Cache.BlockSize != 32 || r1.Cache.PrefixCaching {
			t.Errorf("%s: got cache %+v, want 8191 blocks of 32", name, r1.Cache)
		}
	}
}

func TestParseMetricsOld(t *testing.T) {
	m, err := ParseMetrics([]byte("vllm:num_requests_waiting{model_name=\"m\"} 2.0\r\n" +
		"vllm:gpu_cache_usage_perc{model_name=\"m\"} 0.75\r\n" +
		"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"101\"} 1.0"))
	if err != nil {
		t.Fatal(err)
	}
	want := replica.Load{
		Source: replica.Metrics, Running: -1, Waiting: 2, Loading: -1, Fetching: -1, Usage: 0.75,
	}
	if r := m.Ranks[0]; m.Loads[0] != want || r.Cache.Blocks != 100 || r.Cache.BlockSize != 16 {
		t.Errorf("got loads %+v and rank 0 %+v, want %+v and 100 blocks of 16", m.Loads, r, want)
	}
}

func TestParseMetricsOfSomethingElse(t *testing.T) {
	for _, body := range []string{
		"", "process_start_time_seconds 1\n", "<html>", "vllm:num_requests_running",
		"vllm:num_requests_running{engine=\"x\"} 1\n",
		"vllm:num_requests_running{engine=\"0} 1\n", "vllm:num_requests_running{engine=\"0\"} \n",
		"vllm:num_requests_running{engine=\"99999999\"} 1\n",
	} {
		if m, err := ParseMetrics([]byte(body)); err == nil {
			t.Errorf("ParseMetrics(%q) = %+v, want an error", body, m)
		}
	}
}

func FuzzMetrics(f *testing.F) {
	f.Add(golden(f, "metrics-0.32.0.txt"))
	f.Add([]byte("vllm:cache_config_info{block_size=\"16\\\",num_gpu_blocks=\"101\"} 1.0"))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := ParseMetrics(body)
		if err != nil {
			return
		}
		for rank, l := range m.Loads {
			if l.Usage < 0 || l.Usage > 1 || l.Running < -1 || l.Waiting < -1 || m.Ranks[rank].Cache.Blocks < 0 {
				t.Errorf("rank %d: got %+v %+v, want values in range", rank, l, m.Ranks[rank])
			}
		}
	})
}

func BenchmarkParseMetrics(b *testing.B) {
	body := golden(b, "metrics-0.32.0.txt")
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseMetrics(body); err != nil {
			b.Fatal(err)
		}
	}
}

// vLLM rounds the cache size in tokens down to whole requests of the greatest length. A number of blocks
// from this size would be too small for most engines.
func TestCapacityOfARank(t *testing.T) {
	for name, c := range map[string]struct {
		ranks, blocks, tokens int // as num_gpu_blocks and kv_cache_size_tokens report
		want                  int
	}{
		"context 1024, two ranks":       {2, 224, 3584, 111},
		"context 1000, two ranks":       {2, 224, 3500, 111},
		"context 1000, one rank":        {1, 112, 3500, 111},
		"a token lost by rounding":      {1, 112, 3583, 111},
		"one rank of another size":      {2, 220, 3584, 111},
		"two groups of layers":          {1, 112, 1792, 55},
		"layers that keep a window":     {1, 112, 9000, 280},
		"tokens untold":                 {2, 224, 0, 111},
		"a cache of a few blocks":       {1, 4, 97, 3},
		"nothing told":                  {1, 0, 0, 0},
		"nothing told of several ranks": {4, 0, 0, 0},
	} {
		var text strings.Builder
		for r := range c.ranks {
			fmt.Fprintf(&text,
				"vllm:cache_config_info{block_size=\"32\",engine=\"%d\",kv_cache_size_tokens=\"%d\","+
					"num_gpu_blocks=\"%d\"} 1.0\n",
				r, c.tokens, c.blocks)
		}
		m, err := ParseMetrics([]byte(text.String()))
		if err != nil {
			t.Fatal(err)
		}
		for r := range c.ranks {
			if got := m.Ranks[r].Cache.Blocks; got != c.want {
				t.Errorf("%s: rank %d has %d blocks, want %d", name, r, got, c.want)
			}
		}
	}
}

// An engine with speculative decoding counts drafts and their tokens. The quotient is the tokens per draft.
func TestDraftsByTheirCounters(t *testing.T) {
	for body, want := range map[string]int{
		"":                                  0,
		spec(0, 0):                          0,
		spec(10, 30):                        3,
		spec(10, 25):                        3, // some drafts are shorter
		spec(1_000_000_000, 7_000_000_000):  7,
		"vllm:spec_decode_num_drafts_total": 0,
	} {
		m, err := ParseMetrics([]byte("vllm:num_requests_running{engine=\"0\"} 1.0\n" + body))
		if err != nil || m.Loads[0].Drafts != want {
			t.Errorf("%q: got %d drafts, %v; want %d", body, m.Loads[0].Drafts, err, want)
		}
	}
}

func spec(drafts, tokens float64) string {
	return fmt.Sprintf("vllm:spec_decode_num_drafts_total{engine=\"0\"} %g\n"+
		"vllm:spec_decode_num_draft_tokens_total{engine=\"0\"} %g\n", drafts, tokens)
}

// An engine is asleep if its gauge "awake" is 0. An older engine has no such gauge and counts as awake.
func TestMetricsOfAnEngineThatSleeps(t *testing.T) {
	const state = `vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="%s"} %s` + "\n"
	for _, tt := range []struct {
		awake, offloaded string
		want             bool
	}{{"1.0", "0.0", false}, {"0.0", "1.0", true}, {"0.0", "0.0", true}} {
		page := fmt.Sprintf(state, "awake", tt.awake) + fmt.Sprintf(state, "weights_offloaded", tt.offloaded)
		if m, err := ParseMetrics([]byte(page)); err != nil || m.Asleep != tt.want {
			t.Errorf("%s: got asleep %v, %v; want %v", page, m.Asleep, err, tt.want)
		}
	}
	if m, err := ParseMetrics(golden(t, "metrics-0.32.0.txt")); err != nil || m.Asleep {
		t.Errorf("got asleep %v, %v; want false", m.Asleep, err)
	}
}
