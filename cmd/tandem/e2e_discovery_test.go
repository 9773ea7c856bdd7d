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

// records returns the SRV records of engines under a name. The host of each record is the engine's name.
func records(name string, engines []*engine) (lines []string) {
	for _, e := range engines {
		host, port, _ := net.SplitHostPort(strings.TrimPrefix(e.url, "http://"))
		lines = append(lines, fmt.Sprintf("%s 1 IN SRV 0 0 %s %s.test.", name, port, e.id),
			fmt.Sprintf("%s.test. 1 IN A %s", e.id, host))
	}
	return lines
}

// found waits until both discovery queries have this state.
func (f *fleet) found(state string) {
	f.t.Helper()
	eventually(f.t, 40*time.Second, func() error { // twice the longest pause between two questions
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

// Members join and leave as DNS says, under load and without a failed request. A failure of the DNS
// server, of any kind, changes nothing. A reload moves members between the file and DNS.
func TestMembersFoundByDNS(t *testing.T) {
	t.Parallel()
	f := newFleet(t, setting{engines: fast, spare: 1})
	s := dnstest.Start(t)
	say := func(prefill, decode []*engine) {
		s.Set(t, append(records("_http._tcp.p.test.", prefill), records("_http._tcp.d.test.", decode)...)...)
	}
	streams := f.longStreams(6)
	l := f.traffic(2, 8)

	s.Silence() // a reload to names without an answer removes no member
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

	say(f.prefill[1:], f.decode[1:]) // p0 and d0 leave while they run streams
	f.ready(f.prefill[1:], f.decode[1:])
	f.unused(f.prefill[0])

	for _, fail := range []func(){s.Silence, func() { s.Fail(wire.RcodeServerFailure) }, func() { s.Set(t) }} {
		fail()
		f.found("held")
		f.ready(f.prefill[1:], f.decode[1:])
		if n := f.metric("tandem_discovery_failing"); n != 2 {
			t.Errorf("the metrics have %v failing queries, want 2", n)
		}
		say(f.prefill[1:], f.decode[1:])
		f.found("fresh")
	}
	if n := f.metric("tandem_discovery_members", `for="decode"`); n != 2 {
		t.Errorf("the metrics have %v members, want 2", n)
	}

	f.set.extra = "" // the discovered members are now in the file
	f.write(f.yaml(f.prefill[1:], f.decode[1:]))
	f.accepted()
	f.ready(f.prefill[1:], f.decode[1:])

	f.noClientNoticed(streams, l)
}

// A hundred addresses of a headless Service are a hundred replicas, on IPv4 or on IPv6. For an address
// that is also in the file, the entry of the file applies. All routers behind a name exchange messages.
func TestAHundredReplicasByAddress(t *testing.T) {
	t.Parallel()
	engine := start(t, "engine", "sim", "--zero-latency", "--listen", "[::]:0", "--events", "tcp://127.0.0.1:0")
	_, port, _ := strings.Cut(strings.Fields(engine.line("http://"))[0], "]:")
	s := dnstest.Start(t)
	say := func(kind, addresses string, n int) {
		lines := []string{"tandem.test. 1 IN A 127.0.0.1", "tandem.test. 1 IN A 127.0.0.2"}
		for i := range n {
			lines = append(lines, fmt.Sprintf("d.test. 1 IN %s "+addresses, kind, i))
		}
		s.Set(t, lines...)
	}
	say("A", "127.0.1.%d", 100)
	admins := freePort(t)
	var routers []*fleet
	for i := range 2 {
		f := &fleet{t: t, client: newClient(), asker: newClient()}
		f.mount(fmt.Sprintf("listen: 127.0.0.1:0\nadmin: {listen: \"127.0.0.%d:%s\"}\nlocal: always\n"+
			"pools: {decode: {index: approximate, replicas: [{name: mine, url: \"http://127.0.1.7:%s\"}]}}\n"+
			"discovery: {dns: {decode: [\"http://d.test:%s\"], routers: [\"http://tandem.test:%s\"], "+
			"servers: [%q]}}\n",
			i+1, admins, port, port, admins, s.Addr))
		f.serve()
		t.Cleanup(f.asker.CloseIdleConnections)
		routers = append(routers, f)
	}
	for _, f := range routers {
		f.names(100, "mine", "127.0.1.0:"+port, "127.0.1.99:"+port)
		eventually(t, patience(10*time.Second), func() error {
			if n := f.metric("tandem_router_peer_up"); n != 1 {
				return fmt.Errorf("%v other routers are heard, want 1", n)
			}
			return nil
		})
	}
	say("A", "127.0.1.%d", 99)
	routers[0].names(99, "mine", "127.0.1.98:"+port)
	say("AAAA", "::%d", 2) // nothing answers at ::0, which is only an address to listen on
	routers[0].names(2, "mine", "[::1]:"+port)
}

// freePort returns a port at which no process listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// names waits until the router has n ready replicas, some with these names.
func (f *fleet) names(n int, some ...string) {
	f.t.Helper()
	eventually(f.t, patience(30*time.Second), func() error {
		_, h := f.health()
		for _, name := range some {
			if ready, known, why := h.of(name); !ready {
				return fmt.Errorf("%s is known: %t, %s", name, known, why)
			}
		}
		for _, r := range h.Replicas {
			if !r.Ready {
				return fmt.Errorf("%s is not ready: %s", r.Name, r.Reason)
			}
		}
		if len(h.Replicas) != n {
			return fmt.Errorf("%d replicas, want %d", len(h.Replicas), n)
		}
		return nil
	})
}
