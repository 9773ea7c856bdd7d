package core

import (
	"math"
	"strings"
	"testing"
	"time"
)

// Which ranks can read from which. The sizes must divide each other. Fewer decode ranks may not read several
// prefill ranks that hold copies of one head, except with Mamba layers. The length of the peer's blocks
// reveals a wrong size in the params.
func TestRanksThatCanRead(t *testing.T) {
	mamba := []Group{{Kind: "mamba"}, {Kind: fullAttention}}
	for _, c := range []struct {
		ours, heads, claimed, remote int
		groups                       []Group
		asks                         int    // highest remote rank of the handshakes
		want                         string // "": it can read
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
		{4, 8, 0, 1, nil, -1, "not a number of ranks"},
		{4, 8, 1, 4, nil, 0, "must be of 8"},
		{4, 8, 4, 1, nil, 3, "must be of 2"},
		{1, 8, 4, 1, nil, 0, "must be of 2"},
	} {
		cfg := Config{TensorParallel: c.ours, KVHeads: c.heads, Groups: c.groups}.withDefaults()
		asks, err := cfg.AsksFor(c.claimed)
		if (err != nil) != (c.asks < 0) || err == nil && asks != c.asks {
			t.Errorf("%+v: highest rank asked %d, error %v", c, asks, err)
		}
		switch err := cfg.CanRead(c.claimed, c.remote); {
		case (err == nil) != (c.want == ""), err != nil && !strings.Contains(err.Error(), c.want):
			t.Errorf("%+v: got error %v", c, err)
		}
	}
	if (Config{TensorParallel: 3}).CheckRanks() == nil || (Config{TensorParallel: 16}).CheckRanks() != nil {
		t.Error("want an error for eight heads on 3 ranks, and none on 16")
	}
}

// Every decode rank counts each of its transfers. Together, the transfers move every head once. Only equal
// sizes let adjacent blocks share a descriptor. The busiest link sets the time, so four ranks on one side
// gain nothing against one rank on the other.
func TestRanksShareReads(t *testing.T) {
	const post, blocks = 5 * time.Microsecond, 72
	const whole = blocks * 16 * tokenBytes
	for _, c := range []struct {
		p, d, heads            int
		transfers, descriptors uint64
		posting                time.Duration // by one rank in one step
		bytes                  float64       // of all ranks
		slowed                 time.Duration // time of a read that takes one second on one link
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
			t.Errorf("%+v: tp_size of the params is %d", c, params.TPSize.V)
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
			t.Errorf("%+v: the counters say %v of posting, want %v", c, s.NixlPosting, want)
		}
		if got := d.cfg.Slowed(time.Second, c.p); got != c.slowed {
			t.Errorf("%+v: a read of one second on one link takes %v", c, got)
		}
	}
}
