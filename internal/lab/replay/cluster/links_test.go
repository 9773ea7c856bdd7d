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

// transfers are requests with prompts of these many tokens that come at these times, each a kB a token to
// move.
func transfers(at []float64, tokens []int) string {
	var text strings.Builder
	text.WriteString(header)
	for i := range at {
		fmt.Fprintf(&text, `{"t":%v,"in":%d,"out":2}`+"\n", at[i], tokens[i])
	}
	return text.String()
}

// Two transfers of 3.2 s from one replica, or to one, take 6.4 s each; between two pairs they take 3.2.
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
			c.Nodes[Prefill][i].Engine.Cost.A = 0 // both are prefilled at once
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
			if off < 0 || off > 15*time.Millisecond { // one may begin a step later
				t.Errorf("%dP%dD: a transfer took %v, want %v", tt.p, tt.d, x.Transfer, tt.want)
			}
		}
	}
}

// A transfer is timed anew when another one begins beside it or ends: 100 bytes alone at 10 a second for 4 s,
// then at 5 with 20 others for 4 s, then alone again.
func TestTransfersAreTimedAnew(t *testing.T) {
	n := newNetwork([replica.Links]float64{10, 10, 10, 10}, 1, 2)
	long := &flow{ends: [2]int{0, 0}, left: 100}
	n.begin(0, long)
	if n.due != 10*time.Second {
		t.Errorf("alone it ends at %v", n.due)
	}
	n.begin(4*time.Second, &flow{ends: [2]int{0, 1}, left: 20})
	if n.due != 8*time.Second || long.rate != 5 {
		t.Errorf("the short one ends at %v, the long one moves %v a second", n.due, long.rate)
	}
	if over := n.done(8 * time.Second); len(over) != 1 || over[0] == long || n.due != 12*time.Second {
		t.Errorf("%d ended, the long one ends at %v", len(over), n.due)
	}
	if over := n.done(12 * time.Second); len(over) != 1 || math.Abs(n.passed-120) > 1e-6 {
		t.Errorf("%d ended, %v of 120 bytes passed", len(over), n.passed)
	}
}

// What goes to another rack over a slow path leaves the rest of its ends to others.
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

// twin shares bandwidth out slowly: a drop at a time to every transfer that can still take one.
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

// Shares are those of the slow twin, whoever comes and goes: no end and no path has more than it can take,
// every transfer is held up by one that is full, and all bytes arrive.
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

// Where no two transfers are under way at the same time the models are the same, to the nanosecond. Where
// they are, everything still ends, with as many bytes moved, and again the same with the same seed.
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
		t.Error("one transfer at a time, and the models differ")
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
		t.Error("the same seed, and another play")
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
