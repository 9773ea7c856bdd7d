package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-router/tandem/internal/config"
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
	for _, w := range f.keep.sorted {
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
	for _, w := range f.keep.sorted {
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
