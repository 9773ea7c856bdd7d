package core

import (
	"math"
	"strings"
	"testing"
	"time"
)

// Which ranks can read from which. The sizes must divide each other. Several prefill ranks with copies of one
// head are refused to fewer decode ranks, except with Mamba layers. A size that is not the peer's is found
// out by the length of its blocks.
func TestRanksThatCanRead(t *testing.T) {
	mamba := []Group{{Kind: "mamba"}, {Kind: fullAttention}}
	for _, c := range []struct {
		ours, heads, claimed, remote int
		groups                       []Group
		asks                         int    // the highest rank
		want                         string // "" can read
	}{
		{1, 8, 1, 1, nil, 0, ""},
		{4, 8, 1, 1, nil, 0, ""},
		{1, 8, 4, 4, nil, 0, ""},
		{2, 8, 4, 4, nil, 2, ""},
		{4, 2, 1, 1, nil, 0, ""},
		{4, 2, 4, 4, nil, 3, ""},
		{8, 2, 4, 4, nil, 3, ""},
		{4, 4, 8, 8, nil, 6, "is_kv_replicated"},
		{4, 4, 8, 8, mamba, 6, ""},
		{4, 12, 6, 6, nil, -1, "Remote tensor parallel size 6 is not divisible"},
		{3, 6, 2, 2, nil, -1, "Local tensor parallel size 3 is not divisible"},
		{4, 8, 0, 1, nil, -1, "no number of ranks"},
		{4, 8, 1, 4, nil, 0, "must be of 8"},
		{4, 8, 4, 1, nil, 3, "must be of 2"},
		{1, 8, 4, 1, nil, 0, "must be of 2"},
	} {
		cfg := Config{TensorParallel: c.ours, KVHeads: c.heads, Groups: c.groups}.withDefaults()
		asks, err := cfg.AsksFor(c.claimed)
		if (err != nil) != (c.asks < 0) || err == nil && asks != c.asks {
			t.Errorf("%+v: asks for rank %d, %v", c, asks, err)
		}
		switch err := cfg.CanRead(c.claimed, c.remote); {
		case (err == nil) != (c.want == ""), err != nil && !strings.Contains(err.Error(), c.want):
			t.Errorf("%+v: %v", c, err)
		}
	}
	if (Config{TensorParallel: 3}).CheckRanks() == nil || (Config{TensorParallel: 16}).CheckRanks() != nil {
		t.Error("eight heads on 3 ranks load, or do not on 16")
	}
}

// Every decode rank counts each of its transfers. Together they move every head once. Only equal sizes let
// neighbouring blocks share a descriptor. The busiest link sets the time, so one side of one rank gains
// nothing from four ranks on the other side.
func TestRanksShareReads(t *testing.T) {
	const post, blocks = 5 * time.Microsecond, 72
	const whole = blocks * 16 * tokenBytes
	for _, c := range []struct {
		p, d, heads            int
		transfers, descriptors uint64
		posting                time.Duration // of one rank in one step
		bytes                  float64       // of all ranks
		slowed                 time.Duration // of a second
	}{
		{1, 1, 8, 1, 32, 32 * post, whole, time.Second},
		{4, 4, 8, 4, 4 * 32, 32 * post, whole, time.Second / 4},
		{1, 4, 8, 4, 4 * 32 * blocks, 32 * blocks * post, whole, time.Second},
		{2, 4, 8, 4, 4 * 32 * blocks, 32 * blocks * post, whole, time.Second / 2},
		{4, 1, 8, 4, 4 * 32 * blocks, 4 * 32 * blocks * post, whole, time.Second},
		{1, 4, 2, 4, 4 * 32 * blocks, 32 * blocks * post, 2 * whole, 2 * time.Second},
	} {
		b, p, d, solo := pair(t, Config{Layers: 32, KVHeads: c.heads, Cost: Cost{Post: post.Seconds()}})
		p.cfg.TensorParallel, d.cfg.TensorParallel = c.p, c.d
		ids := prompt(1, blocks*16)
		params := b.prefill(p, "p", ids)
		if params.TPSize.V != c.p {
			t.Errorf("%+v: the params say %d ranks", c, params.TPSize.V)
		}
		at := b.now
		same(t, "the text", b.decode(d, "d", ids, 5, params), b.plain(solo, "solo", ids, 5))
		s, h := d.Stats(), d.Histograms()
		if s.NixlTransfers != c.transfers || h[readBytes].Sum != c.bytes ||
			h[readDescriptors].Sum != float64(c.descriptors) {
			t.Errorf("%+v: %d transfers, %.0f bytes in %.0f descriptors",
				c, s.NixlTransfers, h[readBytes].Sum, h[readDescriptors].Sum)
		}
		if took := b.now - at; took != c.posting {
			t.Errorf("%+v: posting took %v", c, took)
		}
		if want := c.posting * time.Duration(c.d); s.NixlPosting != want ||
			math.Abs(h[postTime].Sum-want.Seconds()) > 1e-9 {
			t.Errorf("%+v: the counters have %v of posting, want %v", c, s.NixlPosting, want)
		}
		if got := d.cfg.Slowed(time.Second, c.p); got != c.slowed {
			t.Errorf("%+v: a second of one link becomes %v", c, got)
		}
	}
}
