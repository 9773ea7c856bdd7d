package roster

import (
	"reflect"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
)

// SetMembers makes rs the members of the pool. A replica that stays keeps its load, ledger and blocks, also
// under another name. It can be found by its old name too. A replica that leaves is forgotten, and leases on
// it only wait for their release. A new member starts healthy, and with nothing known. If the events of a
// member can be followed from now on, or its blocks have another size, everything assumed about its blocks is
// forgotten.
func (r *Roster[M]) SetMembers(rs []replica.Replica, _ time.Time) {
	r.feed.Lock()
	defer r.feed.Unlock()
	left, wrong := r.replace(rs)
	for _, h := range wrong {
		r.forget(h, false)
	}
	for _, h := range left {
		r.forget(h, true)
	}
	r.members.Lock()
	defer r.members.Unlock()
	r.free = append(r.free, left...)
}

// replace returns two lists of holders: of members that left, and of members whose assumed blocks are wrong
// from now on. The caller forgets their blocks without the lock, since there may be a million blocks. The
// holders are neither given out nor fed meanwhile.
func (r *Roster[M]) replace(rs []replica.Replica) (left, wrong []kv.Holder) {
	r.members.Lock()
	defer r.members.Unlock()
	c := &change[M]{
		r: r, old: r.members.All, differs: len(rs) != len(r.members.All),
		kept: make(map[replica.ID]M, len(rs)), stayed: make(map[M]bool, len(rs)),
	}
	r.members.All = make([]M, 0, len(rs))
	for i := range rs {
		c.enter(&rs[i])
	}
	left = c.leave()
	addFormer(c.kept, r.members.All)
	r.members.byID = c.kept
	if c.differs {
		r.members.View = r.newView()
	}
	return left, c.wrong
}

// change is how the members of a pool become others. It needs their lock.
type change[M Entry] struct {
	r       *Roster[M]
	old     []M              // the members before
	kept    map[replica.ID]M // the members now
	stayed  map[M]bool       // members before and now
	differs bool             // readers need another view
	wrong   []kv.Holder      // holders of members whose assumed blocks are wrong from now on
}

// enter makes now a member: its former member, or a new one. A name counts once.
func (c *change[M]) enter(now *replica.Replica) {
	if _, doubled := c.kept[now.ID]; doubled {
		c.differs = true
		return
	}
	r := c.r
	entry, stays := r.before(c.old, now)
	stays = stays && !c.stayed[entry]
	c.stayed[entry] = true
	if !stays {
		entry = r.newMember()
		*entry.member() = Member{Healthy: true, Holder: r.takeHolder(), mode: r.indexing.Mode}
	}
	m := entry.member()
	changed := !stays || !reflect.DeepEqual(m.R, now)
	c.differs = c.differs || changed || m.Slot != len(r.members.All)
	if stays && m.assumedWrongly(&now.Facts) {
		c.wrong = append(c.wrong, m.Holder)
	}
	if stays && m.R.ID != now.ID {
		m.former = m.R.ID
	}
	if changed {
		m.R = new(*now)
	}
	m.Slot = len(r.members.All)
	c.kept[m.R.ID] = entry
	r.members.All = append(r.members.All, entry)
}

// leave marks the members that did not enter again as gone, and returns their holders.
func (c *change[M]) leave() (left []kv.Holder) {
	for _, m := range c.old {
		if !c.stayed[m] {
			m.member().Gone = true
			left = append(left, m.member().Holder)
			c.differs = true
		}
	}
	return left
}

// before returns the member of old that is the engine now. It is the member with the same name, unless its
// address says that it is another engine. Otherwise it is the member with the same address.
func (r *Roster[M]) before(old []M, now *replica.Replica) (m M, ok bool) {
	if m, ok = r.members.byID[now.ID]; ok && m.member().R.SameEngine(now) {
		return m, true
	}
	at := slices.IndexFunc(old, func(m M) bool { return now.URL != "" && m.member().R.SameEngine(now) })
	if at < 0 {
		var none M
		return none, false
	}
	return old[at], true
}

// addFormer lets a renamed member be found by its former name too, unless another member has that name.
func addFormer[M Entry](byID map[replica.ID]M, members []M) {
	for _, e := range members {
		former := e.member().former
		if _, taken := byID[former]; former != "" && !taken {
			byID[former] = e
		}
	}
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
	v := &View{Replicas: make([]*replica.Replica, len(r.members.All))}
	for i, m := range r.members.All {
		v.Replicas[i] = m.member().R
		v.pulls = v.pulls || v.Replicas[i].PullPort != 0
	}
	return v
}
