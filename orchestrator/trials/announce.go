package trials

import (
	"maps"
	"slices"
	"sync"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// announcements record the last announcement of each ejection. Changes come from many requests, in any order.
// Each announcement states what holds at its own time.
type announcements struct {
	mu    sync.Mutex            // guards the following
	pairs map[outlier.Pair]bool // announced as ejected
}

// Announce counts ejections, logs which replicas and pairs are ejected or back, and keeps their states.
func (t *Trials) Announce(changes []outlier.Change) {
	if len(changes) == 0 {
		return
	}
	defer func() {
		if slices.ContainsFunc(changes, func(c outlier.Change) bool { return c.ID == "" }) {
			t.o.Fleet.JudgePairs()
		}
	}()
	t.announced.mu.Lock()
	defer t.announced.mu.Unlock()
	for _, c := range changes {
		now := t.o.Outliers.Now(c)
		if c.ID == "" {
			t.announcePair(c, now)
			continue
		}
		t.announceLeg(c, now)
	}
}

// announceLeg needs announced.mu. c is the change, and now the present state of the leg.
func (t *Trials) announceLeg(c, now outlier.Change) {
	to := t.o.Fleet.Endpoint(c.ID)
	if to == nil {
		return
	}
	if c.To == outlier.Ejected {
		t.o.EjectedReplicas.WithLabelValues(to.Member.Role.String(), string(c.ID), c.Leg.String()).Inc()
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
		t.o.Log.Info("replica comes back, one request at a time", "replica", string(c.ID), "leg", c.Leg.String())
	}
}

// announcePair needs announced.mu. c is the change, and now the present state of the pair.
func (t *Trials) announcePair(c, now outlier.Change) {
	prefill, decode := string(c.Pair.Prefill), string(c.Pair.Decode)
	if c.To == outlier.Ejected {
		t.o.EjectedPairs.WithLabelValues(prefill, decode).Inc()
	}
	out := now.To == outlier.Ejected
	switch {
	case out == t.announced.pairs[c.Pair]:
	case out:
		if t.announced.pairs == nil {
			t.announced.pairs = map[outlier.Pair]bool{}
		}
		t.announced.pairs[c.Pair] = true
		t.o.Log.Warn("pair is ejected: KV blocks do not come over between these replicas", "prefill", prefill,
			"decode", decode,
			"cause", now.Cause, "next_trial", now.Trial)
	default:
		delete(t.announced.pairs, c.Pair)
		t.o.Log.Info("pair is back", "prefill", prefill, "decode", decode)
	}
}

// rename moves the announcements of pairs to the present names of their replicas.
func (a *announcements) rename(to replica.Renames) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pairs = replica.Rekey(a.pairs, func(was outlier.Pair) (outlier.Pair, bool) { return was.Now(to) })
}

// keep forgets what was said of the pairs of replicas that are not among the members any more.
func (a *announcements) keep(member func(id replica.ID) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.pairs,
		func(p outlier.Pair, _ bool) bool { return !member(p.Prefill) || !member(p.Decode) })
}
