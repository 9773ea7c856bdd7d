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

func (c *Config) check() Problems {
	var ck checker
	ck.listeners(c)
	for i, s := range c.APIKeys {
		ck.secret(fmt.Sprintf("api_keys[%d]", i), s, true)
	}
	checkKeys(&ck, c.Keys)
	ck.pool("pools.prefill", c.Pools.Prefill, c.Discovery.DNS.Prefill)
	ck.pool("pools.decode", c.Pools.Decode, c.Discovery.DNS.Decode)
	ck.fleet(c.Pools)
	ck.dns(c.Discovery.DNS)
	ck.kubernetes(&c.Discovery.Kubernetes)
	ck.connector(c.Connector)
	ck.oneOf("local", c.Local, LocalAuto, LocalNever, LocalAlways)
	ck.scoring(c.Scoring)
	ck.tokenizer(c.Tokenizer)
	ck.limits(c.Limits)
	ck.timeouts(c.Timeouts)
	ck.retry(c.Retry)
	ck.health(c.Health)
	ck.routers(c.Routers)
	ck.answerCache(c.AnswerCache)
	ck.tracing(c.Tracing)
	ck.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	ck.oneOf("log.format", c.Log.Format, "text", "json")
	ck.between("decisions.ring", c.Decisions.Ring, 0, 1_000_000)
	ck.size("decisions.file_size", c.Decisions.FileSize, 1<<20)
	ck.between("decisions.file_keep", c.Decisions.FileKeep, 1, 1000)
	ck.longer("state.interval", c.State.Interval, time.Second)
	ck.choice(c.Experimental.Policy, c.Pools.Prefill.Index)
	ck.experimentalScoring(c.Experimental.Scoring)
	ck.experimentalRouters(c.Experimental.Routers)
	return ck.problems
}
