package config

import (
	"fmt"
	"strings"
	"time"
)

// Validate names every contradiction in c at once. The error is [Problems], without lines. It opens no file
// and reads no environment.
func (c *Config) Validate() error {
	if ps := c.check(); len(ps) > 0 {
		return ps
	}
	return nil
}

// fill puts values into the one form that the rest of the program relies on.
func (c *Config) fill() {
	fillClasses(c.Classes)
	dns := &c.Discovery.DNS
	for _, rs := range [][]Replica{c.Pools.Prefill.Replicas, c.Pools.Decode.Replicas, dns.Prefill, dns.Decode} {
		for i := range rs {
			rs[i].URL = strings.TrimSuffix(rs[i].URL, "/")
		}
	}
	for _, peers := range [][]string{c.Routers.Peers, dns.Routers} {
		for i, peer := range peers {
			peers[i] = strings.TrimSuffix(peer, "/")
		}
	}
}

// Long: a line for each part.
func (c *Config) check() Problems {
	var ck checker
	c.checkListeners(&ck)
	for i, s := range c.APIKeys {
		ck.secret(fmt.Sprintf("api_keys[%d]", i), s, true)
	}
	c.CORS.check(&ck)
	checkKeys(&ck, c.Keys)
	checkClasses(&ck, c.Classes)
	ck.secret("isolation.salt", c.Isolation.Salt, false)
	ck.least("isolation.salt", Secret{Value: c.Isolation.Salt.Value}, leastSalt)
	if c.Isolation.Salt.IsSet() && !c.WantsKeys() {
		ck.add("isolation.salt", "has no client keys beside it", "write keys or keys_file")
	}
	c.Pools.Prefill.check(&ck, "pools.prefill", c.Discovery.DNS.Prefill)
	c.Pools.Decode.check(&ck, "pools.decode", c.Discovery.DNS.Decode)
	c.Pools.check(&ck, &c.Connector)
	checkAliases(&ck, c)
	c.Discovery.DNS.check(&ck)
	c.Discovery.Kubernetes.check(&ck)
	c.Connector.check(&ck)
	ck.oneOf("local", c.Local, LocalAuto, LocalNever, LocalAlways)
	checkMoRIIO(&ck, c)
	c.Scoring.check(&ck)
	c.Tokenizer.check(&ck)
	c.Limits.check(&ck)
	c.Timeouts.check(&ck)
	c.Retry.check(&ck)
	c.Health.check(&ck)
	c.Routers.check(&ck)
	c.AnswerCache.check(&ck)
	c.Tracing.check(&ck)
	ck.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	ck.oneOf("log.format", c.Log.Format, "text", "json")
	ck.between("decisions.ring", c.Decisions.Ring, 0, 1_000_000)
	ck.size("decisions.file_size", c.Decisions.FileSize, 1<<20)
	ck.between("decisions.file_keep", c.Decisions.FileKeep, 1, 1000)
	ck.longer("state.interval", c.State.Interval, time.Second)
	c.Experimental.check(&ck, c.Pools.Prefill.Index)
	return ck.problems
}

// checkListeners checks the addresses of both listeners, and what only they need.
func (c *Config) checkListeners(ck *checker) {
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
