//go:build linux && kubernetes

package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// asked is one request of the load.
type asked struct {
	q         question
	got       *reply
	began     time.Time
	first     time.Duration // to the first content of a stream, 0 unknown
	prompt    int           // tokens
	delivered int           // cached tokens that the engine reported
	split     bool
}

// load sends ten questions a second while act runs, and for a time before and after. It waits for all
// answers.
func (r *rollouts) load(around time.Duration, act func()) (all []*asked, from, to time.Time) {
	r.t.Helper()
	var wg sync.WaitGroup
	ended := make(chan struct{})
	wg.Go(func() {
		w := newWriter(0)
		w.beginnings = nil
		for range 12 { // the same choices for every load
			w.beginnings = append(w.beginnings, w.words(3000))
		}
		w.rnd = rand.New(rand.NewPCG(uint64(r.started), 9))
		tick := time.NewTicker(time.Second / 10)
		defer tick.Stop()
		for {
			a := &asked{q: w.next(24)}
			all = append(all, a)
			wg.Go(func() { a.ask(r.fleet) })
			select {
			case <-ended:
				return
			case <-tick.C:
			}
		}
	})
	pause(around)
	from = time.Now()
	act()
	for _, p := range slices.Clone(r.leaving) {
		r.end(p)
	}
	to = time.Now()
	pause(around)
	close(ended)
	wg.Wait()
	return all, from, to
}

func (a *asked) ask(f *fleet) {
	a.began = time.Now()
	a.got = ask(f.t.Context(), f.client, f.front, a.q, func(got *reply) {
		if a.first == 0 && len(got.texts) > 0 {
			a.first = time.Since(a.began)
		}
	})
}

// outcome is the result of the load during one rollout.
type outcome struct {
	name           string
	all            []*asked
	from, to       time.Time // of the rollout
	marks          []time.Time
	failed, wrong  int
	alike          int // answers that both revisions would give: the prompts are token ids
	oldest, newest int // answers that only the old or only the new revision gives
}

// rollout is one change of the pods under load, from one revision to another.
func (r *rollouts) rollout(name string, was, is revision, act func()) *outcome {
	r.t.Helper()
	r.marks = nil
	o := &outcome{name: name}
	o.all, o.from, o.to = r.load(8*time.Second, act)
	o.marks = r.marks
	r.serving(len(r.pools["prefill"]) + len(r.pools["decode"]))
	r.judge(o, was, is)
	if is != was && (o.alike > len(o.all)/2 || o.oldest == 0 || o.newest == 0) {
		r.t.Errorf("%s shows nothing: %d answers of both revisions, %d of the old and %d of the new one",
			name, o.alike, o.oldest, o.newest)
	}
	r.recall(o)
	return o
}

// judge compares every answer with the answers of a single engine of each revision.
func (r *rollouts) judge(o *outcome, was, is revision) {
	r.t.Helper()
	for _, a := range o.all {
		old, why := judge(r.rightOf(was, a.q), a.got)
		now := old
		if is != was {
			now, _ = judge(r.rightOf(is, a.q), a.got)
		}
		after := a.began.Sub(o.from).Round(time.Millisecond)
		switch {
		case old == exact && now == exact && is != was:
			o.alike++
		case old == exact:
			o.oldest++
		case now == exact:
			o.newest++
		case a.got.err != nil, a.got.failed != nil, a.got.status != http.StatusOK, !a.got.done:
			o.failed++
			if r.preStop > 0 { // without the hook, no engine can continue a stream of a revision's last pod
				r.t.Errorf("%s: after %v a request failed: %s", o.name, after, why)
			}
		default:
			o.wrong++
			r.t.Errorf("%s: after %v an answer is wrong: %s", o.name, after, why)
		}
	}
}

// recall reads the token numbers from the router's records.
func (r *rollouts) recall(o *outcome) {
	r.t.Helper()
	var records []struct {
		ID        string `json:"id"`
		Mode      string `json:"mode"`
		Prompt    int    `json:"prompt_tokens"`
		Delivered int    `json:"delivered_tokens"`
	}
	r.get(r.admin+"/debug/decisions?n=16384", &records)
	byID := map[string]int{}
	for i, rec := range records {
		byID[rec.ID] = i
	}
	for _, a := range o.all {
		if i, known := byID[a.got.header.Get("X-Tandem-Decision")]; known {
			a.prompt, a.delivered = records[i].Prompt, max(records[i].Delivered, 0)
			a.split = records[i].Mode == "split"
		}
	}
}

// hits returns the share of prompt tokens that were cached.
func hits(all []*asked) float64 {
	cached, tokens := 0, 0
	for _, a := range all {
		cached, tokens = cached+a.delivered, tokens+a.prompt
	}
	return float64(cached) / float64(max(tokens, 1))
}

// firsts returns the sorted times to the first content.
func firsts(all []*asked) (sorted []time.Duration) {
	for _, a := range all {
		if a.first > 0 {
			sorted = append(sorted, a.first)
		}
	}
	slices.Sort(sorted)
	return sorted
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}

// during splits the requests: during began in the rollout, before began earlier.
func (o *outcome) during() (before, during []*asked) {
	for _, a := range o.all {
		switch {
		case a.began.Before(o.from):
			before = append(before, a)
		case a.began.Before(o.to):
			during = append(during, a)
		}
	}
	return before, during
}

// String is a row for the table of docs/kubernetes.md: requests, failed and wrong ones, the time of the
// rollout, the hit ratio before and during the rollout, the median TTFT before and during the rollout, its
// 99th percentile, the share of split requests, and the number of answers of the former and the new revision.
func (o *outcome) String() string {
	before, during := o.during()
	split := 0
	for _, a := range during {
		if a.split {
			split++
		}
	}
	was, is := firsts(before), firsts(during)
	ms := func(sorted []time.Duration, q float64) int64 { return quantile(sorted, q).Milliseconds() }
	return fmt.Sprintf("| %s | %d | %d | %d | %.0f s | %.0f, %.0f %% | %d, %d, %d ms | %.0f %% | %d, %d |",
		o.name, len(o.all), o.failed, o.wrong, o.to.Sub(o.from).Seconds(), 100*hits(before), 100*hits(during),
		ms(was, 0.5), ms(is, 0.5), ms(is, 0.99), 100*float64(split)/float64(max(len(during), 1)),
		o.oldest, o.newest)
}
