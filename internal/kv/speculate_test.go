package kv

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	epoch   = time.Unix(1_000_000, 0)
	someday = epoch.Add(time.Hour)
)

func TestSpeculation(t *testing.T) {
	keys := promptKeys(8, 1)
	apply := func(events ...Event) func(*Index) {
		return func(ix *Index) { ix.Apply(0, &Batch{Events: events}) }
	}
	expire := func(after time.Duration) func(*Index) {
		return func(ix *Index) { ix.Expire(epoch.Add(after)) }
	}
	retract := func(keys []Key) func(*Index) {
		return func(ix *Index) { ix.Retract(0, keys) }
	}
	await := func(until time.Duration) func(*Index) {
		return func(ix *Index) { ix.Await(0, keys, epoch.Add(until)) }
	}
	again := func(ix *Index) { ix.Speculate(0, keys, epoch.Add(2*time.Second)) }
	for _, tt := range []struct {
		name  string
		steps []func(*Index) // after Speculate until epoch + 2 s
		want  int
	}{
		{"believed", nil, 8},
		{"until its time", []func(*Index){expire(time.Second)}, 8},
		{"no longer", []func(*Index){expire(2 * time.Second)}, 0},
		{"events tell a part", []func(*Index){apply(stored(0, 3, 1))}, 8},
		{"events told a part in time", []func(*Index){apply(stored(0, 3, 1)), expire(time.Minute)}, 3},
		{"events tell all", []func(*Index){apply(stored(0, 8, 1)), expire(time.Minute)}, 8},
		{"from the confirmation on events alone count", []func(*Index){apply(stored(0, 8, 1), removed(1008))}, 7},
		{"another prompt confirms nothing", []func(*Index){apply(stored(0, 8, 2), removed(2008))}, 8},
		{
			"another holder's events confirm nothing",
			[]func(*Index){func(ix *Index) { ix.Apply(1, &Batch{Events: []Event{stored(0, 8, 1), removed(1008)}}) }},
			8,
		},
		{"a clear ends it", []func(*Index){apply(Event{Kind: Cleared})}, 0},
		{"a clear of another tier does not", []func(*Index){apply(Event{Kind: Cleared, Tier: CPU})}, 8},
		{"forgotten", []func(*Index){func(ix *Index) { ix.Forget(0) }}, 0},
		{"taken back", []func(*Index){retract(keys)}, 0},
		{"another prompt is taken back", []func(*Index){retract(keys[:7])}, 8},
		{"one of two is taken back", []func(*Index){again, retract(keys)}, 8},
		{"both are taken back", []func(*Index){again, retract(keys), retract(keys)}, 0},
		{"taken back of another holder", []func(*Index){func(ix *Index) { ix.Retract(1, keys) }}, 8},
		{"taken back when events have told", []func(*Index){apply(stored(0, 8, 1)), retract(keys)}, 8},
		{"computed", []func(*Index){await(time.Second)}, 8},
		{"computed, and events do not tell", []func(*Index){await(time.Second), expire(time.Second)}, 0},
		{"computed later than expected", []func(*Index){expire(3 * time.Second), await(4 * time.Second)}, 8},
		{"computed for one, while another fails", []func(*Index){again, await(time.Minute), retract(keys)}, 8},
		{
			"computed when events have told",
			[]func(*Index){apply(stored(0, 8, 1)), await(time.Second), apply(removed(1008))},
			7,
		},
		{
			"again, for longer",
			[]func(*Index){func(ix *Index) { ix.Speculate(0, keys, someday) }, expire(time.Minute)},
			8,
		},
		{
			"again, for less",
			[]func(*Index){func(ix *Index) { ix.Speculate(0, keys, epoch) }, expire(time.Second)},
			8,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ix := NewIndex(Options{Chain: testChain})
			ix.Speculate(0, keys, epoch.Add(2*time.Second))
			for _, step := range tt.steps {
				step(ix)
			}
			if got := depthOf(ix, 0, keys); got != tt.want {
				t.Errorf("depth %d, want %d", got, tt.want)
			}
		})
	}
}

func TestNoSpeculationOnWhatIsThere(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	ix.Apply(0, &Batch{Events: []Event{stored(0, 8, 1)}})
	ix.Speculate(0, promptKeys(8, 1), someday)
	ix.Speculate(0, nil, someday)
	if got := ix.Stats().Speculated; got != 0 {
		t.Errorf("%d speculations, want none", got)
	}
}

func TestSpeculationsAreBounded(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	for i := range 200 {
		for h := range Holder(2) {
			ix.Speculate(h, promptKeys(2, Token(100*i)), epoch.Add(time.Duration(i)*time.Second))
		}
	}
	s := ix.Stats()
	if s.Speculated != 2*guessesPerHolder || s.Holders != nil && s.Holders[0].Speculated != guessesPerHolder {
		t.Errorf("%d speculations, want %d of each holder", s.Speculated, guessesPerHolder)
	}
	for i, want := range map[int]int{0: 0, 199 - guessesPerHolder: 0, 200 - guessesPerHolder: 2, 199: 2} {
		if got := depthOf(ix, 1, promptKeys(2, Token(100*i))); got != want {
			t.Errorf("speculation %d: depth %d, want %d", i, got, want)
		}
	}
}

func TestSpeculationsKeepToTheirBytes(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain, ByteBudget: 64 * guessShare * 8}) // 64 keys
	ix.Speculate(0, promptKeys(40, 1), epoch.Add(1*time.Second))
	ix.Speculate(1, promptKeys(20, 1), epoch.Add(2*time.Second))
	ix.Speculate(2, promptKeys(20, 1), epoch.Add(3*time.Second)) // no room: the first goes
	ix.Speculate(3, promptKeys(99, 1), epoch.Add(4*time.Second)) // all must go, and 64 keys of this guess stay
	depth := make([]int32, 4)
	ix.Match(promptKeys(99, 1), depth)
	if got, want := fmt.Sprint(depth), "[0 0 0 64]"; got != want {
		t.Errorf("depths %s, want %s", got, want)
	}
}

// For many guesses with common beginnings, the sorted list gives the same answers as a comparison with each
// guess.
func TestGuessesOfManyPrompts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func() []Key {
		p := path{blocks: make([]byte, 1+r.IntN(12))}
		for i := range p.blocks {
			p.blocks[i] = byte(r.IntN(2))
		}
		return p.keys()
	}
	ix := NewIndex(Options{Chain: worldChain})
	w := newTwin(worldChain)
	for i := range 400 {
		h := Holder(r.IntN(20))
		keys := random()
		until := epoch.Add(time.Duration(r.IntN(400)) * time.Second)
		ix.Speculate(h, keys, until)
		w.speculate(h, keys, until)
		now := epoch.Add(time.Duration(i/2) * time.Second)
		ix.Expire(now)
		w.expire(now)
		depth, query := make([]int32, 20), random()
		ix.Match(query, depth)
		for h, got := range depth {
			if want := w.depth(Holder(h), query); got != want {
				t.Fatalf("step %d: holder %d has %d, want %d", i, h, got, want)
			}
		}
	}
	if n := ix.Stats().Speculated; n < 50 {
		t.Errorf("only %d speculations left at the end: the test shows little", n)
	}
}
