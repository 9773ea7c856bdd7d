package orchestrator

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/canary"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// Replicas and pairs that are ejected come back through a trial: a canary, which is a request of our own that
// costs no client anything. It takes the whole way of a split request, so that a prefill engine without a
// connector, a decode engine that loads nothing and a path that is cut all show.

const (
	trialTick = 250 * time.Millisecond // between two looks at what is due
	// Of one canary, from its first byte to its verdict, which a pair's first handoff may take.
	trialLimit = 15 * time.Second
	// Of its blocks, from the decode engine's answer to where it is late for them.
	transferLimit = 5 * time.Second
	trialsOnce    = 8 // canaries at once
	// Replicas with which a leg is tried, until one of them shows something.
	partners = 3
)

// trials makes the trials that are due until ctx ends.
func (o *Orchestrator) trials(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, trialsOnce)
	t := time.NewTicker(trialTick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if !o.planner.Outliers().Active(time.Now()) {
			continue
		}
		for _, tr := range o.planner.Outliers().Due(time.Now(), o.fleet.MayTry) {
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
				return
			}
			wg.Go(func() {
				defer func() { <-places }()
				o.panics.Contain("trial", func() { o.try(ctx, tr) })
			})
		}
	}
}

// found is what a trial, or a part of it, has shown.
type found uint8

const (
	unclear found = iota // it could not be made, or failed for another reason than the one that it is made for
	works
	fails
)

func (f found) String() string { return [...]string{"unclear", "passed", "failed"}[f] }

// finding is what a trial has shown, with the kind of failure and what shows it.
type finding struct {
	found found
	kind  outlier.Kind
	why   string
	old   bool // nothing, since a kept connection grew too old under it
}

// onceMore makes a trial, and once more where a connection grew too old under it: with another canary, since
// transfer parameters are good for one use. A trial has a time of its own each.
func onceMore(trial func() finding) finding {
	got := trial()
	if got.old {
		got = trial()
	}
	return got
}

// try makes one trial and tells what came of it. Where it shows nothing, the next request is the trial.
func (o *Orchestrator) try(ctx context.Context, tr outlier.Trial) {
	if tr.IsPair() && o.misfits(tr.Pair) {
		o.planner.Outliers().PutOff(tr, time.Now())
		return
	}
	var got finding // a panic shows nothing
	o.panics.Contain("trial", func() { got = o.tryWhat(ctx, tr) })
	o.m.ejections.trials.WithLabelValues(got.found.String()).Inc()
	if got.found != fails {
		o.announce(o.planner.Outliers().Passed(tr, time.Now()))
		return
	}
	of := []any{"replica", string(tr.ID), "leg", tr.Leg.String()}
	if tr.IsPair() {
		of = []any{"prefill", string(tr.Pair.Prefill), "decode", string(tr.Pair.Decode)}
	}
	o.log.Info("trial failed", append(of, "kind", got.kind.String(), "why", got.why)...)
	o.announce(o.planner.Outliers().Failed(tr, got.kind, time.Now()))
}

// misfits reports whether blocks of one end of the pair mean nothing to the other, as after a restart with
// another block size: such a handoff ends a decode engine (vLLM 0.32), a canary's too.
func (o *Orchestrator) misfits(pair outlier.Pair) bool {
	p, d := o.fleet.Endpoint(pair.Prefill), o.fleet.Endpoint(pair.Decode)
	return p != nil && d != nil && planner.Incompatible(&p.Member, &d.Member) != ""
}

func (o *Orchestrator) tryWhat(ctx context.Context, tr outlier.Trial) finding {
	if o.snap.Load().connect.Order() != connector.Sequential {
		return finding{}
	}
	switch {
	case tr.IsPair():
		return o.tryPair(ctx, o.fleet.Endpoint(tr.Pair.Prefill), o.fleet.Endpoint(tr.Pair.Decode), "")
	case tr.Leg == outlier.Whole:
		return o.tryWhole(ctx, o.fleet.Endpoint(tr.ID))
	}
	return o.tryLeg(ctx, tr)
}

// tryLeg tries a leg with one replica of the other pool after the other, until one of them shows something. A
// failed load is shown by two: it may be the path.
func (o *Orchestrator) tryLeg(ctx context.Context, tr outlier.Trial) (last finding) {
	self := o.fleet.Endpoint(tr.ID)
	for _, other := range o.partnersOf(self) {
		p := self
		d := other
		theirs := "decode"
		if tr.Leg == outlier.Decode {
			p = other
			d = self
			theirs = "prefill"
		}
		got := o.tryPair(ctx, p, d, theirs)
		switch {
		case got.found == works, got.found == fails && (got.kind == outlier.Wrong || last.found == fails):
			return got
		case got.found == fails:
			last = got
		}
	}
	if last.found == unclear && tr.Leg == outlier.Decode {
		return o.tryWhole(ctx, self) // at least it must answer
	}
	return last
}

// partnersOf returns replicas of the other pool that the replica can be tried with, those in use first.
func (o *Orchestrator) partnersOf(self *fleet.Endpoint) []*fleet.Endpoint {
	var good, others []*fleet.Endpoint
	if self == nil {
		return nil
	}
	for _, r := range o.fleet.Endpoints() {
		p := self
		d := r
		leg := outlier.Decode
		if self.Member.Role == replica.Decode {
			p = r
			d = self
			leg = outlier.Prefill
		}
		if r.Member.Role == self.Member.Role || !r.Up() || r.Member.Draining ||
			planner.Incompatible(&p.Member, &d.Member) != "" {
			continue
		}
		if o.planner.Outliers().Known(r.Member.ID, leg, time.Now()) {
			others = append(others, r)
			continue
		}
		good = append(good, r)
	}
	rand.Shuffle(len(good), func(i, j int) { good[i], good[j] = good[j], good[i] })
	all := append(good, others...)
	return all[:min(len(all), partners)]
}

// tryWhole asks a decode replica for a few tokens that it computes alone. That it refuses such a question
// shows that it answers.
func (o *Orchestrator) tryWhole(ctx context.Context, to *fleet.Endpoint) finding {
	if to == nil {
		return finding{}
	}
	return onceMore(func() finding { return o.wholeOnce(ctx, to) })
}

func (o *Orchestrator) wholeOnce(ctx context.Context, to *fleet.Endpoint) finding {
	ctx, cancel := context.WithTimeout(ctx, trialLimit)
	defer cancel()
	q := o.question(to, to)
	got := o.askCanary(ctx, to, q, &engine.Request{Body: q.Own()}, q.Salt+"-own")
	says := got.Status == http.StatusOK ||
		got.Status < http.StatusInternalServerError && clientMayCause(got.Status) // what is wrong with this request
	if got.Err == nil && says {
		return finding{found: works}
	}
	return failedAt("decode", "", got, brief(got))
}

// question makes a canary for a pair.
func (o *Orchestrator) question(p, d *fleet.Endpoint) *canary.Question {
	fit := canary.Between(canaryFits(&p.Member), canaryFits(&d.Member))
	return canary.New(fit, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
}

func canaryFits(r *replica.Replica) canary.Engine {
	return canary.Engine{Model: r.Facts.Model, BlockSize: r.Facts.BlockSize, MaxModelLen: r.Facts.MaxModelLen}
}

// tryPair sends a canary over both legs and judges it. What fails at the leg named theirs, the other
// replica's, shows nothing; neither does an answer below 500, with which an engine refuses the canary itself.
func (o *Orchestrator) tryPair(ctx context.Context, p, d *fleet.Endpoint, theirs string) finding {
	if p == nil || d == nil {
		return finding{}
	}
	return onceMore(func() finding { return o.pairOnce(ctx, p, d, theirs) })
}

func (o *Orchestrator) pairOnce(ctx context.Context, p, d *fleet.Endpoint, theirs string) finding {
	q := o.question(p, d)
	likely := o.likely(ctx, d, q)
	ctx, cancel := context.WithTimeout(ctx, trialLimit)
	defer cancel()
	asked := time.Now()
	own := o.askCanary(ctx, d, q, &engine.Request{Body: q.Own()}, q.Salt+"-own")
	if own.Err != nil || own.Status != http.StatusOK { // no reason to let blocks be prefilled for it
		return failedAt("decode", theirs, own, brief(own))
	}
	before := countersOf(ctx, d)
	first, decode := o.handCanary(ctx, q, p, d, transferLimit+10*time.Since(asked))
	verdict := q.JudgePrefill(first)
	if verdict.Kind != canary.Failed {
		verdict = q.Judge(first, decode, own, likely, before, countersOf(ctx, d))
	}
	if verdict.Kind == canary.Wrong && theirs != "" { // the trial was of one of its ends
		pair := outlier.Pair{Prefill: p.Member.ID, Decode: d.Member.ID}
		o.announce(o.planner.Outliers().WrongText(pair, time.Now()))
	}
	return foundBy(verdict, first, decode, d, theirs)
}

// foundBy is what the verdict on a canary's two answers shows; theirs is the leg that the trial is not about.
// That the decode replica's cache is wrong, or that a transfer to it failed, is noted there too.
func foundBy(
	verdict canary.Verdict, first, decode canary.Answer, d *fleet.Endpoint, theirs string,
) finding {
	switch verdict.Kind {
	case canary.Moved, canary.Unclear:
		return finding{found: works}
	case canary.Nothing:
		return finding{found: fails, kind: outlier.Unmoved, why: verdict.Why}
	case canary.Wrong:
		if theirs != "decode" {
			d.Distrust(d.CacheEpoch(),
				&failure{phase: "decode", kind: "wrong_canary", at: d.Member.ID, err: errors.New(verdict.Why)})
		}
		return finding{found: fails, kind: outlier.Wrong, why: verdict.Why}
	}
	if errors.Is(first.Err, errGrewOld) || errors.Is(decode.Err, errGrewOld) {
		return finding{old: true}
	}
	if verdict.Leg != "prefill" {
		d.Transfers().Failed()
	}
	if errors.Is(decode.Err, errStuck) {
		return finding{found: fails, kind: outlier.Stuck, why: verdict.Why}
	}
	if verdict.Leg != "prefill" {
		return failedAt("decode", theirs, decode, verdict.Why)
	}
	if first.Err == nil && first.Status == http.StatusOK && theirs != "prefill" {
		return finding{found: fails, kind: outlier.Unusable, why: verdict.Why}
	}
	return failedAt("prefill", theirs, first, verdict.Why)
}

// failedAt is a trial that failed at a leg with this answer.
func failedAt(leg, theirs string, a canary.Answer, why string) finding {
	switch {
	case errors.Is(a.Err, errGrewOld):
		return finding{old: true}
	case leg == theirs || a.Err == nil && a.Status < http.StatusInternalServerError && clientMayCause(a.Status):
		return finding{}
	}
	return finding{found: fails, kind: kindOf(a), why: why}
}
