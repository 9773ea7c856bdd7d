package kvevents

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"time"
)

// libzmq dials by IPv4 or, if told to, by IPv6 only, even where a name has an address of each family.
// Engines bind "*" by IPv4, so a name is dialled by IPv6 only when it has no IPv4 address.

// lookup finds the addresses of a name; network is ip4 or ip6.
type lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

// lookupTime is how long a name server may take; then the name is dialled by IPv4.
const lookupTime = time.Second

// byIPv6 reports whether endpoint has to be dialled by IPv6.
func byIPv6(ctx context.Context, endpoint string, find lookup) bool {
	address, tcp := strings.CutPrefix(endpoint, "tcp://")
	host, _, err := net.SplitHostPort(address)
	if !tcp || err != nil {
		return strings.Contains(endpoint, "[")
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Is6()
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	if four, err := find(ctx, "ip4", host); err == nil && len(four) > 0 {
		return false
	}
	six, err := find(ctx, "ip6", host)
	return err == nil && len(six) > 0
}

// byIPv6 is asked once for an endpoint: a name that changes its family meanwhile makes another stream, when
// its engine is probed again.
func (s *sockets) byIPv6(endpoint string) bool {
	six, known := s.family[endpoint]
	if !known {
		six = byIPv6(context.Background(), endpoint, net.DefaultResolver.LookupNetIP) // bounded by lookupTime
		if s.family == nil {
			s.family = map[string]bool{}
		}
		s.family[endpoint] = six
	}
	return six
}
