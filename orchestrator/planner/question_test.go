package planner

import (
	"fmt"
	"reflect"
	"sync"
	"testing"
)

// The memory of a question is reused. Old contents change no decision, and later contents change no earlier
// decision.
func TestQuestionsShareNothing(t *testing.T) {
	spoilt := func() *question {
		q := &question{prefillDepth: make([]int32, 8), decodeDepth: make([]int32, 8)}
		for i := range q.prefillDepth {
			q.prefillDepth[i], q.decodeDepth[i] = 1000, 2000
		}
		return q
	}
	for tokens := 100; tokens < 1000; tokens += 100 {
		var booked [2]*Booking
		for i := range booked {
			f := newFleet(3, 3, nil)
			f.store(t, f.prefill, "p2", 1, 20)
			f.store(t, f.decode, "d3", 1, 10)
			for range 2 * i {
				questions.Put(spoilt())
			}
			booked[i] = f.plan(t, f.request(1, tokens))
			for range 2 * i {
				q := f.pl.ask(f.request(2, 16*tokens), f.now)
				defer q.over()
			}
		}
		if !reflect.DeepEqual(booked[0].Decision, booked[1].Decision) {
			t.Errorf("%d tokens: decided %+v, and in used memory %+v", tokens, booked[0].Decision, booked[1].Decision)
		}
	}
}

// Concurrent requests match their own prompts only.
func TestPlansAtOnce(t *testing.T) {
	f := newFleet(4, 4, nil)
	for seed := range uint32(4) {
		for _, p := range f.ps {
			f.store(t, f.prefill, p.ID, seed, int(10+seed))
		}
	}
	var wg sync.WaitGroup
	for seed := range uint32(4) {
		r := f.request(seed, 1000)
		r.LocalOK, r.ID = false, fmt.Sprint(seed)
		wg.Go(func() {
			for range 200 {
				b, err := f.pl.Plan(r, f.now)
				if err != nil {
					t.Error(err)
					return
				}
				if want := int(10+seed) * blockSize; b.MatchedPrefill != want || b.Decision.ID != r.ID {
					t.Errorf("request %s: %s matches %d tokens, want %d", r.ID, b.Decision.ID, b.MatchedPrefill, want)
				}
				b.Release(f.now)
			}
		})
	}
	wg.Wait()
}
