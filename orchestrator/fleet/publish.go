package fleet

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/setup"
)

// publish tells the pools and the requests the present members.
func (f *Fleet) publish() {
	f.keep.mu.Lock()
	defer f.keep.mu.Unlock()
	f.publishLocked()
}

// publishLocked tells the pools and the requests the present members. Most of the work is for what has
// changed: a replica with the same name and the same facts keeps its endpoint.
func (f *Fleet) publishLocked() {
	was := *f.pub.endpoints.Load()
	all, former := make(map[replica.ID]*Endpoint, len(was)+1), map[replica.ID]replica.ID{}
	listed := map[replica.Role][]*Endpoint{}
	servers := make([]string, 0, 2*len(was)+len(f.keep.sorted))
	var arrived []*Endpoint
	var renamed []renaming
	for _, w := range f.keep.sorted {
		es, before := w.endpointsLocked()
		for i, e := range es {
			all[e.Member.ID] = e
			if before[i] != "" {
				former[before[i]] = e.Member.ID
			}
			if was[e.Member.ID] != e {
				arrived = append(arrived, e)
			}
		}
		if len(arrived) > 0 && arrived[len(arrived)-1].w == w {
			renamed = w.streams.holdRenamed(renamed)
		}
		listed[w.role] = append(listed[w.role], es...)
		servers = append(servers, w.Name())
	}
	f.pub.endpoints.Store(&all)
	f.pub.former.Store(&former)
	f.listed.setAll(all, arrived)
	f.tellPoolsLocked(listed)
	for _, r := range renamed {
		r.end()
	}
	renames := f.renameLocked(was, all)
	member := func(id replica.ID) bool { return all[id] != nil }
	f.opt.Outliers.Keep(member)
	f.opt.MembersChanged(renames, member, arrived, servers)
	f.judgeLocked()
	f.opt.RoomChanged()
}

// engineOf identifies a replica within the fleet by its engine instead of its name.
type engineOf struct {
	w    *Watcher
	rank int
}

// join notes a server's account of itself, and removes the servers that stood in for it.
func (f *Fleet) join(w *Watcher, facts []replica.Facts) {
	f.keep.mu.Lock()
	w.relief.joining = true
	stays := w.relief.successor == nil && !w.relief.ofPool
	var before []*Watcher
	for _, other := range f.keep.watchers {
		if other.relief.successor == w || stays && other.relief.ofPool && other.role == w.role {
			before = append(before, other)
		}
	}
	f.keep.endingLocked(before)
	f.keep.mu.Unlock()
	end(before)
	f.keep.mu.Lock()
	defer f.keep.mu.Unlock()
	f.keep.removeLocked(before)
	f.forgetProcessesLocked(before)
	w.relief.awaited.Store(false)
	w.facts.set(facts)
	w.pulse.outage.end()
	f.publishLocked()
}

// beginSeries sets the counters of a server to 0: an alert on an increase cannot fire on a series that
// begins at 1.
func (f *Fleet) beginSeries(w *Watcher) {
	f.restarts.WithLabelValues(w.role.String(), w.Name())
	if w.role == replica.Decode {
		f.distrusted.WithLabelValues(w.role.String(), w.Name())
	}
}

// ForgetSeries deletes the counters of a server that is gone, by its name.
func (f *Fleet) ForgetSeries(server string) {
	name := prometheus.Labels{"replica": server}
	f.restarts.DeletePartialMatch(name)
	f.distrusted.DeletePartialMatch(name)
}

// renameLocked renames the facts about renamed replicas that are kept outside the pools, and returns the
// renames.
func (f *Fleet) renameLocked(was, now map[replica.ID]*Endpoint) replica.Renames {
	before, after := map[replica.ID]engineOf{}, map[replica.ID]engineOf{} // of the names that have changed hands
	for id, e := range was {
		if now[id] != e {
			before[id] = engineOf{e.w, e.Member.Rank}
		}
	}
	for id, e := range now {
		if was[id] != e {
			after[id] = engineOf{e.w, e.Member.Rank}
		}
	}
	renames := replica.RenamesOf(before, after)
	if len(renames) == 0 {
		return nil
	}
	f.opt.Outliers.Rename(renames)
	for _, w := range f.keep.watchers {
		w.states.rename(renames)
	}
	return renames
}

// tellPoolsLocked tells the pools if their members or the order of members have changed.
func (f *Fleet) tellPoolsLocked(listed map[replica.Role][]*Endpoint) {
	for _, role := range roles {
		if f.listed.setPool(role, listed[role]) {
			f.pool(role).SetMembers(membersOf(listed[role]), time.Now())
		}
	}
}

func membersOf(es []*Endpoint) []replica.Replica {
	members := make([]replica.Replica, len(es))
	for i, e := range es {
		members[i] = e.Member
	}
	return members
}

// listing is the published replicas in their orders. The fleet's mutex guards it.
type listing struct {
	pools map[replica.Role][]*Endpoint // in the order of the configuration
	byID  []*Endpoint
}

// setPool notes the replicas of a pool. It reports whether they or their order have changed.
func (l *listing) setPool(role replica.Role, es []*Endpoint) (changed bool) {
	if slices.Equal(l.pools[role], es) {
		return false
	}
	l.pools[role] = es
	return true
}

// setAll notes all replicas by name. arrived are the ones that were not there before.
func (l *listing) setAll(all map[replica.ID]*Endpoint, arrived []*Endpoint) {
	l.byID = slices.DeleteFunc(slices.Concat(l.byID, arrived), func(e *Endpoint) bool {
		return all[e.Member.ID] != e
	})
	slices.SortFunc(l.byID, func(a, b *Endpoint) int { return cmp.Compare(a.Member.ID, b.Member.ID) })
}

// JudgePairs notes for each replica whether it makes a pair. Call it when facts about pairs change; the
// fleet itself judges when members change.
func (f *Fleet) JudgePairs() {
	f.keep.mu.Lock()
	defer f.keep.mu.Unlock()
	clear(f.pairing.mates)
	f.pairing.judge(f.pub.connector.Load(), f.listed.byID, f.Endpoints(), f.keep.triedLocked())
}

// SetSplitting says whether requests may be split now. If not, it does not matter whether a replica makes a
// pair.
func (f *Fleet) SetSplitting(on bool) {
	f.keep.mu.Lock()
	defer f.keep.mu.Unlock()
	f.pairing.splits = on
	f.judgeLocked()
}

// SetConnector says which KV connector the engines are to have.
func (f *Fleet) SetConnector(kv setup.KV) { f.pub.connector.Store(&kv) }

// judgeLocked notes which replicas make pairs, and which engines are set up for this router.
func (f *Fleet) judgeLocked() {
	f.pairing.judge(f.pub.connector.Load(), f.listed.byID, f.Endpoints(), f.keep.triedLocked())
	f.judgeSetupLocked()
}

// judge is judgeLocked for a server that was asked in vain.
func (f *Fleet) judge() {
	f.keep.mu.Lock()
	defer f.keep.mu.Unlock()
	f.judgeLocked()
}

// judgeSetupLocked notes for each replica the faults in its engine's start. Engines are compared with each
// other only after each has answered or failed to. Before, most engines are unknown.
//
// An engine that lacks a flag serves like any other engine. The missing flag shows only in latency, or in
// splits that fail. So a setup problem is a state, and one log line names the flag.
func (f *Fleet) judgeSetupLocked() {
	all := make([]*replica.Replica, len(f.listed.byID))
	for i, e := range f.listed.byID {
		all[i] = &e.Member
	}
	beside := make([][]setup.Trouble, len(all))
	tried := f.keep.triedLocked()
	f.keep.sumUpLocked(tried, f.opt.Panics.Log)
	if tried {
		beside = setup.Beside(all)
	}
	want := map[replica.Role]setup.Wanted{}
	for _, role := range roles {
		events := !f.opt.NoEvents && f.keep.followsLocked(role)
		want[role] = setup.Wanted{
			Split: f.pairing.splits && f.keep.bothLocked(), KV: *f.pub.connector.Load(), Events: events,
			Aliases: f.keep.aliases,
		}
	}
	found := map[replica.ID][]setup.Trouble{}
	for i, m := range all {
		wanted := want[m.Role]
		wanted.Model = f.listed.byID[i].w.set.Load().cfg.Model
		if troubles := append(setup.Alone(m, wanted), beside[i]...); len(troubles) > 0 {
			found[m.ID] = troubles
		}
	}
	for _, w := range f.keep.sorted {
		w.noteSetup(found, tried)
	}
}
