package setup

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// Addresses says that the host of a replica's URL is a name with several addresses, and which lines to write
// instead. Replicas of a pool without a name are given as ones of POOL. At most eight addresses are listed.
func Addresses(engine, pool string, all []netip.Addr) (seen, do string) {
	u, err := url.Parse(engine)
	if err != nil {
		return "", ""
	}
	const most = 8
	more := ""
	shown := all
	if len(all) > most {
		shown, more = all[:most], fmt.Sprintf(", and %d more", len(all)-most)
	}
	var names []string
	for _, a := range shown {
		names = append(names, a.String())
	}
	if pool == "" {
		pool = "POOL"
	}
	return fmt.Sprintf("%s has %d addresses (%s%s), and Tandem takes it for one replica", u.Hostname(), len(all),
			strings.Join(names, ", "), more),
		fmt.Sprintf(`take it out of pools.%s.replicas, and write discovery: {dns: {%s: ["%s"]}}`, pool, pool,
			engine)
}
