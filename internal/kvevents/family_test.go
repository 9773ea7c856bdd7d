package kvevents

import (
	"context"
	"errors"
	"net/netip"
	"testing"
)

func TestByIPv6(t *testing.T) {
	names := map[string]map[string]string{
		"four": {"ip4": "10.0.0.1"},
		"six":  {"ip6": "fd00::1"},
		"both": {"ip4": "10.0.0.1", "ip6": "fd00::1"},
	}
	find := func(_ context.Context, network, host string) ([]netip.Addr, error) {
		if a := names[host][network]; a != "" {
			return []netip.Addr{netip.MustParseAddr(a)}, nil
		}
		return nil, errors.New("no such host")
	}
	for endpoint, want := range map[string]bool{
		"tcp://10.0.0.1:5557":       false,
		"tcp://[fd00::1]:5557":      true,
		"tcp://[fe80::1%eth0]:5557": true,
		"tcp://four:5557":           false,
		"tcp://six:5557":            true,
		"tcp://both:5557":           false, // engines bind by IPv4
		"tcp://nobody:5557":         false,
		"ipc:///run/engine":         false,
	} {
		if got := byIPv6(t.Context(), endpoint, find); got != want {
			t.Errorf("%s: got by IPv6 %t, want %t", endpoint, got, want)
		}
	}
}

// An engine with an IPv6 address is followed, live and by replay.
func TestFollowByIPv6(t *testing.T) {
	e := newEngine(t, PublisherOptions{Endpoint: "tcp://[::1]:0", Replay: "tcp://[::1]:0"})
	e.publish(3)
	_, r, stop := follow(t, e.source(), Options{})
	defer stop()
	r.through(t, 0, 2)
	r.isLive(t)
}
