package doctor

import (
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// linked returns a server without faults that reads this number of blocks (2 MiB each) a second from a peer.
func linked(blocks float64) enginesim.Options {
	return with(func(o *enginesim.Options) {
		o.ZeroLatency = false
		o.Core.Cost.T0, o.Core.Cost.D0 = 0.0001, 0.0001
		o.TransferRate = blocks
	})
}

// A link may be much slower than configured, or than the other links. The doctor detects this from the
// additional time of a longer prompt, and names the setting to change. It does not report fast links.
func TestSlowLinks(t *testing.T) {
	t.Parallel()
	const fast, slow = 20_000, 300 // 40 GB/s and 0.6 GB/s
	place := func(c *config.Config) {
		for i := range c.Pools.Decode.Replicas {
			c.Pools.Decode.Replicas[i].Place.Host, c.Pools.Decode.Replicas[i].Place.Rack = "far", "r"
		}
		c.Pools.Prefill.Replicas[0].Place.Rack = "r"
	}
	// modest leaves room for the inaccuracy of a busy machine.
	modest := func(c *config.Config) { c.Scoring.Links.Host = 10_000_000_000 }
	asFast := func(c *config.Config) { c.Scoring.Links.Host = 700_000_000 }
	for _, c := range []struct {
		name   string
		decode []float64
		set    func(*config.Config)
		want   []string
		seen   string
		do     string
	}{
		{"fast", []float64{fast, fast}, modest, nil, "(scoring.links.host: 10GB/s)", ""},
		{
			"slow within a host",
			[]float64{slow},
			nil,
			[]string{"warning handoff-slow fleet"},
			"1 of 1 pair several times slower", "UCX_CUDA_IPC_ENABLE_GET_ZCOPY=on",
		},
		{
			"slow between hosts",
			[]float64{slow},
			place,
			[]string{"warning handoff-slow fleet"},
			"(scoring.links.rack: 40GB/s)", "UCX_TLS",
		},
		{"slow, and configured so", []float64{slow}, asFast, nil, "GB/s (scoring.links.host: 700MB/s)", ""},
		{
			"slow beside its neighbours",
			[]float64{fast, slow, fast},
			asFast,
			[]string{"warning handoff-slow fleet"},
			"1 of 3 pairs several times slower than configured or than the others; " +
				"slowest first: prefill p0 to decode d1",
			"UCX_CUDA_IPC_ENABLE_GET_ZCOPY=on",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var decode []*enginesim.Server
			for _, rate := range c.decode {
				decode = append(decode, up(t, linked(rate)))
			}
			cfg := pools([]*enginesim.Server{up(t, linked(0))}, decode)
			if c.set != nil {
				c.set(cfg)
			}
			r := examine(t, Options{Config: cfg})
			want(t, r, c.want...)
			f := find(t, r, "handoff-slow", "fleet")
			if !strings.Contains(f.Seen, c.seen) || !strings.Contains(f.Do, c.do) {
				t.Errorf("got seen %q, want %q in it; got do %q, want %q in it", f.Seen, c.seen, f.Do, c.do)
			}
		})
	}
}

// The measured speed is the speed of the link: 300 blocks of 2 MiB a second.
func TestSpeedIsThatOfTheLink(t *testing.T) {
	t.Parallel()
	cfg := pools([]*enginesim.Server{up(t, linked(0))}, []*enginesim.Server{up(t, linked(300))})
	f, err := newFleet(Options{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	f.look(t.Context())
	s := f.handoffs[0].speed
	const want = 300 * 16
	if s == nil || s.tokens < 0.7*want || s.tokens > 1.3*want || s.bytes < 120<<10 || s.bytes > 140<<10 ||
		s.atLeast {
		t.Errorf("got %+v, want %d tokens a second of 128 KiB each", s, want)
	}
}

// Without counters of bytes, the doctor reports the speed in tokens and compares it with no setting.
func TestSpeedWithoutBytes(t *testing.T) {
	for _, c := range []struct {
		s    speed
		want string
	}{
		{speed{tokens: 4800}, "4800 tokens/s"},
		{speed{tokens: 160_000, bytes: 131072}, "21GB/s"},
		{speed{tokens: 3_000_000, bytes: 131072, atLeast: true}, "at least 393GB/s"},
	} {
		if got := c.s.String(); got != c.want {
			t.Errorf("got %q for %+v, want %q", got, c.s, c.want)
		}
	}
}
