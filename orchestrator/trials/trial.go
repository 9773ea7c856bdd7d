package trials

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/tandem-router/tandem/internal/canary"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

const (
	// Limit is how long one canary may take, from its first byte to its verdict. The first handoff of a pair
	// may take as long.
	Limit = 15 * time.Second
	// transferLimit bounds how late a decode engine's answer may be for the blocks to arrive.
	transferLimit = 5 * time.Second
	// partners bounds how many partners a leg is tried with, until one trial shows something.
	partners = 3
)

// tryLeg tries a leg with one replica of the other pool after the other, until one trial shows something. A
// failed load needs two such trials, because one may have failed on the path.
func (t *Trials) tryLeg(ctx context.Context, tr outlier.Trial) (last Finding) {
	self := t.o.Fleet.Endpoint(tr.ID)
	for _, other := range t.partnersOf(self) {
		p := self
		d := other
		theirs := "decode"
		if tr.Leg == outlier.Decode {
			p = other
			d = self
			theirs = "prefill"
		}
		got := t.Pair(ctx, p, d, theirs)
		switch {
		case got.Result == Works, got.Result == Fails && (got.Kind == outlier.Wrong || last.Result == Fails):
			return got
		case got.Result == Fails:
			last = got
		}
	}
	if last.Result == Unclear && tr.Leg == outlier.Decode && !t.o.Settings().Connector.Traits().NoPlain {
		return t.Whole(ctx, self) // at least it must answer
	}
	return last
}

// partnersOf returns replicas of the other pool that the replica can be tried with, those in use first.
func (t *Trials) partnersOf(self *fleet.Endpoint) []*fleet.Endpoint {
	var good, others []*fleet.Endpoint
	if self == nil {
		return nil
	}
	for _, r := range t.o.Fleet.Endpoints() {
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
		if t.o.Outliers.Known(r.Member.ID, leg, time.Now()) {
			others = append(others, r)
			continue
		}
		good = append(good, r)
	}
	rand.Shuffle(len(good), func(i, j int) { good[i], good[j] = good[j], good[i] })
	all := append(good, others...)
	return all[:min(len(all), partners)]
}

// Whole asks a decode replica for a few tokens that it computes alone. That it refuses such a question
// shows that it answers.
func (t *Trials) Whole(ctx context.Context, to *fleet.Endpoint) Finding {
	if to == nil {
		return Finding{}
	}
	return onceMore(func() Finding { return t.wholeOnce(ctx, to) })
}

func (t *Trials) wholeOnce(ctx context.Context, to *fleet.Endpoint) Finding {
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	q := question(to, to)
	got := t.ask(ctx, to, q, &engine.Request{Body: q.Own()}, q.Salt+"-own")
	if got.Err == nil && (got.Status == http.StatusOK || t.refusesQuestion(got)) {
		return Finding{Result: Works}
	}
	return t.failedAt("decode", "", got, brief(got))
}

// alone returns the engine of a pair that says what one engine answers: the decode engine, unless it can
// answer nothing alone.
func (t *Trials) alone(p, d *fleet.Endpoint) *fleet.Endpoint {
	if t.o.Settings().Connector.Traits().NoPlain {
		return p
	}
	return d
}

// question makes a canary for a pair.
func question(p, d *fleet.Endpoint) *canary.Question {
	fit := canary.Between(canaryFits(&p.Member), canaryFits(&d.Member))
	return canary.New(fit, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
}

func canaryFits(r *replica.Replica) canary.Engine {
	return canary.Engine{Model: r.Facts.Model, BlockSize: r.Facts.BlockSize, MaxModelLen: r.Facts.MaxModelLen}
}

// Pair sends a canary over both legs and judges it. What fails at the leg named theirs, the other
// replica's, shows nothing; neither does an answer below 500, with which an engine refuses the canary itself.
func (t *Trials) Pair(ctx context.Context, p, d *fleet.Endpoint, theirs string) Finding {
	if p == nil || d == nil {
		return Finding{}
	}
	return onceMore(func() Finding { return t.pairOnce(ctx, p, d, theirs) })
}

func (t *Trials) pairOnce(ctx context.Context, p, d *fleet.Endpoint, theirs string) Finding {
	q, alone := question(p, d), t.alone(p, d)
	likely := t.likely(ctx, alone, q)
	limit := Limit
	if in := t.o.Settings(); in.Connector.Traits().CutLeaks {
		limit += in.DecodeFirst
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	asked := time.Now()
	own := t.ask(ctx, alone, q, &engine.Request{Body: q.Own()}, q.Salt+"-own")
	if own.Err != nil || own.Status != http.StatusOK { // no reason to let blocks be prefilled for it
		return t.failedAt(alone.Member.Role.String(), theirs, own, brief(own))
	}
	before := countersOf(ctx, d)
	first, decode := t.hand(ctx, q, p, d, transferLimit+10*time.Since(asked))
	verdict := q.JudgePrefill(first)
	if verdict.Kind != canary.Failed {
		verdict = q.Judge(first, decode, own, likely, before, countersOf(ctx, d))
	}
	if verdict.Kind == canary.Wrong && theirs != "" { // the trial was of one of its ends
		pair := outlier.Pair{Prefill: p.Member.ID, Decode: d.Member.ID}
		t.Announce(t.o.Outliers.WrongText(pair, time.Now()))
	}
	return t.foundBy(verdict, first, decode, d, theirs)
}

// foundBy is what the verdict on a canary's two answers shows; theirs is the leg that the trial is not about.
// That the decode replica's cache is wrong, or that a transfer to it failed, is noted there too.
func (t *Trials) foundBy(
	verdict canary.Verdict, first, decode canary.Answer, d *fleet.Endpoint, theirs string,
) Finding {
	switch verdict.Kind {
	case canary.Moved, canary.Unclear:
		return Finding{Result: Works}
	case canary.Nothing:
		return Finding{Result: Fails, Kind: outlier.Unmoved, Why: verdict.Why}
	case canary.Wrong:
		if theirs != "decode" {
			d.Distrust(d.CacheEpoch(), fmt.Errorf("decode %s: wrong_canary: %s", d.Member.ID, verdict.Why))
		}
		return Finding{Result: Fails, Kind: outlier.Wrong, Why: verdict.Why}
	}
	if errors.Is(first.Err, errGrewOld) || errors.Is(decode.Err, errGrewOld) {
		return Finding{old: true}
	}
	if verdict.Leg != "prefill" {
		d.Transfers().Failed()
	}
	if errors.Is(decode.Err, errStuck) {
		return Finding{Result: Fails, Kind: outlier.Stuck, Why: verdict.Why}
	}
	if verdict.Leg != "prefill" {
		return t.failedAt("decode", theirs, decode, verdict.Why)
	}
	if first.Err == nil && first.Status == http.StatusOK && theirs != "prefill" {
		return Finding{Result: Fails, Kind: outlier.Unusable, Why: verdict.Why}
	}
	return t.failedAt("prefill", theirs, first, verdict.Why)
}

// refusesQuestion reports whether an engine answered that something is wrong with the canary itself.
func (t *Trials) refusesQuestion(a canary.Answer) bool {
	return a.Err == nil && a.Status < http.StatusInternalServerError && t.o.ClientMayCause(a.Status)
}

// failedAt is a trial that failed at a leg with this answer.
func (t *Trials) failedAt(leg, theirs string, a canary.Answer, why string) Finding {
	switch {
	case errors.Is(a.Err, errGrewOld):
		return Finding{old: true}
	case leg == theirs || t.refusesQuestion(a):
		return Finding{}
	}
	return Finding{Result: Fails, Kind: t.kindOf(a), Why: why}
}

var (
	errNothingCame = errors.New("nothing shows that blocks arrive")
	errNoStep      = errors.New("nothing shows that the prefill engine has received the messages")
)

// Follow hands a canary over from p to d behind an earlier handoff of the same pair. It returns nil when the
// prefill engine has received all earlier messages of the decode engine, because these messages arrive in
// order. An engine reads messages when it begins a step, and a step may be long, so p is asked for one more
// token.
func (t *Trials) Follow(ctx context.Context, p, d *fleet.Endpoint) error {
	q, alone := question(p, d), t.alone(p, d)
	asked := time.Now()
	own := t.ask(ctx, alone, q, &engine.Request{Body: q.Own()}, q.Salt+"-own")
	if own.Err != nil {
		return own.Err
	}
	first, second := t.hand(ctx, q, p, d, transferLimit+10*time.Since(asked))
	likely := t.likely(ctx, alone, q)
	if q.Judge(first, second, own, likely, canary.Unknown(), canary.Unknown()).Kind != canary.Moved {
		return errNothingCame
	}
	step := t.ask(ctx, p, q, &engine.Request{Body: q.Prefill()}, q.Salt+"-step")
	if step.Err != nil || step.Status != http.StatusOK {
		return errNoStep
	}
	return nil
}
