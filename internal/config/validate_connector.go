package config

import (
	"cmp"
	"fmt"
	"net"
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
	if c.Connector.Type == MoRIIOWrite {
		checkMoRIIOWrite(ck, c)
		return
	}
	if c.Connector.Type == MoRIIO && c.Local != LocalNever {
		ck.add("local", fmt.Sprintf("is %s, and connector.type is %s", c.Local, MoRIIO),
			"write local: never, because such a decode engine answers a prompt that is not handed over to it "+
				"from blocks that were never filled")
	}
}

// checkMoRIIOWrite refuses what lets a decode leg wait for ever.
func checkMoRIIOWrite(ck *checker, c *Config) {
	if last := c.Connector.Margin + c.Timeouts.DecodeFirst; c.Connector.Lease <= last {
		ck.add("connector.lease", fmt.Sprintf("%v is not longer than connector.margin and timeouts.decode_first "+
			"together, %v", c.Connector.Lease, last), "choose a longer time, and give the engines the same one as "+
			"defer_timeout in kv_connector_extra_config: a decode leg that comes later waits for ever")
	}
}

// address returns where engines of the other pool find m: where prefill engines write, or the bootstrap
// server that decode engines ask. It returns "" if the connector has no such place.
func (c *Connector) address(m *member) string {
	if c == nil {
		return ""
	}
	host := m.url[:max(strings.LastIndexByte(m.url, ':'), 0)]
	if host == "localhost" {
		host = "127.0.0.1"
	}
	switch {
	case c.Type == MoRIIOWrite && m.pool == "pools.decode":
		return host
	case c.Type == Mooncake && m.pool == "pools.prefill":
		return net.JoinHostPort(host, strconv.Itoa(cmp.Or(m.BootstrapPort, c.BootstrapPort)))
	}
	return ""
}

// contradictions says what keeps m from being used with the connector. With the address of another member, a
// prefill engine would write into the wrong decode engine, and a bootstrap server would name one prefill
// engine for both, so that decode engines would wait for the blocks of the other one.
func (c *Connector) contradictions(ck *checker, m *member, taken map[string]*member) {
	if c != nil && m.Shared && (c.Type == MoRIIO || c.Type == MoRIIOWrite) {
		ck.add(m.field+".shared", "is set, and connector.type is "+c.Type,
			"give each pool its own engines: their kv_role must be kv_producer or kv_consumer")
	}
	address := c.address(m)
	first := taken[address]
	if address == "" || first == nil || first.url == m.url {
		return
	}
	if c.Type == MoRIIOWrite {
		ck.add(m.field+".url", fmt.Sprintf("has the host of %s, and connector.type is %s", first.field, c.Type),
			"give each decode engine an address of its own: all listen at connector.handshake_port, and a prefill "+
				"engine would write into the wrong one")
		return
	}
	ck.add(m.field+".bootstrap_port", fmt.Sprintf("%s is the bootstrap server of %s too", address, first.ID()),
		"give each engine of a host another VLLM_MOONCAKE_BOOTSTRAP_PORT, and write the port here")
}
