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
	var names, urls []string
	for _, a := range shown {
		one := *u
		one.Host = a.String()
		if a.Is6() {
			one.Host = "[" + a.String() + "]"
		}
		if u.Port() != "" {
			one.Host += ":" + u.Port()
		}
		names, urls = append(names, a.String()), append(urls, "{url: \""+one.String()+"\"}")
	}
	if pool == "" {
		pool = "POOL"
	}
	return fmt.Sprintf("%s has %d addresses (%s%s), and Tandem takes it for one replica", u.Hostname(), len(all),
			strings.Join(names, ", "), more),
		fmt.Sprintf("write one replica for each: pools.%s.replicas: [%s]%s", pool, strings.Join(urls, ", "), more)
}
