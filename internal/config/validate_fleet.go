package config

import (
	"fmt"
	"slices"
	"strings"
)

// fleet wants names, URLs and event endpoints that stand for one engine each.
func (ck *checker) fleet(p Pools) {
	fleet := newFleet()
	for _, side := range []struct {
		field string
		pool  Pool
	}{{"pools.prefill", p.Prefill}, {"pools.decode", p.Decode}} {
		for i, r := range side.pool.Replicas {
			fleet.add(ck, member{side.field, fmt.Sprintf("%s.replicas[%d]", side.field, i), r})
		}
	}
	fleet.shared(ck)
}

// member is a replica with its pool and its own path in the file.
type member struct {
	pool, field string
	Replica
}

type fleet struct {
	members []member
	urls    map[string]member // canonical URL -> first member with it
	names   map[string]member
	events  map[string]member
}

func newFleet() *fleet {
	return &fleet{urls: map[string]member{}, names: map[string]member{}, events: map[string]member{}}
}

func (f *fleet) add(ck *checker, m member) {
	if m.URL == "" {
		return
	}
	f.members = append(f.members, m)
	u := canonical(m.URL)
	twin, known := f.urls[u]
	switch {
	case known && twin.pool == m.pool:
		ck.add(m.field+".url", fmt.Sprintf("%s stands in the pool already (%s)", m.URL, twin.field),
			"keep one of them")
	case known && !(m.Shared && twin.Shared):
		ck.add(m.field+".url", fmt.Sprintf("%s stands in the other pool already (%s)", m.URL, twin.field),
			"take it out of one pool, or write shared: true at both if it is meant to do both")
	case !known:
		f.urls[u] = m
	}
	if other, taken := f.names[m.ID()]; taken && !known {
		ck.add(m.field+".name", fmt.Sprintf("%q is the name of %s too", m.ID(), other.field),
			"give each replica its own name")
	} else if !taken {
		f.names[m.ID()] = m
	}
	own := m.Events.Endpoint == "" || strings.HasPrefix(m.Events.Endpoint, "/") // a path of its own server
	if other, taken := f.events[m.Events.Endpoint]; taken && !own && !known {
		ck.add(m.field+".events.endpoint", fmt.Sprintf("is the endpoint of %s too", other.field),
			"each engine has its own; blocks of one would be put down to the other")
	} else if !taken {
		f.events[m.Events.Endpoint] = m
	}
}

// shared finds marks without a twin.
func (f *fleet) shared(ck *checker) {
	for _, m := range f.members {
		twin := func(o member) bool { return o.pool != m.pool && canonical(o.URL) == canonical(m.URL) }
		if m.Shared && !slices.ContainsFunc(f.members, twin) {
			ck.add(m.field+".shared", "is set and the other pool has no replica with this URL",
				"leave it out, or add the replica to the other pool")
		}
	}
}
