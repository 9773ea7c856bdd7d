package config

import (
	"fmt"
	"net/url"
	"strings"
)

// CORS lets web pages of other sites ask the front listener.
type CORS struct {
	Origins []string `yaml:"origins"` // of the pages; empty: none
}

// allOrigins allows the pages of every site.
const allOrigins = "*"

func (c *CORS) check(ck *checker) {
	for i, origin := range c.Origins {
		if origin != allOrigins && !isOrigin(origin) {
			ck.add(fmt.Sprintf("cors.origins[%d]", i), fmt.Sprintf("%q is no origin", origin),
				`write scheme://host or scheme://host:port without a path, such as "https://chat.example.com", or "*"`)
		}
	}
}

// isOrigin reports whether a browser may send text as an Origin. The host may begin with "*." for all names
// below a domain.
func isOrigin(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || text != u.Scheme+"://"+u.Host || strings.HasSuffix(u.Host, ":") {
		return false
	}
	return !strings.Contains(strings.TrimPrefix(u.Host, "*."), "*")
}
