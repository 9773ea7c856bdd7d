package policies

import (
	"slices"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/replica"
)

// racks is a fleet in the given racks. The network is fast inside a rack and slow between racks. A token
// has 128 KiB.
func racks(ps, ds []string) cluster.Config {
	c := cluster.Config{TokenBytes: 131_072, Links: [replica.Links]float64{40e9, 40e9, 1e9, 1e9}}
	for side, names := range [][]string{ps, ds} {
		for _, rack := range names {
			node := cluster.Node{
				Engine: core.Config{Blocks: 20_000, MaxModelLen: 40_000, BlockSize: 16}, Place: replica.Place{Rack: rack},
			}
			c.Nodes[side] = append(c.Nodes[side], node)
		}
	}
	return c
}

// The default engine takes 4.5 + 33.6 + 2.9 = 41 ms for a prompt of 2,000 tokens. Its 262 MB take 6.6 ms
// inside a rack and 262 ms between two racks.
func TestOrders(t *testing.T) {
	for _, tt := range []struct {
		name   string
		order  Order
		fleet  cluster.Config
		report func(*Tandem)
		p, d   int
	}{
		// p1 is in the rack of the only decode replica, but another request of 22 ms waits there: 63 + 7 ms
		// against 41 + 262.
		{"joint looks at the link", Joint, racks([]string{"a", "b"}, []string{"b"}), busyPrefill, 1, 0},
		{"prefill first does not", PrefillFirst, racks([]string{"a", "b"}, []string{"b"}), busyPrefill, 0, 0},
		// d0 is in the rack of the only prefill replica, but half of its KV is in use. That counts as 150 ms:
		// 157 against 262.
		{"joint weighs room against the link", Joint, racks([]string{"a"}, []string{"a", "b"}), fullDecode, 0, 0},
		{"prefill first does, too", PrefillFirst, racks([]string{"a"}, []string{"a", "b"}), fullDecode, 0, 0},
		{
			"decode first looks at room alone", DecodeFirst, racks([]string{"a"}, []string{"a", "b"}), fullDecode, 0,
			1,
		},
	} {
		r := NewTandem(tt.fleet, Options{NoLocal: true, Order: tt.order}, 1)
		tt.report(r)
		p, d, room := r.Place(&cluster.Query{Tokens: 2000}, cluster.Time(0))
		if !room || p != tt.p || d != tt.d {
			t.Errorf("%s: %d and %d, room %v; want %d and %d", tt.name, p, d, room, tt.p, tt.d)
		}
		if req := &r.underWay.booked[0].req; req.AvoidPrefill != nil || req.AvoidDecode != nil {
			t.Errorf("%s: the replica that was not chosen is excluded permanently", tt.name)
		}
	}
}

func busyPrefill(r *Tandem) {
	now := cluster.Time(0)
	r.Observe(cluster.Prefill, 0, replica.Load{At: now}, now)
	r.Observe(cluster.Prefill, 1, replica.Load{At: now, Running: 1}, now)
}

func fullDecode(r *Tandem) {
	now := cluster.Time(0)
	r.Observe(cluster.Decode, 0, replica.Load{At: now, Usage: 0.5}, now)
	r.Observe(cluster.Decode, 1, replica.Load{At: now}, now)
}

// A sequential order still compares Local(d), in its second step. A fleet without prefill replicas has no
// first step.
func TestSequenceKnowsLocal(t *testing.T) {
	for _, order := range []Order{PrefillFirst, DecodeFirst} {
		r := NewTandem(racks([]string{"a"}, []string{"b"}), Options{Order: order}, 1)
		if p, d, _ := r.Place(&cluster.Query{Tokens: 2000}, cluster.Time(0)); p != -1 || d != 0 {
			t.Errorf("order %d: %d and %d, want decode alone: the link is slow", order, p, d)
		}
		alone := NewTandem(racks(nil, []string{"b"}), Options{Order: order}, 1)
		if p, d, room := alone.Place(&cluster.Query{Tokens: 2000}, cluster.Time(0)); p != -1 || d != 0 || !room {
			t.Errorf("order %d without prefill replicas: %d and %d, %v", order, p, d, room)
		}
	}
}

// Equal costs are drawn by chance, different costs never.
func TestDraw(t *testing.T) {
	r := NewTandem(fleet(), Options{Order: PrefillFirst}, 1)
	got := map[int]int{}
	for range 600 {
		got[r.draw([]float64{0.0110, 0.0131, 0.0129, 0.5})]++
	}
	if got[0] < 250 || got[2] < 250 || len(got) != 2 {
		t.Errorf("drawn %v, want the two within 2 ms of the lowest cost", got)
	}
	if r.draw(nil) != -1 {
		t.Error("drew from an empty list")
	}
	if got := r.sequence.but([]replica.ID{"a", "b", "c"}, 1); !slices.Equal(got, []replica.ID{"a", "c"}) {
		t.Errorf("all but b are %v", got)
	}
}
