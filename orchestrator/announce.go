package orchestrator

import (
	"maps"
	"slices"
	"sync"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// announcements are what was said last of ejections: one change at a time, and always what holds by then.
// Changes come from many requests, in any order.
type announcements struct {
	mu    sync.Mutex            // guards the following
	pairs map[outlier.Pair]bool // that were said to be ejected
}

// announce counts who was ejected, logs who is and who is back, and keeps their states.
func (o *Orchestrator) announce(changes []outlier.Change) {
	if len(changes) == 0 {
		return
	}
	defer func() {
		if slices.ContainsFunc(changes, func(c outlier.Change) bool { return c.ID == "" }) {
			o.fleet.JudgePairs()
		}
	}()
	o.announced.mu.Lock()
	defer o.announced.mu.Unlock()
	for _, c := range changes {
		now := o.planner.Outliers().Now(c)
		if c.ID == "" {
			o.announcePair(c, now)
			continue
		}
		o.announceLeg(c, now)
	}
}

// announceLeg needs announced.mu. c is what changed, and now what holds of it.
func (o *Orchestrator) announceLeg(c, now outlier.Change) {
	to := o.fleet.Endpoint(c.ID)
	if to == nil {
		return
	}
	if c.To == outlier.Ejected {
		o.m.ejections.replicas.WithLabelValues(to.Member.Role.String(), string(c.ID), c.Leg.String()).Inc()
	}
	cause := ""
	if now.To != outlier.InUse {
		cause = now.Cause
	}
	ejected, halfOpen := fleet.EjectedState(c.Leg), fleet.HalfOpenState(c.Leg)
	if now.To == outlier.Ejected {
		to.SetState(c.ID, halfOpen, "")
		to.SetState(c.ID, ejected, cause)
		return
	}
	to.SetState(c.ID, ejected, "")
	if to.PutState(c.ID, halfOpen, cause) && cause != "" {
		o.log.Info("replica comes back, one request at a time", "replica", string(c.ID), "leg", c.Leg.String())
	}
}

// announcePair needs announced.mu. c is what changed, and now what holds of it.
func (o *Orchestrator) announcePair(c, now outlier.Change) {
	prefill, decode := string(c.Pair.Prefill), string(c.Pair.Decode)
	if c.To == outlier.Ejected {
		o.m.ejections.pairs.WithLabelValues(prefill, decode).Inc()
	}
	out := now.To == outlier.Ejected
	switch {
	case out == o.announced.pairs[c.Pair]:
	case out:
		if o.announced.pairs == nil {
			o.announced.pairs = map[outlier.Pair]bool{}
		}
		o.announced.pairs[c.Pair] = true
		o.log.Warn("pair is ejected: KV blocks do not come over between these replicas", "prefill", prefill,
			"decode", decode,
			"cause", now.Cause, "next_trial", now.Trial)
	default:
		delete(o.announced.pairs, c.Pair)
		o.log.Info("pair is back", "prefill", prefill, "decode", decode)
	}
}

// rename keeps what was said of pairs under the names that their replicas have now.
func (t *announcements) rename(to replica.Renames) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pairs = replica.Rekey(t.pairs, func(was outlier.Pair) (outlier.Pair, bool) { return was.Now(to) })
}

// keep forgets what was said of the pairs of replicas that are not among the members any more.
func (t *announcements) keep(member func(id replica.ID) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.pairs,
		func(p outlier.Pair, _ bool) bool { return !member(p.Prefill) || !member(p.Decode) })
}
