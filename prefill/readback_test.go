package prefill

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// Reading back has a price, which prompts teach. Without lower memories there is none.
func TestReadingBackIsLearned(t *testing.T) {
	p, now := newPool("p1", "p2"), start
	ask := func(below kv.Below) []Candidate {
		depth := make([]int32, p.Holders())
		all := make([]kv.Below, len(depth))
		for i := range depth {
			depth[i], all[i] = 1000, below
		}
		cs, _ := p.Candidates(&Query{Model: "m", Tokens: 17_000, Depth: depth, Below: all}, now, nil, nil)
		return cs
	}
	if cs := ask(kv.Below{}); cs[0].Read != 0 {
		t.Errorf("%v s to read nothing back", cs[0].Read)
	}
	below := kv.Below{CPU: 800}
	before := ask(below)
	if cs := before; cs[0].Read <= 0 || cs[0].Read != cs[1].Read {
		t.Errorf("%v and %v s before the first prompt", cs[0].Read, cs[1].Read)
	}
	for range 5 {
		for i, reading := range []float64{2, 0.01} {
			c := &ask(below)[i]
			l := p.Book(c, now)
			took := seconds(c.Warm + reading)
			now = now.Add(took)
			l.Done(16_000, took, now)
			now = now.Add(time.Second)
		}
	}
	cs := ask(below)
	near(t, "reading on the slow replica", cs[0].Read, 2*0.95, 0.2)
	if cs[1].Read > 0.1 {
		t.Errorf("%v s to read back on the fast replica", cs[1].Read)
	}
	near(t, "computing on the slow replica", cs[0].Warm, before[0].Warm, 0.5)
}
