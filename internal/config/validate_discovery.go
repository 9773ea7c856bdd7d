package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// dns checks the questions to DNS. The entries follow the rules of replicas, with names in place of engines.
func (ck *checker) dns(d DNS) {
	known := newFleet(len(d.Prefill) + len(d.Decode))
	for _, side := range []struct {
		pool    string
		entries []Replica
	}{{PoolPrefill, d.Prefill}, {PoolDecode, d.Decode}} {
		for i, r := range side.entries {
			field := fmt.Sprintf("discovery.dns.%s[%d]", side.pool, i)
			ck.dnsReplica(field, side.pool, r)
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

func (ck *checker) dnsReplica(field, pool string, r Replica) {
	if r.Name != "" {
		ck.add(field+".name", "is set, and the replicas at the addresses cannot share it",
			"leave it out: replicas go by host:port, or by the host names of SRV records")
		r.Name = ""
	}
	ck.eventsOfMany(field, r.Events)
	r.Events = r.Events.At("host")
	ck.replica(field, r)
	ck.dnsName(field+".url", r.URL, "pools."+pool+".replicas")
}

// eventsOfMany wants an endpoint that is another one for each replica.
func (ck *checker) eventsOfMany(field string, e Events) {
	if e.Endpoint != "" && e.Endpoint == e.At("host").Endpoint {
		ck.add(field+".events.endpoint", fmt.Sprintf("%q is one address for all replicas", e.Endpoint),
			"write tcp://*:5557 with the port of your engines; each replica's address takes the place of *")
	}
}

// dnsName wants a name that DNS can be asked for; an address belongs into the field called instead.
func (ck *checker) dnsName(field, raw, instead string) {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return // reported already
	}
	host := u.Hostname()
	switch _, err := netip.ParseAddr(host); {
	case err == nil:
		ck.add(field, fmt.Sprintf("%s is an address, and no name", host), "write it under "+instead)
	case strings.HasPrefix(host, "_") && u.Port() != "":
		ck.add(field, fmt.Sprintf("%s is a name of SRV records, which bring their ports", host),
			fmt.Sprintf("write %s://%s", u.Scheme, host))
	}
}
