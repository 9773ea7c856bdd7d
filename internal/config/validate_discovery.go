package config

import (
	"fmt"
)

// check checks the questions to DNS. The entries follow the rules of replicas, with names in place of
// engines.
func (d *DNS) check(ck *checker) {
	known := newFleet(len(d.Prefill)+len(d.Decode), nil)
	for _, side := range []struct {
		pool    string
		entries []Replica
	}{{PoolPrefill, d.Prefill}, {PoolDecode, d.Decode}} {
		for i, r := range side.entries {
			field := fmt.Sprintf("discovery.dns.%s[%d]", side.pool, i)
			r.checkName(ck, field, side.pool)
			if r.Events = (Events{}); r.URL != "" { // the same ports at other addresses
				m := newMember(side.pool, field, r)
				known.contradictions(ck, m)
				known.note(m)
			}
		}
	}
	known.shared(ck)
	ck.peers("discovery.dns.routers", d.Routers)
	for i, router := range d.Routers {
		ck.dnsName(fmt.Sprintf("discovery.dns.routers[%d]", i), router, "routers.peers")
	}
	for i, server := range d.Servers {
		ck.address(fmt.Sprintf("discovery.dns.servers[%d]", i), server)
	}
}

// checkName checks an entry that is a name with many replicas behind it.
func (r Replica) checkName(ck *checker, field, pool string) {
	if r.Name != "" {
		ck.add(field+".name", "is set, and the replicas at the addresses cannot share it",
			"leave it out: replicas go by host:port, or by the host names of SRV records")
		r.Name = ""
	}
	r.Events.checkMany(ck, field)
	r.Events = r.Events.At("host")
	r.check(ck, field)
	ck.dnsName(field+".url", r.URL, "pools."+pool+".replicas")
}

// checkMany wants an endpoint that is another one for each replica.
func (e Events) checkMany(ck *checker, field string) {
	if e.Endpoint != "" && e.Endpoint == e.At("host").Endpoint {
		ck.add(field+".events.endpoint", fmt.Sprintf("%q is one address for all replicas", e.Endpoint),
			"write tcp://*:5557 with the port of your engines; each replica's address takes the place of *")
	}
}
