package cluster

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// transfers returns a trace of requests with these arrival times and prompt lengths. Each token has 1 kB
// to move.
func transfers(at []float64, tokens []int) string {
	var text strings.Builder
	text.WriteString(header)
	for i := range at {
		fmt.Fprintf(&text, `{"t":%v,"in":%d,"out":2}`+"\n", at[i], tokens[i])
	}
	return text.String()
}

// Two transfers of 3.2 s from one replica, or to one replica, take 6.4 s each. Between two separate pairs
// they take 3.2 s.
func TestSharedLinksByHand(t *testing.T) {
	for _, tt := range []struct {
		p, d int
		want time.Duration
	}{{1, 2, 6400 * time.Millisecond}, {2, 1, 6400 * time.Millisecond}, {2, 2, 3200 * time.Millisecond}} {
		n := 0
		s := &script{place: func(*Query, time.Time) (int, int, bool) {
			n++
			return (n - 1) % tt.p, 0, true
		}}
		c := config(tt.p, tt.d)
		c.LinkModel = Shared
		for i := range c.Nodes[Prefill] {
			c.Nodes[Prefill][i].Engine.Cost.A = 0 // both prompts are prefilled at once
		}
		for i := range c.Links {
			c.Links[i] = 1e5
		}
		var r Router = s
		if tt.d == 2 {
			r = &other{script: s}
		}
		res, err := play(t, c, r, transfers([]float64{0, 0}, []int{320, 320}), 1)
		for _, x := range must(t, res, err).Records {
			off := x.Transfer - tt.want - c.Setup
			if off < 0 || off > 15*time.Millisecond { // one transfer may begin a step later
				t.Errorf("%dP%dD: a transfer took %v, want %v", tt.p, tt.d, x.Transfer, tt.want)
			}
		}
	}
}

// The end of a transfer is calculated again when another transfer on the same replica begins or ends. 100
// bytes move alone at 10 a second for 4 s, then at 5 a second next to another transfer of 20 bytes for 4
// s, then alone again.
func TestTransfersAreTimedAnew(t *testing.T) {
	n := newNetwork([replica.Links]float64{10, 10, 10, 10}, 1, 2)
	long := &flow{ends: [2]int{0, 0}, left: 100}
	n.begin(0, long)
	if n.due != 10*time.Second {
		t.Errorf("the only transfer ends at %v", n.due)
	}
	n.begin(4*time.Second, &flow{ends: [2]int{0, 1}, left: 20})
	if n.due != 8*time.Second || long.rate != 5 {
		t.Errorf("the short transfer ends at %v, the long one moves %v a second", n.due, long.rate)
	}
	if over := n.done(8 * time.Second); len(over) != 1 || over[0] == long || n.due != 12*time.Second {
		t.Errorf("%d ended, the long one ends at %v", len(over), n.due)
	}
	if over := n.done(12 * time.Second); len(over) != 1 || math.Abs(n.passed-120) > 1e-6 {
		t.Errorf("%d ended, %v of 120 bytes passed", len(over), n.passed)
	}
}

// A transfer to another rack over a slow path leaves the remaining bandwidth of its ends to other
// transfers.
func TestSlowPathsLeaveTheRest(t *testing.T) {
	n := newNetwork([replica.Links]float64{40, 40, 4, 4}, 2, 3)
	far := []*flow{
		{ends: [2]int{0, 1}, class: replica.Other, left: 1e3},
		{ends: [2]int{0, 2}, class: replica.Other, left: 1e3},
	}
	near := &flow{ends: [2]int{0, 0}, class: replica.SameRack, left: 1e3}
	beside := &flow{ends: [2]int{1, 2}, class: replica.SameRack, left: 1e3}
	for _, f := range append(far, near, beside) {
		n.begin(0, f)
	}
	if far[0].rate != 2 || far[1].rate != 2 || math.Abs(near.rate-36) > 1e-9 || math.Abs(beside.rate-38) > 1e-9 {
		t.Errorf("far %v and %v, near %v, beside %v", far[0].rate, far[1].rate, near.rate, beside.rate)
	}
}

// twin shares bandwidth slowly: it gives one drop at a time to every transfer that can still use it.
func twin(n *network, drop float64) map[*flow]float64 {
	rates := map[*flow]float64{}
	used := func(side, i int, class replica.Link) float64 {
		sum := 0.0
		for _, f := range n.flows {
			if f.ends[side] == i && f.class >= class {
				sum += rates[f]
			}
		}
		return sum
	}
	full := map[*flow]bool{}
	for len(full) < len(n.flows) {
		for _, f := range n.flows {
			full[f] = full[f] || rates[f]+drop > n.speed[f.class]
			for side, i := range f.ends {
				for class := range f.class + 1 {
					full[f] = full[f] || used(side, i, class)+drop > n.limit[class]
				}
			}
			if !full[f] {
				rates[f] += drop
				continue
			}
		}
		for f := range full {
			if !full[f] {
				delete(full, f)
			}
		}
	}
	return rates
}

// Transfers come and go, and the rates stay equal to those of the slow twin: no end and no path exceeds
// its limit, each transfer is limited by a full end or path, and all bytes arrive.
func TestSharesAgreeWithSlowTwin(t *testing.T) {
	for seed := range uint64(12) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		speed := [replica.Links]float64{10, 8, 3, 3}
		if seed%3 == 0 {
			speed = [replica.Links]float64{5, 5, 5, 5}
		}
		n := newNetwork(speed, 3, 4)
		bytes := 0.0
		began, ended := 0, 0
		now := time.Duration(0)
		for began < 40 || len(n.flows) > 0 {
			next := now + time.Duration(rnd.ExpFloat64()*5e9)
			if len(n.flows) > 0 && (n.due <= next || began == 40) {
				if n.due < now {
					t.Fatalf("seed %d: a transfer ends at %v, before %v", seed, n.due, now)
				}
				now = n.due
				over := n.done(now)
				ended += len(over)
				if len(over) == 0 {
					t.Fatalf("seed %d: nothing ended at %v", seed, now)
				}
			} else {
				now = next
				f := &flow{
					ends: [2]int{rnd.IntN(3), rnd.IntN(4)}, class: replica.Link(rnd.IntN(int(replica.Links))),
					left: 1 + 50*rnd.Float64(),
				}
				bytes += f.left
				began++
				n.begin(now, f)
			}
			const drop = 1e-2
			want := twin(n, drop)
			for i, f := range n.flows {
				if math.Abs(f.rate-want[f]) > float64(len(n.flows)+1)*drop {
					t.Fatalf("seed %d, transfer %d of %d: %v a second, the twin has %v", seed, i, len(n.flows), f.rate,
						want[f])
				}
			}
		}
		if ended != 40 || math.Abs(n.passed-bytes) > 1e-6*bytes {
			t.Errorf("seed %d: %d ended, %v of %v bytes passed", seed, ended, n.passed, bytes)
		}
	}
}

// When no two transfers overlap, the two link models agree to the nanosecond. When transfers overlap, all
// still end with the same number of bytes moved, and the same seed gives the same run.
func TestLinkModelsAgreeOnLoneTransfers(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	var at, soon []float64
	var tokens []int
	for i := range 60 {
		at = append(at, float64(i)*2)
		soon = append(soon, float64(i)*0.02)
		tokens = append(tokens, 16+rnd.IntN(500))
	}
	run := func(model LinkModel, at []float64) *Result {
		n := 0
		s := &script{place: func(*Query, time.Time) (int, int, bool) {
			n++
			return n % 2, 0, true
		}}
		c := config(2, 2)
		c.LinkModel = model
		res, err := play(t, c, &other{script: s}, transfers(at, tokens), 1)
		return must(t, res, err)
	}
	if a, b := run(Queued, at), run(Shared, at); !reflect.DeepEqual(a.Records, b.Records) || a.End != b.End {
		t.Error("the models differ although transfers do not overlap")
	}
	moved := func(r *Result) (sum int64) {
		for _, x := range r.Records {
			sum += x.Moved
		}
		return sum
	}
	a, b := run(Queued, soon), run(Shared, soon)
	if moved(a) != moved(b) || len(b.Records) != 60 || reflect.DeepEqual(a.Records, b.Records) {
		t.Errorf("moved %d and %d bytes for %d and %d requests", moved(a), moved(b), len(a.Records), len(b.Records))
	}
	if again := run(Shared, soon); !reflect.DeepEqual(again.Records, b.Records) {
		t.Error("the same seed gave a different play")
	}
}

func TestParseLinkModel(t *testing.T) {
	for name, want := range map[string]LinkModel{"": Queued, "queue": Queued, "shared": Shared} {
		if got, err := ParseLinkModel(name); got != want || err != nil {
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
	if _, err := ParseLinkModel("x"); err == nil || !strings.Contains(err.Error(), "shared") {
		t.Errorf("x: %v", err)
	}
}
