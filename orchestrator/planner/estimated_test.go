package planner

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// Without token ids, the prompts of a language may have three times as many tokens as estimated. After some
// counts by engines, prompts are planned and priced as if their ids were known.
func TestEstimatedLengthsFollowWhatEnginesCount(t *testing.T) {
	const estimated, counted = 2000, 6000
	took := 2 * seconds(estimate.DefaultSpeed().Prefill(counted, 0))
	learn := func(tokens int, exact bool) (last *Decision, known *Decision) {
		f := newFleet(1, 1, nil)
		ask := func(tokens int, exact bool) *Request {
			req := f.request(1, tokens)
			req.PrefillKeys, req.DecodeKeys = nil, nil
			req.Exact, req.LocalOK = exact, false
			return req
		}
		for range 40 {
			b, err := f.pl.Plan(ask(tokens, exact), f.now)
			if err != nil {
				t.Fatal(err)
			}
			f.pass(took)
			b.Counted(counted)
			b.PrefillLease.Done(0, took, f.now)
			b.Counted(counted) // the decode replica counts the same prompt
			b.Release(f.now)
			f.pass(time.Second)
		}
		last, err := f.pl.Explain(ask(tokens, exact), f.now)
		if err != nil {
			t.Fatal(err)
		}
		if known, err = f.pl.Explain(ask(estimated, true), f.now); err != nil {
			t.Fatal(err)
		}
		return last, known
	}
	got, known := learn(estimated, false)
	want, _ := learn(counted, true)
	if got.Tokens < counted*99/100 || got.Tokens > counted*101/100 {
		t.Errorf("a prompt of %d tokens is planned as %d", counted, got.Tokens)
	}
	if x := got.Plans[0].Terms.Prefill / want.Plans[0].Terms.Prefill; x < 0.98 || x > 1.02 {
		t.Errorf("the prompt is priced at %v of the price with known ids", x)
	}
	if known.Tokens != estimated {
		t.Errorf("a prompt of %d known tokens is planned as %d", estimated, known.Tokens)
	}
}

// What engines count of one model's prompts corrects the estimates of this model and its adapters only: each
// model has its own tokenizer.
func TestEstimatesAreCorrectedByModel(t *testing.T) {
	f := newFleet(2, 2, func(r *replica.Replica) {
		if r.ID == "p2" || r.ID == "d2" {
			r.Facts.Model, r.Facts.Models = "other", []string{"other", "adapter"}
			r.Facts.Adapters = []string{"adapter"}
		}
	})
	ask := func(model string) *Request {
		req := f.request(1, 2000)
		req.PrefillKeys, req.DecodeKeys = nil, nil
		req.Model = model
		req.Exact = false
		return req
	}
	for range 40 {
		b := f.plan(t, ask("other"))
		b.Counted(6000)
		b.Release(f.now)
		f.pass(time.Second)
		f.idle()
	}
	for model, want := range map[string]int{"m": 2000, "other": 6000, "adapter": 6000} {
		d, err := f.pl.Explain(ask(model), f.now)
		if err != nil {
			t.Fatal(err)
		}
		if d.Tokens < want*99/100 || d.Tokens > want*101/100 {
			t.Errorf("a prompt of %s is planned as %d tokens, want %d", model, d.Tokens, want)
		}
	}
}
