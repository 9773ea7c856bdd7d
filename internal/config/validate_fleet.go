package config

import (
	"fmt"
	"slices"
	"strings"
)

// check wants names, URLs and event endpoints that stand for one engine each.
func (p *Pools) check(ck *checker, con *Connector) {
	fleet := newFleet(len(p.Prefill.Replicas)+len(p.Decode.Replicas), con)
	fleet.addPools(ck, *p)
	fleet.shared(ck)
}

// member is a replica with its pool and its own path in the file.
type member struct {
	pool, field string
	question    string // that found the replica; "" for the file
	url         string // canonical, made once: there may be thousands
	Replica
}

func newMember(pool, field string, r Replica) *member {
	return &member{pool: pool, field: field, url: canonical(r.URL), Replica: r}
}

type fleet struct {
	members []*member
	urls    map[string]*member // canonical URL -> first member with it
	names   map[string]*member
	events  map[string]*member
	// By the address at which engines of the other pool find a member; see [Connector.address].
	addresses map[string]*member
	connector *Connector // nil: no connector is to fit
}

// newFleet returns a fleet for n members, and more.
func newFleet(n int, con *Connector) *fleet {
	return &fleet{
		members: make([]*member, 0, n), urls: make(map[string]*member, n), names: make(map[string]*member, n),
		events: map[string]*member{}, addresses: map[string]*member{}, connector: con,
	}
}

// addPools adds all replicas of both pools.
func (f *fleet) addPools(ck *checker, p Pools) {
	for _, side := range []struct {
		field string
		pool  Pool
	}{{"pools.prefill", p.Prefill}, {"pools.decode", p.Decode}} {
		for i, r := range side.pool.Replicas {
			if r.URL != "" {
				m := newMember(side.field, fmt.Sprintf("%s.replicas[%d]", side.field, i), r)
				f.contradictions(ck, m)
				f.note(m)
			}
		}
	}
}

// contradictions says what keeps m from standing beside the members that are noted.
func (f *fleet) contradictions(ck *checker, m *member) {
	twin, known := f.urls[m.url]
	switch {
	case known && twin.pool == m.pool:
		ck.add(m.field+".url", fmt.Sprintf("%s stands in the pool already (%s)", m.URL, twin.field),
			"keep one of them")
	case known && !(m.Shared && twin.Shared):
		ck.add(m.field+".url", fmt.Sprintf("%s stands in the other pool already (%s)", m.URL, twin.field),
			"take it out of one pool, or write shared: true at both if it is meant to do both")
	}
	if other, taken := f.names[m.ID()]; taken && !known {
		ck.add(m.field+".name", fmt.Sprintf("%q is the name of %s too", m.ID(), other.field),
			"give each replica its own name")
	}
	own := m.Events.Endpoint == "" || strings.HasPrefix(m.Events.Endpoint, "/") // a path of its own server
	if other, taken := f.events[m.Events.Endpoint]; taken && !own && !known {
		ck.add(m.field+".events.endpoint", fmt.Sprintf("is the endpoint of %s too", other.field),
			"each engine has its own; blocks of one would be put down to the other")
	}
	f.connector.contradictions(ck, m, f.addresses)
}

// note adds m to the members. The first member with a URL, name or endpoint keeps it.
func (f *fleet) note(m *member) {
	f.members = append(f.members, m)
	for _, of := range []struct {
		taken map[string]*member
		by    string
	}{
		{f.urls, m.url},
		{f.names, m.ID()},
		{f.events, m.Events.Endpoint},
		{f.addresses, f.connector.address(m)},
	} {
		if _, taken := of.taken[of.by]; !taken {
			of.taken[of.by] = m
		}
	}
}

// shared finds marks without a twin.
func (f *fleet) shared(ck *checker) {
	for _, m := range f.members {
		twin := func(o *member) bool { return o.pool != m.pool && o.url == m.url }
		if m.Shared && !slices.ContainsFunc(f.members, twin) {
			ck.add(m.field+".shared", "is set and the other pool has no replica with this URL",
				"leave it out, or add the replica to the other pool")
		}
	}
}
