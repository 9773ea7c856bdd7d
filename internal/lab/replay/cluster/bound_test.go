package cluster

import (
	"math"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/lab/trace"
)

// Calculated by hand: a prompt token takes 1 ms, a step of at most 100 tokens takes 0.1 s, and each
// decoded token takes 1 ms. The requests are 64 new tokens; the same prompt again, whose last block must
// be computed; 32 of its tokens and 40 new ones; and another first block followed by the same blocks.
func TestIdealByHand(t *testing.T) {
	text := blocks + `{"t":10,"in":64,"out":11,"blocks":[1,2,3,4]}
{"t":11,"in":64,"out":1,"blocks":[1,2,3,4]}
{"t":12,"in":72,"out":1,"blocks":[1,2,30,40,50]}
{"t":20,"in":64,"out":1,"blocks":[9,2,3,4]}
`
	source, err := trace.Open(strings.NewReader(text), "sample", trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Measure(source,
		core.Config{BlockSize: 16, MaxBatchedTokens: 100, Cost: core.Cost{A: 1e-3, T0: 0.1, D0: 0.5, D1: 1e-3}})
	if err != nil {
		t.Fatal(err)
	}
	if got.Requests != 4 || got.Prompt != 264 || got.Cached != 48+32 || got.Span.Seconds() != 10 {
		t.Errorf("%+v", got)
	}
	// 184 tokens of 1 ms, 1.84 steps of 0.1 s, and ten decoded tokens.
	if math.Abs(got.Prefill-0.368) > 1e-9 || math.Abs(got.Decode-0.010) > 1e-9 {
		t.Errorf("%v s of prefill, %v of decoding", got.Prefill, got.Decode)
	}
	if math.Abs(got.Hit()-80.0/264) > 1e-9 || math.Abs(got.Load(2, 4)-0.368*4/20) > 1e-9 ||
		math.Abs(got.Capacity(2)-20/0.368) > 1e-9 {
		t.Errorf("hit %v, load %v, capacity %v", got.Hit(), got.Load(2, 4), got.Capacity(2))
	}
	if want := 4 * 10 / 0.378; math.Abs(got.TotalCapacity(4)-want) > 1e-9 {
		t.Errorf("total capacity %v, want %v", got.TotalCapacity(4), want)
	}
}
