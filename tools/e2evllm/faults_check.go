package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// coreSize is the number of requests that are compared after a fault. Half as many more are compared that
// share beginnings with requests around the fault.
const coreSize = 8

// checkCore compares answers like the suite does.
func (f *faulting) checkCore(ctx context.Context) error {
	var all []request
	for range coreSize {
		all = append(all, f.g.next())
	}
	for _, ids := range f.recent[max(0, len(f.recent)-coreSize/2):] {
		all = append(all, plainIDs(slices.Concat(ids[:min(len(ids), 3*blockTokens)], f.g.ids(9)), 4))
	}
	next := make(chan request)
	diffs := make([]error, 2)
	var workers sync.WaitGroup
	for w := range diffs {
		workers.Go(func() {
			for q := range next {
				if res := f.s.compare(ctx, f.router, q); res.diff != "" {
					diffs[w] = errors.Join(diffs[w], fmt.Errorf("afterwards %s (%s): %s", res.id, res.kind,
						res.diff))
				}
			}
		})
	}
	for _, q := range all {
		next <- q
	}
	close(next)
	workers.Wait()
	err := errors.Join(diffs...)
	f.row.noteCore(len(all), err)
	return err
}

// audited is the number of prompts that an audit sends to each engine.
const audited = 12

// checkCaches sends the newest prompts of the routers directly to the living engines.
func (f *faulting) checkCaches(ctx context.Context) error {
	all := f.s.engines
	defer func() { f.s.engines = all }()
	f.s.engines = f.living(ctx)
	return f.s.audit(ctx, audited)
}

// wantTruePredictions repeats the newest prompts one at a time. It requires the router's predictions of
// cached tokens to be true: the blocks of a restarted engine's former process are forgotten. An engine may
// find more in a shared store.
func (f *faulting) wantTruePredictions(ctx context.Context) error {
	asked := map[string]bool{}
	for _, ids := range f.recent[max(0, len(f.recent)-8):] {
		res := f.s.compare(ctx, f.router, plainIDs(ids, 2))
		if asked[res.id] = true; res.diff != "" {
			return fmt.Errorf("asked again, %s: %s", res.id, res.diff)
		}
	}
	records, err := readRecords(ctx, f.router)
	if err != nil {
		return err
	}
	right := 0
	var wrong []string
	for _, r := range records {
		switch {
		case !asked[r.ID] || r.Outcome != "ok" || r.Captured < 0 || r.Delivered < 0:
		case r.Captured == r.Delivered, r.Captured < r.Delivered && wired(caches, f.s.engines) >= 0:
			right++
		default:
			wrong = append(wrong,
				fmt.Sprintf("%s at %s: predicted %d, found %d", r.ID, r.Prefill, r.Captured, r.Delivered))
		}
	}
	f.row.remark("%d of %d predictions true", right, right+len(wrong))
	if len(wrong) > 0 || right == 0 {
		return fmt.Errorf("predictions are wrong after a restart: %d right, %s", right, strings.Join(wrong,
			"; "))
	}
	return nil
}
