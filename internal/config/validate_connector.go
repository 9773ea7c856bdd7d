package config

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

func (c *Connector) check(ck *checker) {
	if strings.EqualFold(c.Type, "example") || strings.EqualFold(c.Type, "ExampleConnector") {
		ck.add("connector.type", fmt.Sprintf("is %q", c.Type), "choose a store that heeds cache_salt and the "+
			"model, as "+Offloading+", and start the engines with its connector: ExampleConnector finds blocks by "+
			"their token ids alone, so a tenant gets blocks of other tenants")
	} else {
		ck.oneOf("connector.type", c.Type, NIXL, NIXLPush, Mooncake, MoRIIO, MoRIIOWrite, MooncakeStore, LMCache,
			Offloading)
	}
	ck.longer("connector.lease", c.Lease, time.Second)
	ck.between("connector.p2p_port", c.PullPort, 0, 65535)
	if c.PullPort != 0 && c.Type != NIXL && c.Type != NIXLPush {
		ck.add("connector.p2p_port", "is set, and connector.type is "+c.Type,
			"leave the port out: only requests of "+NIXL+" and "+NIXLPush+" can name another engine")
	}
	ck.between("connector.bootstrap_port", c.BootstrapPort, 1, 65535)
	ck.between("connector.handshake_port", c.HandshakePort, 1, 65535)
	ck.between("connector.notify_port", c.NotifyPort, 1, 65535)
	ck.longer("connector.margin", c.Margin, time.Millisecond)
	if c.Margin >= c.Lease {
		ck.add("connector.margin", fmt.Sprintf("%v is not below connector.lease %v", c.Margin, c.Lease),
			"a decode that starts after the lease reads blocks of another request; half the lease is a good margin")
	}
}

// checkMoRIIO refuses what engines with MoRI-IO would answer wrongly, or never.
func checkMoRIIO(ck *checker, c *Config) {
	if c.Connector.Type != MoRIIO && c.Connector.Type != MoRIIOWrite {
		return
	}
	for i, r := range c.Pools.Decode.Replicas {
		if r.Shared {
			ck.add(fmt.Sprintf("pools.decode.replicas[%d].shared", i), "is set, and connector.type is "+
				c.Connector.Type, "give each pool its own engines: their kv_role must be kv_producer or kv_consumer")
		}
	}
	if c.Connector.Type == MoRIIOWrite {
		checkMoRIIOWrite(ck, c)
		return
	}
	if c.Local != LocalNever {
		ck.add("local", fmt.Sprintf("is %s, and connector.type is %s", c.Local, MoRIIO),
			"write local: never, because such a decode engine answers a prompt that is not handed over to it "+
				"from blocks that were never filled")
	}
}

// checkMoRIIOWrite refuses what lets a decode leg wait for ever, or a prefill engine write into a decode
// engine that does not have the request.
func checkMoRIIOWrite(ck *checker, c *Config) {
	if last := c.Connector.Margin + c.Timeouts.DecodeFirst; c.Connector.Lease <= last {
		ck.add("connector.lease", fmt.Sprintf("%v is not longer than connector.margin and timeouts.decode_first "+
			"together, %v", c.Connector.Lease, last), "choose a longer time, and give the engines the same one as "+
			"defer_timeout in kv_connector_extra_config: a decode leg that comes later waits for ever")
	}
	sameAddress(c.Pools.Decode.Replicas, func(r Replica, host string) string { return host },
		func(i, first int, _ string) {
			ck.add(fmt.Sprintf("pools.decode.replicas[%d].url", i), fmt.Sprintf("has the host of replicas[%d], and "+
				"connector.type is %s", first, MoRIIOWrite), "give each decode engine an address of its own: all "+
				"listen at connector.handshake_port, and a prefill engine would write into the wrong one")
		})
}

// sameAddress calls found for each replica that has the address of an earlier one. at returns the address of
// a replica, of which it gets the host of the URL.
func sameAddress(
	replicas []Replica, at func(r Replica, host string) string, found func(i, first int, at string),
) {
	seen := map[string]int{}
	for i, r := range replicas {
		u, err := url.Parse(r.URL)
		if err != nil {
			continue // the check of the URL says so
		}
		address := at(r, u.Hostname())
		if first, there := seen[address]; there {
			found(i, first, address)
			continue
		}
		seen[address] = i
	}
}

// checkBootstrap refuses two prefill engines behind one bootstrap server of Mooncake. The server would name
// the same engine for both, and decode engines would wait for the blocks of the other one.
func checkBootstrap(ck *checker, c *Config) {
	if c.Connector.Type != Mooncake {
		return
	}
	sameAddress(c.Pools.Prefill.Replicas, func(r Replica, host string) string {
		return net.JoinHostPort(host, strconv.Itoa(cmp.Or(r.BootstrapPort, c.Connector.BootstrapPort)))
	}, func(i, first int, at string) {
		ck.add(fmt.Sprintf("pools.prefill.replicas[%d].bootstrap_port", i),
			fmt.Sprintf("%s is the bootstrap server of %s too", at, c.Pools.Prefill.Replicas[first].ID()),
			"give each engine of a host another VLLM_MOONCAKE_BOOTSTRAP_PORT, and write the port here")
	})
}
