package fleet

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/internal/replica"
)

// publish tells the pools and the requests the present members.
func (f *Fleet) publish() {
	f.keep.mu.Lock()
	defer f.keep.mu.Unlock()
	f.publishLocked()
}

func (f *Fleet) publishLocked() {
	now := time.Now()
	watchers := f.keep.sortedLocked()
	all, former := make(map[replica.ID]*Endpoint, len(watchers)), map[replica.ID]replica.ID{}
	members := map[replica.Role][]replica.Replica{}
	var renamed []renaming
	servers := make([]string, 0, len(watchers))
	for _, w := range watchers {
		ms, before := w.facts.named()
		for i, m := range ms {
			members[w.role] = append(members[w.role], m)
			e := &Endpoint{Member: m, w: w}
			if m.Pinned() {
				e.rank = strconv.Itoa(m.Rank - m.Facts.FirstRank)
			}
			all[m.ID] = e
			if before[i] != "" {
				former[before[i]] = m.ID
			}
		}
		renamed = w.streams.holdRenamed(renamed)
		f.beginSeries(w)
		servers = append(servers, w.Name())
	}
	was := *f.pub.endpoints.Swap(&all)
	f.pub.former.Store(&former)
	f.opt.Prefill.SetMembers(members[replica.Prefill], now)
	f.opt.Decode.SetMembers(members[replica.Decode], now)
	for _, r := range renamed {
		r.end()
	}
	renames := f.renameLocked(was, all)
	member := func(id replica.ID) bool { return all[id] != nil }
	f.opt.Outliers.Keep(member)
	f.opt.MembersChanged(renames, member, servers)
	f.judgePairsLocked()
	f.judgeSetupLocked()
	f.opt.RoomChanged()
}

// renameLocked renames the facts about renamed replicas that are kept outside the pools, and returns the
// renames.
func (f *Fleet) renameLocked(was, now map[replica.ID]*Endpoint) replica.Renames {
	renames := replica.RenamesOf(enginesOf(was), enginesOf(now))
	if len(renames) == 0 {
		return nil
	}
	f.opt.Outliers.Rename(renames)
	for _, w := range f.keep.watchers {
		w.states.rename(renames)
	}
	return renames
}

// engineOf identifies a replica within the fleet by its engine instead of its name.
type engineOf struct {
	w    *Watcher
	rank int
}

func enginesOf(all map[replica.ID]*Endpoint) map[replica.ID]engineOf {
	engines := make(map[replica.ID]engineOf, len(all))
	for id, e := range all {
		engines[id] = engineOf{e.w, e.Member.Rank}
	}
	return engines
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
	w.relief.awaited.Store(false)
	w.facts.set(facts)
	w.outage.end()
	f.publishLocked()
}
