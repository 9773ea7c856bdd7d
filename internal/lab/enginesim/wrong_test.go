package enginesim

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/kvevents"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// Each kind of wrong setup shows where an operator would see it, and nowhere else.
func TestWrong(t *testing.T) {
	const healthy = `"publisher":"zmq"`
	for _, c := range []struct {
		name      string
		o         Options
		path      string
		want, not string
	}{
		{"nothing wrong", Options{EventsEndpoint: "tcp://127.0.0.1:0"}, "/kv_event_sources", healthy, ""},
		{
			"null publisher",
			Options{EventsEndpoint: "tcp://127.0.0.1:0", Wrong: Wrong{NullPublisher: true}},
			"/kv_event_sources", `"publisher":"null"`, healthy,
		},
		{
			"strict bind",
			Options{EventsEndpoint: "tcp://0.0.0.0:7", Wrong: Wrong{StrictBind: true}},
			"/kv_event_sources", `"endpoint":"tcp://0.0.0.0:7"`, "",
		},
		{
			"replay told",
			Options{EventsEndpoint: "tcp://127.0.0.1:0", Wrong: Wrong{TellReplay: "tcp://*:9"}},
			"/kv_event_sources", `"replay_endpoint":"tcp://*:9"`, "",
		},
		{
			"short buffer",
			Options{EventsEndpoint: "tcp://127.0.0.1:0", Wrong: Wrong{BufferSteps: 3}},
			"/kv_event_sources", `"buffer_steps":3,`, "",
		},
		{
			"block size told",
			Options{Wrong: Wrong{TellBlockSize: 32}},
			"/metrics", `block_size="32"`,
			`block_size="16"`,
		},
		{
			"no prefix caching",
			Options{Core: core.Config{NoPrefixCaching: true}},
			"/metrics",
			`enable_prefix_caching="False"`, `enable_prefix_caching="True"`,
		},
		{"no connector", Options{Wrong: Wrong{NoConnector: true}}, "/metrics", "vllm:num_requests_running", "nixl"},
		{
			"cache type",
			Options{Wrong: Wrong{CacheDType: "fp8"}},
			"/metrics", `cache_dtype="fp8"`,
			`cache_dtype="auto"`,
		},
		{"no stats", Options{Wrong: Wrong{NoStats: true}}, "/metrics", "process_start_time_seconds", "vllm:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			noLeaks(t)
			c.o.ZeroLatency = true
			s := startServer(t, c.o)
			_, _, got := getRaw(t, s, c.path)
			if !strings.Contains(got, c.want) || c.not != "" && strings.Contains(got, c.not) {
				t.Errorf("%s answers %s, want %q and not %q", c.path, got, c.want, c.not)
			}
		})
	}
}

// Without prefix caching a repeated prompt has no hit, and no events are published.
func TestNoPrefixCaching(t *testing.T) {
	for _, off := range []bool{false, true} {
		noLeaks(t)
		batches := 0
		s := startServer(t, Options{
			ZeroLatency: true, Core: core.Config{NoPrefixCaching: off},
			OnEvents: func(*kvevents.EncodeBatch) { batches++ },
		})
		body := `{"model":"sim","prompt":"` + strings.Repeat(" block", 100) + `","max_tokens":1}`
		post(t, s, "/v1/completions", body)
		_, again := post(t, s, "/v1/completions", body)
		if hit := again.Usage.Details.Cached > 0; hit == off || (batches > 0) == off {
			t.Errorf("prefix caching off %v: hit %v, %d batches", off, hit, batches)
		}
		s.Close()
	}
}

// Another tokenizer gives other ids for the same text, and detokenizes its ids correctly.
func TestTokenizersDiffer(t *testing.T) {
	const text = " the block of the router"
	a, b := newVocabularyOf("", 4096), newVocabularyOf("b", 4096)
	x, y := a.tokenize(nil, text), b.tokenize(nil, text)
	if x[0] == y[0] {
		t.Errorf("both tokenizers begin with %d", x[0])
	}
	if a.detokenize(x) != text || b.detokenize(y) != text {
		t.Errorf("detokenized to %q and %q", a.detokenize(x), b.detokenize(y))
	}
}

// Events have the time of the server's clock.
func TestClockSkew(t *testing.T) {
	noLeaks(t)
	var at time.Time
	s := startServer(t, Options{
		ZeroLatency: true, Wrong: Wrong{ClockSkew: time.Hour},
		OnEvents: func(b *kvevents.EncodeBatch) { at = b.At },
	})
	post(t, s, "/v1/completions", `{"model":"sim","prompt":"`+strings.Repeat(" block", 100)+`","max_tokens":1}`)
	if ahead := time.Until(at); ahead < 59*time.Minute {
		t.Errorf("the events' clock is only %v fast", ahead)
	}
}
