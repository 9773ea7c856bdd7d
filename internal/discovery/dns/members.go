package dns

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/config"
)

// answer is what DNS says of one name.
type answer struct {
	name    string // in full: with a domain of the search list
	targets []target
	ttl     time.Duration // how long the answer holds: the least of its records
}

// target is one address that a name stands for.
type target struct {
	addr netip.Addr
	port uint16 // of an SRV record, else 0
	host string // of an SRV record without its final dot, else ""
}

// members returns the replicas that spec stands for by the answer a: one at each address, sorted. It takes
// the port of the SRV record, or else of spec. The name is the first label of the SRV record's host, such as
// vllm-0 of a StatefulSet, unless the label only spells the address.
func members(spec config.Replica, a answer) []config.Replica {
	u, err := url.Parse(spec.URL)
	if err != nil {
		return nil // the configuration has been validated
	}
	all := make([]config.Replica, 0, len(a.targets))
	for _, t := range a.targets {
		r, host := spec, t.addr.String()
		if t.addr.Is6() {
			host = "[" + host + "]"
		}
		r.Events = spec.Events.At(host)
		port := u.Port()
		if t.port != 0 {
			port = strconv.Itoa(int(t.port))
		}
		if port != "" {
			host += ":" + port
		}
		r.URL = u.Scheme + "://" + host
		if label, _, _ := strings.Cut(t.host, "."); label != spelled(t.addr) {
			r.Name = label
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b config.Replica) int { return strings.Compare(a.URL, b.URL) })
	return slices.CompactFunc(all, func(a, b config.Replica) bool { return a.URL == b.URL })
}

// spelled is the label that Kubernetes gives a pod without a host name of its own.
func spelled(a netip.Addr) string {
	return strings.NewReplacer(".", "-", ":", "-").Replace(a.String())
}

// The times between two questions.
const (
	leastPause = time.Second // whatever the TTL is
	mostPause  = 30 * time.Second
)

// pause returns the time to the next question: the TTL of a good answer, or a time that doubles with each
// failure in a row.
func pause(ttl time.Duration, failures int) time.Duration {
	if failures == 0 {
		return max(ttl, leastPause)
	}
	return min(leastPause<<min(failures-1, 10), mostPause)
}
