package planner

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/prefill"
)

// A replica without events is unknown, not empty. It does not lose to a replica that is known to be empty,
// and it does not win against a replica that is known to have the prompt.
func TestStaleIsUnknownNotEmpty(t *testing.T) {
	type want struct {
		prefill   string // any of these letters is right, and each must occur
		available int
		blind     int
		reason    string // part of it
	}
	for _, tt := range []struct {
		name string
		edit func(t *testing.T, f *fleet, r *Request)
		want want
	}{
		{"a tie, where nobody is known to hold anything", func(t *testing.T, f *fleet, r *Request) {
			f.prefill.SetTrust("p1", replica.Stale)
		}, want{"p1p2p3", 0, 1, ""}},
		{"behind a known match", func(t *testing.T, f *fleet, r *Request) {
			f.prefill.SetTrust("p1", replica.Stale)
			f.store(t, f.prefill, "p2", 1, 400)
		}, want{"p2", 6400, 1, "6,400 of 8,000 tokens cached on p2"}},
		{"before one that is known to be empty, where another holds it", func(t *testing.T, f *fleet, r *Request) {
			f.prefill.SetTrust("p1", replica.Stale)
			f.store(t, f.prefill, "p2", 1, 400)
			r.AvoidPrefill = []replica.ID{} // p2 stays a candidate, but it is so busy that it is not taken
			f.says(f.prefill, "p2", 1, 60, 0.1)
		}, want{"p1", 6400, 1, "an unknown number of 8,000 tokens cached on p1"}},
		{"what the index still says of it counts, but not as known", func(t *testing.T, f *fleet, r *Request) {
			f.store(t, f.prefill, "p1", 1, 400)
			f.prefill.SetTrust("p1", replica.Stale)
		}, want{"p1", 0, 1, "an unknown number"}},
		{"while a replay runs too", func(t *testing.T, f *fleet, r *Request) {
			f.prefill.SetTrust("p1", replica.Syncing)
			f.prefill.SetTrust("p2", replica.TrustUnknown)
		}, want{"p1p2p3", 0, 2, ""}},
		{"without events what we sent there is what is known", func(t *testing.T, f *fleet, r *Request) {
			for _, p := range f.ps {
				f.prefill.SetTrust(p.ID, replica.Off)
			}
		}, want{"p1p2p3", 0, 0, "none of 8,000 tokens cached"}},
		{"when all are, they are alike", func(t *testing.T, f *fleet, r *Request) {
			for _, p := range f.ps {
				f.prefill.SetTrust(p.ID, replica.Stale)
			}
		}, want{"p1p2p3", 0, 3, "an unknown number"}},
		{"tokens that nobody knows match nothing known", func(t *testing.T, f *fleet, r *Request) {
			f.prefill.SetTrust("p1", replica.Stale)
			r.PrefillKeys, r.DecodeKeys = nil, nil
		}, want{"p1p2p3", 0, 0, "an unknown number"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(3, 1, nil)
			r := f.request(1, 8000)
			r.LocalOK = false
			tt.edit(t, f, r)
			met := map[string]bool{}
			for range 60 {
				d, err := f.pl.Explain(r, f.now)
				if err != nil {
					t.Fatal(err)
				}
				met[string(d.Prefill)] = true
				if !strings.Contains(tt.want.prefill, string(d.Prefill)) || d.Available != tt.want.available ||
					d.Blind != tt.want.blind {
					t.Fatalf("on %s, %d available, %d blind, want %+v; %s",
						d.Prefill, d.Available, d.Blind, tt.want, d.Reason)
				}
				if !strings.Contains(d.Reason, tt.want.reason) {
					t.Fatalf("reason %q, want %q in it", d.Reason, tt.want.reason)
				}
				if guessed := slices.Contains(d.Unknown, "prefix on "+string(d.Prefill)) ||
					slices.Contains(d.Unknown, "prefix"); guessed != d.Guessed {
					t.Fatalf("guessed %v, and unknown are %q", d.Guessed, d.Unknown)
				}
			}
			for id := range strings.SplitSeq(tt.want.prefill, "p") {
				if id != "" && !met["p"+id] {
					t.Errorf("p%s was never chosen", id)
				}
			}
		})
	}
}

// A blind decode replica is expected to have the mean match of the others, for the transfer and for a local
// prefill.
func TestStaleDecodeReplica(t *testing.T) {
	f := newFleet(1, 2, nil)
	f.store(t, f.decode, "d1", 1, 400)
	f.decode.SetTrust("d2", replica.Stale)
	d, err := f.pl.Explain(f.request(1, 8000), f.now)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Plans {
		on := p.OnDecode
		if blind := p.Decode == "d2"; blind != (on.Note == NoteBlind) ||
			blind && (on.Expected != 6400 || on.Matched != 0) || !blind && on.Expected != 0 {
			t.Errorf("%s: %+v", p.Decode, *on)
		}
	}
	if d.Available != 6400 || d.Blind != 1 {
		t.Errorf("%d available, %d blind, want 6400 and 1", d.Available, d.Blind)
	}
	if a, b := total(d, Local, "", "d1"), total(d, Local, "", "d2"); math.Abs(a-b) > 1e-9 {
		t.Errorf("d1 alone costs %g ms, d2 %g, want the same", a, b)
	}
}

// A match on a replica without room counts as available, although it cannot be used now.
func TestFullReplicaIsAvailable(t *testing.T) {
	f := newFleet(1, 3, nil)
	f.store(t, f.decode, "d1", 1, 400)
	f.says(f.decode, "d1", 9, 0, 0.99)
	f.says(f.decode, "d2", 9, 0, 0.99)
	f.decode.SetTrust("d2", replica.Stale)
	r := f.request(1, 8000)
	for _, local := range []bool{true, false} {
		r.LocalOK = local
		available, blind := 6400, 1
		if !local { // no decode replica could have prefilled it
			available, blind = 0, 0
		}
		if b := f.plan(t, r); b.Decision.Available != available || b.Decision.Blind != blind ||
			b.Decode.ID != "d3" {
			t.Errorf("local %v: %d available, %d blind on %s, want %d and %d on d3",
				local, b.Decision.Available, b.Decision.Blind, b.Decode.ID, available, blind)
		}
	}
}

// Plans with blind replicas cost what they would cost if each such replica reported the mean of the others.
func TestBlindIsTheMeanOfTheOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := rapid.SampledFrom([][2]int{{4, 1}, {3, 1}, {2, 2}, {1, 2}}).Draw(t, "shape")
		f, twin := newFleet(shape[0], shape[1], nil), newFleet(shape[0], shape[1], nil)
		var w twinFleet
		w.side(t, f, twin, f.prefill, twin.prefill, f.ps)
		w.side(t, f, twin, f.decode, twin.decode, f.ds)
		r := f.request(1, 8000)
		got, err1 := f.pl.Explain(r, f.now)
		want, err2 := twin.pl.Explain(r, twin.now)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if got.Available != w.available || got.Blind != w.blind {
			t.Errorf("%d available, %d blind, want %d and %d", got.Available, got.Blind, w.available, w.blind)
		}
		if len(got.Plans) != len(want.Plans) {
			t.Fatalf("%d plans, want %d", len(got.Plans), len(want.Plans))
		}
		for _, p := range got.Plans {
			if c := total(want, p.Mode, p.Prefill, p.Decode); math.Abs(c-p.Total) > 1e-6 {
				t.Errorf("%v %s > %s costs %g ms, want %g", p.Mode, p.Prefill, p.Decode, p.Total, c)
			}
		}
	})
}

// twinFleet adds up the expected answers of two pools.
type twinFleet struct{ available, blind int }

type teller interface {
	applier
	SetTrust(id replica.ID, t replica.Trust)
}

// side gives blocks and states to the members of one pool, and the expected values to the twin's pool.
func (w *twinFleet) side(t *rapid.T, f, twin *fleet, to, twinTo teller, members []replica.Replica) {
	held, blind := make([]int, len(members)), make([]bool, len(members))
	sum, known := 0, 0
	for i := range members {
		held[i] = rapid.SampledFrom([]int{0, 0, 100, 250, 400}).Draw(t, "blocks")
		trust := rapid.SampledFrom(
			[]replica.Trust{replica.Live, replica.Off, replica.Stale, replica.Syncing, replica.TrustUnknown},
		).Draw(t, "trust")
		if held[i] > 0 {
			f.store(t, to, members[i].ID, 1, held[i])
		}
		to.SetTrust(members[i].ID, trust)
		if blind[i] = trust != replica.Live && trust != replica.Off; blind[i] {
			w.blind++
			continue
		}
		sum, known = sum+held[i], known+1
		w.available = max(w.available, held[i]*blockSize)
	}
	for i := range members {
		if blind[i] && known > 0 {
			held[i] = max(held[i], sum/known)
		}
		if held[i] > 0 {
			twin.store(t, twinTo, members[i].ID, 1, held[i])
		}
	}
}

// total returns the cost of a plan in d, NaN if d lacks the plan.
func total(d *Decision, m Mode, prefill, decode replica.ID) float64 {
	for _, p := range d.Plans {
		if p.Mode == m && p.Prefill == prefill && p.Decode == decode {
			return p.Total
		}
	}
	return math.NaN()
}

// If the index dropped blocks for its budget, a match may be too small. The decision says so of the replica.
func TestTruncatedIsSaid(t *testing.T) {
	f := newFleet(2, 1, nil)
	f.prefill = prefill.New(prefill.Options{IndexBytes: 256 << 10})
	f.prefill.SetMembers(f.ps, f.now)
	for _, r := range f.ps {
		f.prefill.SetTrust(r.ID, replica.Live)
		f.says(f.prefill, r.ID, 0, 0, 0)
	}
	f.pl = New(f.prefill, f.decode, complete(Policy{}), rand.New(rand.NewPCG(7, 7)))
	f.store(t, f.prefill, "p1", 1, 100)
	f.store(t, f.prefill, "p2", 1, 8000) // the deepest blocks are dropped
	r := f.request(1, 150_000)
	r.LocalOK = false
	d, err := f.pl.Explain(r, f.now)
	if err != nil {
		t.Fatal(err)
	}
	if d.Truncated != 1 || d.Prefill != "p2" || d.Available != d.Matched || d.Matched == 0 ||
		d.Matched >= 8000*blockSize {
		t.Errorf("%d truncated, %d matched on %s, %d available", d.Truncated, d.Matched, d.Prefill, d.Available)
	}
	for _, p := range d.Plans {
		if got := p.OnPrefill.Note == NoteTruncated; got != (p.Prefill == "p2") {
			t.Errorf("%s is noted as %q", p.Prefill, p.OnPrefill.Note)
		}
	}
}
