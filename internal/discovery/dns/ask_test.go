package dns

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	wire "github.com/miekg/dns"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/discovery/dns/dnstest"
)

// found resolves the name of a URL and returns the replicas as "NAME URL", or the error, and the TTL.
func found(t *testing.T, s *dnstest.Server, url string) (string, time.Duration) {
	t.Helper()
	q := question{spec: config.Replica{URL: url}}
	a, err := ask(t.Context(), []string{s.Addr}, q.host(), "")
	if err != nil {
		return err.Error(), 0
	}
	var all []string
	for _, r := range members(q.spec, a) {
		all = append(all, strings.TrimSpace(r.Name+" "+r.URL))
	}
	return strings.Join(all, ", "), a.ttl
}

// DNS records of every form become replicas. The TTL is the shortest TTL of the records.
func TestNamesBecomeReplicas(t *testing.T) {
	t.Parallel()
	const srv = "_http._tcp.d. 30 IN SRV 0 50 "
	for _, c := range []struct {
		name, url string
		records   []string
		want      string
		ttl       time.Duration
	}{
		{
			"A", "http://d:8000",
			[]string{"d. 9 IN A 10.0.0.2", "d. 7 IN A 10.0.0.1"},
			"http://10.0.0.1:8000, http://10.0.0.2:8000", 7 * time.Second,
		},
		{"https without a port", "https://D", []string{"d. 9 IN A 10.0.0.2"}, "https://10.0.0.2", 9 * time.Second},
		{"AAAA", "http://d:8000", []string{"d. 9 IN AAAA fd00::1"}, "http://[fd00::1]:8000", 9 * time.Second},
		{
			"both families are the same machines", "http://d:8000",
			[]string{"d. 9 IN AAAA fd00::1", "d. 9 IN A 10.0.0.1"},
			"http://10.0.0.1:8000", 9 * time.Second,
		},
		{
			"CNAME", "http://d:8000",
			[]string{"d. 5 IN CNAME e.", "e. 9 IN A 10.0.0.1"},
			"http://10.0.0.1:8000",
			5 * time.Second,
		},
		{
			"one address twice", "http://d:8000",
			[]string{"d. 9 IN A 10.0.0.1", "d. 8 IN A 10.0.0.1"},
			"http://10.0.0.1:8000", 8 * time.Second,
		},
		{"SRV", "http://_http._tcp.d", []string{
			srv + "8001 vllm-0.d.", srv + "8002 10-0-0-2.d.",
			"vllm-0.d. 4 IN A 10.0.0.1", "10-0-0-2.d. 9 IN A 10.0.0.2",
		}, "vllm-0 http://10.0.0.1:8001, http://10.0.0.2:8002", 4 * time.Second},
		{
			"SRV of one host with two ports", "http://_http._tcp.d",
			[]string{srv + "8001 v.", srv + "8002 v.", "v. 40 IN AAAA fd00::2"},
			"v http://[fd00::2]:8001, v http://[fd00::2]:8002", 30 * time.Second,
		},
		{"SRV with a host that has gone", "http://_http._tcp.d", []string{
			srv + "8001 gone.", srv + "8002 v.", "v. 40 IN A 10.0.0.2",
		}, "v http://10.0.0.2:8002", 30 * time.Second},
		{"SRV that says no", "http://_http._tcp.d", []string{srv + "0 ."}, errNothing.Error(), 0},
		{"no such name", "http://d", nil, errNothing.Error(), 0},
		{"no address", "http://d", []string{"d. 9 IN TXT nothing"}, errNothing.Error(), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := dnstest.Start(t)
			s.Set(t, c.records...)
			if got, ttl := found(t, s, c.url); got != c.want || ttl != c.ttl {
				t.Errorf("%s for %v, want %s for %v", got, ttl, c.want, c.ttl)
			}
		})
	}
}

// A hundred addresses do not fit into a datagram: they come over TCP.
func TestAHundredAddresses(t *testing.T) {
	t.Parallel()
	s := dnstest.Start(t)
	var records []string
	for i := range 100 {
		records = append(records, fmt.Sprintf("d. 9 IN A 10.0.1.%d", i))
	}
	s.Set(t, records...)
	got, _ := found(t, s, "http://d:8000")
	if n := strings.Count(got, ", ") + 1; n != 100 {
		t.Errorf("%d addresses, want 100: %s", n, got)
	}
	if asked, tcp := s.Asked(); tcp != 1 {
		t.Errorf("%d of %q came over TCP, want 1", tcp, asked)
	}
}

// A failing server is not a server without records: another server is asked, and the error names the
// failing server.
func TestServersThatFail(t *testing.T) {
	t.Parallel()
	bad, good := dnstest.Start(t), dnstest.Start(t)
	bad.Fail(wire.RcodeServerFailure)
	_, err := ask(t.Context(), []string{bad.Addr}, "d", "")
	if want := "d.: DNS server " + bad.Addr + ": answers SERVFAIL"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	good.Set(t, "d. 9 IN A 10.0.0.1")
	if a, err := ask(t.Context(), []string{bad.Addr, good.Addr}, "d", ""); err != nil || len(a.targets) != 1 {
		t.Errorf("%v, %v: want the answer of the second server", a, err)
	}
	if _, err := ask(t.Context(), []string{good.Addr, bad.Addr}, "e", ""); !errors.Is(err, errNothing) {
		t.Errorf("error %v: want the error of the first server", err)
	}
}

// A failing domain of the search list is skipped, so that a name in a working domain is found. After a
// name was found once, a failure of this name ends the search: the next name may belong to another owner.
func TestTheSearchPassesOverADomainThatFails(t *testing.T) {
	t.Parallel()
	s := dnstest.Start(t)
	q := client{servers: []string{s.Addr}}
	names := []string{"d.llm.", "d.corp.", "d."}
	const own, other = "d.llm. 9 IN A 10.0.0.1", "d. 9 IN A 10.0.0.9"
	for _, c := range []struct {
		name    string
		records []string
		failing string
		last    string
		want    string // the name that is found, or words of the error
	}{
		{"the first name works", []string{own, other}, "d.corp.", "", "d.llm."},
		{"a domain in the middle fails", []string{other}, "d.corp.", "", "d."},
		{"the first domain fails", []string{own, other}, "d.llm.", "", "d."},
		{"and had worked before", []string{own, other}, "d.llm.", "d.llm.", "DNS server"},
		{"and is back", []string{own, other}, "", "d.", "d.llm."},
		{"a later name had worked", []string{own, other}, "d.llm.", "d.", "d."},
		{"all that is left fails", nil, "d.corp.", "", "d.corp.: DNS server " + s.Addr + ": answers SERVFAIL"},
	} {
		s.Set(t, c.records...)
		s.FailName(c.failing, wire.RcodeServerFailure)
		a, err := q.search(t.Context(), names, c.last)
		if got := a.name + fmt.Sprint(err); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	s.Silence()
	if _, err := q.search(t.Context(), names, ""); err == nil || errors.Is(err, errNothing) {
		t.Errorf("error %v from a silent server", err)
	}
	if asked, _ := s.Asked(); asked[len(asked)-1] != "A d.llm." {
		t.Errorf("a silent server was also asked for %s", asked[len(asked)-1])
	}
}

// A server may answer with the name in another case.
func TestNamesHaveNoCase(t *testing.T) {
	t.Parallel()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	up := make(chan struct{})
	server := &wire.Server{PacketConn: packets, NotifyStartedFunc: func() { close(up) }}
	server.Handler = wire.HandlerFunc(func(w wire.ResponseWriter, q *wire.Msg) {
		m := new(wire.Msg).SetReply(q)
		m.Question[0].Name = strings.ToUpper(m.Question[0].Name)
		rr, _ := wire.NewRR("D.LLM. 9 IN A 10.0.0.1")
		m.Answer = append(m.Answer, rr)
		_ = w.WriteMsg(m)
	})
	ended := make(chan error, 1)
	go func() { ended <- server.ActivateAndServe() }()
	<-up
	defer func() {
		_ = server.Shutdown()
		<-ended
	}()
	if a, err := ask(t.Context(), []string{packets.LocalAddr().String()}, "d.llm", ""); len(a.targets) != 1 {
		t.Errorf("%v, %v: want one address", a, err)
	}
}

// When the router ends, it does not wait for an answer.
func TestAskingEndsAtOnce(t *testing.T) {
	t.Parallel()
	s := dnstest.Start(t)
	s.Silence()
	ctx, cancel := contextThat(t, func() bool { asked, _ := s.Asked(); return len(asked) > 0 })
	defer cancel()
	began := time.Now()
	if _, err := ask(ctx, []string{s.Addr}, "d", ""); err == nil || time.Since(began) > askTime/2 {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
