package trace

import (
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// Half of the kinds are blind. The names of the kinds are fixed, and also the choice of blind kinds: a
// kind that a policy was tuned on cannot become blind again.
func TestKinds(t *testing.T) {
	var open, blind []string
	for _, k := range Kinds() {
		if (k.Recorded.File == "") == (k.Composed.Prompt == 0) || k.Rate <= 0 || k.About == "" {
			t.Errorf("%+v", k)
		}
		if found, err := FindKind(k.Name); err != nil || found != k {
			t.Errorf("%s: %+v, %v", k.Name, found, err)
		}
		if k.Blind {
			blind = append(blind, k.Name)
		} else {
			open = append(open, k.Name)
		}
	}
	if len(open) != len(blind) || len(open) < 10 {
		t.Errorf("%d open and %d blind kinds", len(open), len(blind))
	}
	want := strings.Fields(blindKinds)
	if !slices.Equal(blind, want) {
		t.Errorf("blind kinds\n%s\nwant\n%s", strings.Join(blind, "\n"), strings.Join(want, "\n"))
	}
	if _, err := FindKind("x"); err == nil || !strings.Contains(err.Error(), "azure-28") {
		t.Errorf("an unknown kind: %v", err)
	}
}

const blindKinds = `conversation-late conversation-unshared agents-benchmarks azure-bursts azure-28
azure-reasoning
answers4-short-most-ticks answers4-long-most-poisson answers28-short-most-poisson answers28-long-some-ticks
answers300-short-most-ticks answers300-long-most-bursts answers3000-short-none-ticks
answers3000-long-some-ticks`

// Lengths, rates and shared blocks follow the recipe.
func TestCompose(t *testing.T) {
	for _, k := range Kinds() {
		if k.Composed.Prompt == 0 {
			continue
		}
		const n = 4000
		c := k.Composed.Compose(7)
		var ins, outs []int
		known := map[uint64]bool{}
		repeated, all := 0.0, 0.0
		var last time.Duration
		same := 0
		for i := range n {
			s, err := c.Next()
			if err != nil || len(s.Calls) != 1 || s.At < last {
				t.Fatalf("%s: %+v, %v", k.Name, s, err)
			}
			if s.At == last {
				same++
			}
			last = s.At
			call := s.Calls[0]
			ins, outs = append(ins, call.Input), append(outs, call.Output)
			if len(call.ids) != call.Input/composedBlock {
				t.Fatalf("%s: %d blocks of %d tokens", k.Name, len(call.ids), call.Input)
			}
			if i >= n/4 {
				continue
			}
			for _, id := range call.ids {
				all++
				if known[id] {
					repeated++
				}
				known[id] = true
			}
		}
		slices.Sort(ins)
		slices.Sort(outs)
		r := k.Composed
		if got := ins[n/2]; math.Abs(float64(got)/float64(r.Prompt)-1) > 0.4 {
			t.Errorf("%s: prompts of %d tokens", k.Name, got)
		}
		if got := outs[n/2]; math.Abs(float64(got)/float64(r.Answer)-1) > 0.3 {
			t.Errorf("%s: answers of %d tokens", k.Name, got)
		}
		if rate := n / last.Seconds(); math.Abs(rate-1) > 0.15 {
			t.Errorf("%s: %.2f requests a second", k.Name, rate)
		}
		shared, want := repeated/all, [...][2]float64{{0, 0}, {0.2, 0.5}, {0.6, 0.99}}[r.Prefix]
		if shared < want[0] || shared > want[1] {
			t.Errorf("%s: %.2f of the blocks repeat earlier blocks", k.Name, shared)
		}
		if ticks := same > n/2; ticks != (r.Arrive == Ticks) {
			t.Errorf("%s: %d of %d arrive together with the request before", k.Name, same, n)
		}
	}
}

func TestComposeIsTheSameForASeed(t *testing.T) {
	r := Recipe{Prompt: 600, Answer: 28, Prefix: Most, Arrive: Bursts}
	a, b := r.Compose(1), r.Compose(1)
	other := r.Compose(2)
	differs := false
	for range 50 {
		x, _ := a.Next()
		y, _ := b.Next()
		z, _ := other.Next()
		if x.At != y.At || x.Calls[0].Input != y.Calls[0].Input || x.Calls[0].Output != y.Calls[0].Output {
			t.Fatalf("%+v and %+v", x, y)
		}
		differs = differs || x.Calls[0].Output != z.Calls[0].Output
	}
	if !differs {
		t.Error("another seed gave the same requests")
	}
}

// The part of a recording starts at time zero. Answer lengths are drawn, and no two sessions share blocks.
func TestChangedRecording(t *testing.T) {
	text := `{"tandem_trace":1,"block_size":16}` + "\n" + `{"t":5,"in":16,"out":20,"blocks":[7]}` + "\n" +
		`{"t":60,"in":16,"out":20,"blocks":[7]}` + "\n" + `{"t":70,"in":16,"out":20,"blocks":[7]}` + "\n" +
		`{"t":120,"in":16,"out":20,"blocks":[7]}`
	in, err := Open(strings.NewReader(text), "sample", Options{})
	if err != nil {
		t.Fatal(err)
	}
	k := Kind{Recorded: Recording{From: time.Minute, To: 2 * time.Minute, Answers: [2]int{2, 3}, Unshared: true}}
	c := k.Sessions(in, 1)
	var ids []uint64
	for _, at := range []time.Duration{0, 10 * time.Second} {
		s, err := c.Next()
		if err != nil || s.At != at || s.Calls[0].Output < 2 || s.Calls[0].Output > 3 {
			t.Fatalf("%+v, %v", s, err)
		}
		ids = s.AppendBlocks(ids, 0)
	}
	if len(ids) != 2 || ids[0] == ids[1] {
		t.Errorf("blocks %v", ids)
	}
	if _, err := c.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end of the part: %v", err)
	}
}

// A kind that was not drawn can be played by its name, and does not change which kinds were drawn.
func TestKindsAreMadeByName(t *testing.T) {
	k, err := FindKind("answers40-300-none-bursts")
	want := Recipe{Prompt: 300, Answer: 40, Prefix: None, Arrive: Bursts}
	if err != nil || k.Composed != want || k.Rate != 1 {
		t.Errorf("%+v, %v", k, err)
	}
	c, seen := k.Composed.Compose(3), map[uint64]bool{}
	prompts, answers := 0, 0
	for range 1000 {
		s, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		call := &s.Calls[0]
		prompts += call.Input
		answers += call.Output
		for _, id := range call.ids {
			if seen[id] {
				t.Fatal("two prompts share a block")
			}
			seen[id] = true
		}
	}
	if prompts < 300_000 || prompts > 500_000 || answers < 35_000 || answers > 70_000 {
		t.Errorf("1,000 prompts have %d tokens, answers %d", prompts, answers)
	}
	for _, k := range composedKinds() {
		if r, ok := parseRecipe(k.Name); !ok || r != k.Composed {
			t.Errorf("%s is read as %+v, %v", k.Name, r, ok)
		}
	}
	for _, name := range []string{
		"answers40-300-none", "answers0-300-none-bursts", "answers40-31-none-bursts", "answers40-600-none-bursts",
		"answers40-300-all-bursts", "answers40-300-none-weekly", "40-300-none-bursts", "answers040-300-none-bursts",
		"answers99999999-300-none-bursts", "",
	} {
		if k, err := FindKind(name); err == nil {
			t.Errorf("%q is played as %+v", name, k)
		}
	}
}
