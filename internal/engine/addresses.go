package engine

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"time"
)

// LookUp finds the IP addresses of a name, as [net.Resolver.LookupNetIP] does.
type LookUp func(ctx context.Context, network, host string) ([]netip.Addr, error)

// lookUpTime is how long the name server may take.
const lookUpTime = 2 * time.Second

// Several returns the addresses, sorted, of a URL with a host that names several machines, such as a headless
// Service; nil for any other. One IPv4 and one IPv6 address belong to one machine, and so does a loopback
// address beside any other. A nil find asks the resolver of the machine. A name that cannot be looked up
// within two seconds is an error.
func Several(ctx context.Context, engine string, find LookUp) ([]netip.Addr, error) {
	u, err := url.Parse(engine)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		return nil, nil
	}
	if find == nil {
		find = net.DefaultResolver.LookupNetIP
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTime)
	defer cancel()
	all, err := find(ctx, "ip", u.Hostname())
	if err != nil {
		return nil, err
	}
	var four, six []netip.Addr
	for _, a := range all {
		switch a = a.Unmap(); {
		case a.IsLoopback():
		case a.Is4():
			four = append(four, a)
		default:
			six = append(six, a)
		}
	}
	if len(four) == 0 { // else IPv6 is another way to the same machines, and one machine may have several
		four = six
	}
	slices.SortFunc(four, netip.Addr.Compare)
	if four = slices.Compact(four); len(four) < 2 {
		return nil, nil
	}
	return four, nil
}
