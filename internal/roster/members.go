package roster

import (
	"reflect"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
)

// SetMembers makes rs the members of the pool. Who stays keeps its load, ledger and blocks, also under
// another name; who leaves is forgotten, and leases on it only wait for their release. A member starts
// healthy, and with nothing known. What was assumed of one whose events can be followed from now on is
// forgotten. One that has another name now is found by both.
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
	r.members.Lock()
	defer r.members.Unlock()
	r.free = append(r.free, left...)
}

// replace returns the holders of those who left, and of those who were approximated and are to be followed.
// Their blocks are forgotten without the lock, since there may be a million of them: nobody gives the holders
// out or feeds them meanwhile.
func (r *Roster[M]) replace(rs []replica.Replica) (left, turned []kv.Holder) {
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
		r.chooseChain()
	}
	return left, c.turned
}

// change is how the members of a pool become others. It needs their lock.
type change[M Entry] struct {
	r       *Roster[M]
	old     []M              // who was a member
	kept    map[replica.ID]M // who is one now
	stayed  map[M]bool       // who is and was
	differs bool             // readers need another view
	turned  []kv.Holder      // of those who were approximated and are to be followed
}

// enter makes now a member: the one that it was, or a new one. A name counts once.
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
	if !stays || m.Slot != len(r.members.All) || !reflect.DeepEqual(*m.R, *now) {
		c.differs = true
	}
	if stays && m.R.Facts.Events == (replica.EventSource{}) && now.Facts.Events != m.R.Facts.Events {
		c.turned = append(c.turned, m.Holder)
	}
	if stays && m.R.ID != now.ID {
		m.former = m.R.ID
	}
	if c.differs {
		m.R = new(*now)
	}
	m.Slot = len(r.members.All)
	c.kept[m.R.ID] = entry
	r.members.All = append(r.members.All, entry)
}

// leave parts with those who did not enter again.
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

// before returns which of old is the engine now: the one of its name, unless that is another by its address,
// else the one of its address.
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

// addFormer lets members that have had another name be found by it too, where nobody else has it.
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
	}
	return v
}
