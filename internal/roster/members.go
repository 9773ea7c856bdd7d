package roster

import (
	"reflect"
	"time"

	"tandem/internal/kv"
	"tandem/internal/replica"
)

// SetMembers makes rs the members of the pool. Who stays keeps its load, ledger and blocks; who leaves is forgotten, and leases on it only wait for
// their release. A member starts healthy, and with nothing known. What was assumed of one whose events can be followed from now on is forgotten.
func (r *Roster[M]) SetMembers(rs []replica.Replica, _ time.Time) {
	r.feed.Lock()
	defer r.feed.Unlock()
	left, turned := r.replace(rs)
	for _, h := range turned {
		r.forget(h, false)
	}
	for _, h := range left {
		r.forget(h, true)
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.free = append(r.free, left...)
}

// replace returns the holders of those who left, and of those who were approximated and are to be followed. Their blocks are forgotten without Mu, since
// there may be a million of them: nobody gives the holders out or feeds them meanwhile.
func (r *Roster[M]) replace(rs []replica.Replica) (left, turned []kv.Holder) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	old, changed := r.Members, len(rs) != len(r.Members)
	r.Members = make([]M, 0, len(rs))
	kept := make(map[replica.ID]M, len(rs))
	for i := range rs {
		if _, doubled := kept[rs[i].ID]; doubled {
			changed = true
			continue
		}
		entry, stays := r.byID[rs[i].ID]
		if !stays {
			entry = r.newMember()
			*entry.member() = Member{Healthy: true, Holder: r.takeHolder(), mode: r.indexing.Mode}
		}
		m := entry.member()
		if !stays || m.Slot != len(r.Members) || !reflect.DeepEqual(*m.R, rs[i]) {
			changed = true
		}
		if stays && m.R.Facts.Events == (replica.EventSource{}) && rs[i].Facts.Events != m.R.Facts.Events {
			turned = append(turned, m.Holder)
		}
		if changed {
			m.R = new(rs[i])
		}
		m.Slot = len(r.Members)
		kept[m.R.ID] = entry
		r.Members = append(r.Members, entry)
	}
	for _, m := range old {
		if _, stays := kept[m.member().R.ID]; !stays {
			m.member().Gone = true
			left = append(left, m.member().Holder)
			changed = true
		}
	}
	r.byID = kept
	if changed {
		r.View = r.newView()
		r.chooseChain()
	}
	return left, turned
}

func (r *Roster[M]) takeHolder() kv.Holder {
	if n := len(r.free); n > 0 {
		h := r.free[n-1]
		r.free = r.free[:n-1]
		return h
	}
	r.holders++
	return kv.Holder(r.holders - 1)
}

func (r *Roster[M]) newView() *View {
	v := &View{Replicas: make([]*replica.Replica, len(r.Members))}
	for i, m := range r.Members {
		v.Replicas[i] = m.member().R
	}
	return v
}
