package replay

import "testing"

// Every second prompt of 1,500 tokens repeats the prompt before it, and at least one token of it is
// computed. All prompts share a block of 512 tokens.
func TestIdealOfAPlay(t *testing.T) {
	p := Play{Trace: file(t, 100), Cluster: "1P1D", Profile: "8b"}
	x, err := p.Ideal()
	if err != nil {
		t.Fatal(err)
	}
	repeated, shared := int64(1024), int64(512) // full blocks of the trace
	if x.Requests != 100 || x.Prompt != 150_000 || x.Cached != 50*repeated+49*shared {
		t.Errorf("%+v", x)
	}
	p.Scale = 2
	if dense, err := p.Ideal(); err != nil || (dense.Span*2-x.Span).Abs() > 2 || dense.Prefill != x.Prefill {
		t.Errorf("twice as dense: %+v, %v", dense, err)
	}
	p.Cluster = "2D"
	if alone, err := p.Ideal(); err != nil || alone.Prefill != x.Prefill {
		t.Errorf("without a prefill pool: %+v, %v", alone, err)
	}
	p.Trace += "x"
	if _, err := p.Ideal(); err == nil {
		t.Error("a missing trace was measured")
	}
}
