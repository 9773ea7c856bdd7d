package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/setup"
)

// An engine that lacks a flag serves like any other engine. The missing flag shows only in latency, or in
// splits that fail. So a setup problem is a state, and one log line names the flag.

func (f *Fleet) judgeSetup() {
	f.keep.mu.Lock()
	defer f.keep.mu.Unlock()
	f.judgeSetupLocked()
}

// judgeSetupLocked notes for each replica the faults in its engine's start. Engines are compared with each
// other only after each has answered or failed to. Before, most engines are unknown.
func (f *Fleet) judgeSetupLocked() {
	all := f.Endpoints()
	members := make([]replica.Replica, 0, len(all))
	for _, e := range all {
		members = append(members, e.Member)
	}
	slices.SortFunc(members, func(a, b replica.Replica) int { return cmp.Compare(a.ID, b.ID) })
	beside := make([][]setup.Trouble, len(members))
	tried := f.keep.triedLocked()
	f.sumUpLocked(tried)
	if tried {
		beside = setup.Beside(members)
	}
	splits := f.keep.splits && f.keep.bothLocked()
	found := map[replica.ID][]setup.Trouble{}
	for i := range members {
		m := &members[i]
		want := setup.Wanted{Split: splits, Events: f.wantsEvents(m.Role)}
		found[m.ID] = append(setup.Alone(m, want), beside[i]...)
	}
	for _, w := range f.keep.sortedLocked() {
		w.noteSetup(found, tried)
	}
}

// sumUpLocked logs one line when every server has been asked, and again after a reload with new servers.
func (f *Fleet) sumUpLocked(tried bool) {
	if tried == f.keep.summed {
		return
	}
	if f.keep.summed = tried; !tried || len(f.keep.watchers) == 0 {
		return
	}
	var joined, all [2]int
	var missing []string
	events := 0
	for _, w := range f.keep.sortedLocked() {
		side := w.role - replica.Prefill
		if all[side]++; !w.facts.joined() {
			missing = append(missing, w.Name())
			continue
		}
		joined[side]++
		if slices.ContainsFunc(w.Members(), func(m replica.Replica) bool { return m.Facts.Events.Endpoint != "" }) {
			events++
		}
	}
	f.opt.Panics.Log.Info("every replica was asked", "prefill", fmt.Sprintf("%d of %d", joined[0], all[0]),
		"decode", fmt.Sprintf("%d of %d", joined[1], all[1]), "with_events", events,
		"missing", strings.Join(missing, ","))
}

// wantsEvents reports whether the events of the engines of a pool are to be followed.
func (f *Fleet) wantsEvents(role replica.Role) bool {
	for _, w := range f.keep.watchers {
		if w.role == role {
			return !f.opt.NoEvents && w.set.Load().pool.Index == config.IndexEvents
		}
	}
	return false
}

// triedLocked reports whether each server has answered, or was asked in vain.
func (f *keeping) triedLocked() bool {
	for _, w := range f.watchers {
		if !w.tried() {
			return false
		}
	}
	return true
}

// tried reports whether the server has reported its facts, or was asked in vain. Between its answer and the
// next publish the server is up without known facts; then it does not count as tried.
func (w *Watcher) tried() bool {
	return w.facts.joined() || w.outage.why() != NotProbed
}

// bothLocked reports whether both pools have servers.
func (f *keeping) bothLocked() bool {
	var n [2]int
	for _, w := range f.watchers {
		n[w.role-replica.Prefill]++
	}
	return n[0] > 0 && n[1] > 0
}

// noteSetup makes the troubles of the server's replicas their states, and logs new troubles in one line.
// tried says that every server has been tried, so that the comparison with the others is complete.
func (w *Watcher) noteSetup(found map[replica.ID][]setup.Trouble, tried bool) {
	var names, seen, do []string
	for _, m := range w.Members() {
		for _, name := range setup.Names() {
			if !tried && (name == setup.OtherTokenizer || name == setup.OtherVersion) {
				continue
			}
			at := slices.IndexFunc(found[m.ID], func(t setup.Trouble) bool { return t.Name == name })
			if at < 0 {
				w.states.set(m.ID, name, "")
				continue
			}
			t := found[m.ID][at]
			if w.states.put(m.ID, name, t.String(), time.Now()) && !slices.Contains(names, name) {
				names, seen = append(names, name), append(seen, t.Seen)
				do = append(do, t.Do)
			}
		}
	}
	if len(names) > 0 {
		w.log.Warn("engine is not set up for this router; tandem doctor says more", "replica", w.Name(),
			"pool", w.role.String(), "states", strings.Join(names, ","), "seen", strings.Join(seen, "; "),
			"do", strings.Join(do, "; "))
	}
}

// warnOfAddresses warns if the server's name belongs to several machines, since only one machine is used.
// With a Dial and no LookUp it does nothing: the resolver then does not know the names.
func (w *Watcher) warnOfAddresses(ctx context.Context) {
	if w.fleet.opt.Dial != nil && w.fleet.opt.LookUp == nil {
		return
	}
	all, err := engine.Several(ctx, w.key.url, w.fleet.opt.LookUp)
	if err != nil || len(all) == 0 {
		return
	}
	seen, do := setup.Addresses(w.key.url, w.role.String(), all)
	w.log.Warn("the name of a replica has several addresses", "replica", w.Name(), "pool", w.role.String(),
		"seen", seen, "do", do)
}
