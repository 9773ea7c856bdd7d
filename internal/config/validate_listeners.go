package config

import (
	"fmt"
	"strings"
)

func (ck *checker) listeners(c *Config) {
	front := ck.address("listen", c.Listen)
	ck.pair("tls", c.TLS.Cert, c.TLS.Key)
	ck.hosts("admin.hosts", c.Admin.Hosts)
	ck.secret("admin.token", c.Admin.Token, false)
	if c.Admin.Listen == "off" {
		return
	}
	admin := ck.address("admin.listen", c.Admin.Listen)
	if front && admin && clash(c.Listen, c.Admin.Listen) {
		ck.add("admin.listen",
			fmt.Sprintf("%s is the front listener's address too (listen: %s)", c.Admin.Listen, c.Listen),
			"choose another port: the admin listener is not for clients")
	}
}

// hosts are names as they stand in a Host header, without a port.
func (ck *checker) hosts(field string, names []string) {
	for i, name := range names {
		if name == "" || strings.ContainsAny(name, "/:@ *") {
			ck.add(fmt.Sprintf("%s[%d]", field, i), fmt.Sprintf("%q is not a host name", name),
				"write the name alone, such as tandem.internal")
		}
	}
}
