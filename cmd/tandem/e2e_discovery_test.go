//go:build linux

package main

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	wire "github.com/miekg/dns"

	"github.com/tandem-router/tandem/internal/discovery/dns/dnstest"
)

// records are the SRV records of engines under a name, each with the engine's name as its host.
func records(name string, engines []*engine) (lines []string) {
	for _, e := range engines {
		host, port, _ := net.SplitHostPort(strings.TrimPrefix(e.url, "http://"))
		lines = append(lines, fmt.Sprintf("%s 1 IN SRV 0 0 %s %s.test.", name, port, e.id),
			fmt.Sprintf("%s.test. 1 IN A %s", e.id, host))
	}
	return lines
}

// found waits until both questions of discovery are in a state.
func (f *fleet) found(state string) {
	f.t.Helper()
	eventually(f.t, 20*time.Second, func() error {
		var h struct {
			Discovery []struct{ For, State, Error string }
		}
		f.get(f.admin+"/readyz", &h)
		for _, d := range h.Discovery {
			if d.State != state {
				return fmt.Errorf("%s is %s, want %s: %s", d.For, d.State, state, d.Error)
			}
		}
		if len(h.Discovery) != 2 {
			return fmt.Errorf("%d questions, want 2", len(h.Discovery))
		}
		return nil
	})
}

// Members come and go as DNS says, under load and without a failed request. A DNS server that fails, in
// whatever way, changes nothing. A reload moves members between the file and DNS.
func TestMembersFoundByDNS(t *testing.T) {
	t.Parallel()
	f := newFleet(t, setting{engines: fast, spare: 1})
	s := dnstest.Start(t)
	say := func(prefill, decode []*engine) {
		s.Set(t, append(records("_http._tcp.p.test.", prefill), records("_http._tcp.d.test.", decode)...)...)
	}
	streams := f.longStreams(6)
	l := f.traffic(2, 8)

	s.Silence() // a reload to names without an answer takes nobody away
	f.set.extra = fmt.Sprintf("discovery: {dns: {prefill: [%q], decode: [%q], servers: [%q]}}",
		"http://_http._tcp.p.test", "http://_http._tcp.d.test", s.Addr)
	f.write(f.yaml(nil, nil))
	f.found("waiting")
	f.ready(f.prefill[:2], f.decode[:2])
	say(f.prefill[:2], f.decode[:2])
	f.found("fresh")
	f.ready(f.prefill[:2], f.decode[:2])

	say(f.prefill, f.decode) // p2 and d2 join
	f.ready(f.prefill, f.decode)
	f.used(f.prefill[2])
	f.used(f.decode[2])

	say(f.prefill[1:], f.decode[1:]) // p0 and d0, where streams run, leave
	f.ready(f.prefill[1:], f.decode[1:])
	f.unused(f.prefill[0])

	for _, fail := range []func(){s.Silence, func() { s.Fail(wire.RcodeServerFailure) }, func() { s.Set(t) }} {
		fail()
		f.found("held")
		f.ready(f.prefill[1:], f.decode[1:])
		if n := f.metric("tandem_discovery_failing"); n != 2 {
			t.Errorf("%v questions fail by the metrics, want 2", n)
		}
		say(f.prefill[1:], f.decode[1:])
		f.found("fresh")
	}
	if n := f.metric("tandem_discovery_members", `for="decode"`); n != 2 {
		t.Errorf("%v members by the metrics, want 2", n)
	}

	f.set.extra = "" // what was found stands in the file now
	f.write(f.yaml(f.prefill[1:], f.decode[1:]))
	f.accepted()
	f.ready(f.prefill[1:], f.decode[1:])

	f.hurry(streams)
	l.end()
	if len(l.errors) > 0 {
		t.Errorf("requests failed in between: %v", l.errors)
	}
	f.quiet(2 * time.Second)
	f.audit(l.asked)
}
