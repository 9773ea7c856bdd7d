package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	wire "github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
)

// errNothing says that DNS knows no address of a name: the name does not exist, or has no such record.
var errNothing = errors.New("DNS knows no address of this name")

const (
	askTime  = 2 * time.Second // for one server
	rounds   = 2               // in which each server is asked
	atOnce   = 8               // hosts of SRV records
	resolver = "/etc/resolv.conf"
)

// refusal is an answer without records, such as SERVFAIL, that says nothing of the name.
type refusal string

func (r refusal) Error() string { return "answers " + string(r) }

// ask finds the addresses of a name at servers, or at those of the machine if there are none. Then the search
// list of the machine counts, too. last is the full name that was found the last time, or "".
func ask(ctx context.Context, servers []string, name, last string) (answer, error) {
	q := client{servers: servers}
	names := []string{wire.Fqdn(name)}
	if len(servers) == 0 {
		c, err := wire.ClientConfigFromFile(resolver)
		if err != nil {
			return answer{}, err
		}
		for _, s := range c.Servers {
			q.servers = append(q.servers, net.JoinHostPort(s, c.Port))
		}
		names = c.NameList(name)
	}
	return q.search(ctx, names, last)
}

// search finds the addresses of the first of some full names that has any. A name that is refused is passed
// over: a resolver may serve some domains of a search list and fail for others. The name that was found the
// last time is not passed over, because the next name may belong to another owner. A silent server ends the
// search, because the same server would be asked for the other names. The error is errNothing only if every
// server that was asked has said so, for every name.
func (q *client) search(ctx context.Context, names []string, last string) (answer, error) {
	var refused error
	for _, n := range names {
		a, err := q.look(ctx, n)
		_, isRefusal := errors.AsType[refusal](err)
		switch {
		case err == nil:
			a.name = n
			return a, nil
		case isRefusal && n != last:
			refused = cmp.Or(refused, fmt.Errorf("%s: %w", n, err))
		case !errors.Is(err, errNothing):
			return answer{}, err
		}
	}
	return answer{}, cmp.Or(refused, errNothing)
}

// client asks some servers.
type client struct{ servers []string }

// look finds the addresses of one full name.
func (q *client) look(ctx context.Context, name string) (answer, error) {
	if strings.HasPrefix(name, "_") {
		return q.services(ctx, name)
	}
	return q.addresses(ctx, name)
}

// addresses finds the A records of a name, or its AAAA records where it has no A record: these are other ways
// to the same machines.
func (q *client) addresses(ctx context.Context, name string) (answer, error) {
	for _, kind := range []uint16{wire.TypeA, wire.TypeAAAA} {
		m, err := q.exchange(ctx, name, kind)
		if err != nil {
			return answer{}, err
		}
		if a := addressesIn(m.Answer, "", kind); len(a.targets) > 0 {
			return a, nil
		}
	}
	return answer{}, errNothing
}

// addressesIn reads the addresses of a host ("" for any, as those behind a CNAME) among records of one kind.
func addressesIn(records []wire.RR, host string, kind uint16) answer {
	a := answer{ttl: math.MaxInt64}
	for _, rr := range records {
		h := rr.Header()
		if host != "" && !strings.EqualFold(h.Name, host) {
			continue
		}
		var ip net.IP
		switch r := rr.(type) {
		case *wire.A:
			ip = r.A
		case *wire.AAAA:
			ip = r.AAAA
		case *wire.CNAME: // whose TTL counts
		default:
			continue
		}
		if addr, ok := netip.AddrFromSlice(ip); ok && h.Rrtype == kind {
			a.targets = append(a.targets, target{addr: addr.Unmap()})
		}
		a.ttl = min(a.ttl, seconds(h.Ttl))
	}
	return a
}

func seconds(ttl uint32) time.Duration { return time.Duration(ttl) * time.Second }

// services finds the SRV records of a name and the addresses of their hosts, at which it asks only if the
// answer does not bring them. A host without an address is left out.
func (q *client) services(ctx context.Context, name string) (answer, error) {
	m, err := q.exchange(ctx, name, wire.TypeSRV)
	if err != nil {
		return answer{}, err
	}
	var records []*wire.SRV
	all := answer{ttl: math.MaxInt64}
	for _, rr := range m.Answer {
		if s, ok := rr.(*wire.SRV); ok && s.Target != "." {
			records = append(records, s)
		}
		all.ttl = min(all.ttl, seconds(rr.Header().Ttl))
	}
	found, err := q.hosts(ctx, records, m.Extra)
	if err != nil {
		return answer{}, err
	}
	for i, s := range records {
		for _, t := range found[i].targets {
			t.port, t.host = s.Port, strings.TrimSuffix(s.Target, ".")
			all.targets = append(all.targets, t)
		}
		if len(found[i].targets) > 0 {
			all.ttl = min(all.ttl, found[i].ttl)
		}
	}
	if len(all.targets) == 0 {
		return answer{}, errNothing
	}
	return all, nil
}

// hosts finds the addresses of the hosts of SRV records, an empty answer for a host without an address.
func (q *client) hosts(ctx context.Context, records []*wire.SRV, extra []wire.RR) ([]answer, error) {
	found := make([]answer, len(records))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, s := range records {
		g.Go(func() (err error) {
			if found[i], err = q.host(ctx, s.Target, extra); errors.Is(err, errNothing) {
				err = nil
			}
			return err
		})
	}
	return found, g.Wait()
}

// host finds the addresses of the host of an SRV record.
func (q *client) host(ctx context.Context, host string, extra []wire.RR) (answer, error) {
	for _, kind := range []uint16{wire.TypeA, wire.TypeAAAA} {
		if a := addressesIn(extra, host, kind); len(a.targets) > 0 {
			return a, nil
		}
	}
	return q.addresses(ctx, host)
}

// exchange asks the servers in turn until one gives an answer, or says that the name does not exist.
func (q *client) exchange(ctx context.Context, name string, kind uint16) (*wire.Msg, error) {
	m := new(wire.Msg).SetQuestion(name, kind)
	var failed []error
	for range rounds {
		for _, server := range q.servers {
			r, err := once(ctx, m, "udp", server)
			if err == nil && r.Truncated {
				r, err = once(ctx, m, "tcp", server)
			}
			switch {
			case ctx.Err() != nil:
				return nil, ctx.Err()
			case err != nil:
			case r.Rcode == wire.RcodeSuccess:
				return r, nil
			case r.Rcode == wire.RcodeNameError:
				return nil, errNothing
			default:
				err = refusal(cmp.Or(wire.RcodeToString[r.Rcode], strconv.Itoa(r.Rcode)))
			}
			failed = append(failed, fmt.Errorf("DNS server %s: %w", server, err))
		}
	}
	return nil, cmp.Or(errors.Join(failed[:min(len(failed), len(q.servers))]...),
		errors.New(resolver+" names no DNS server"))
}

// once asks one server once.
func once(ctx context.Context, m *wire.Msg, network, server string) (*wire.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	c := wire.Client{Net: network, Timeout: askTime, UDPSize: wire.DefaultMsgSize}
	conn, err := c.DialContext(ctx, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // or an end of ctx would wait for the answer
	r, _, err := c.ExchangeWithConnContext(ctx, m, conn)
	same := func(a, b wire.Question) bool { // names have no case, and a server may write them in its own way
		return strings.EqualFold(a.Name, b.Name) && a.Qtype == b.Qtype && a.Qclass == b.Qclass
	}
	if err == nil && !slices.EqualFunc(r.Question, m.Question, same) {
		return nil, errors.New("answers another question")
	}
	return r, err
}
