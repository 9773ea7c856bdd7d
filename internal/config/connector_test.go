package config

import (
	"strings"
	"testing"
	"time"
)

// ExampleConnector gives a tenant blocks of other tenants: the configuration refuses it, and says why.
func TestExampleConnectorIsRefused(t *testing.T) {
	for _, name := range []string{"example", "ExampleConnector"} {
		c := Default()
		c.Connector.Type = name
		err := c.Validate()
		if err == nil || !strings.Contains(err.Error(), "a tenant gets blocks of other tenants") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// With MoRI-IO, no decode engine may compute a prompt.
func TestMoRIIONeedsSplits(t *testing.T) {
	for _, c := range []struct {
		local  string
		shared bool
		field  string // "": it is accepted
	}{
		{LocalNever, false, ""},
		{LocalAuto, false, "local: "},
		{LocalAlways, false, "local: "},
		{LocalNever, true, "pools.decode.replicas[0].shared"},
	} {
		cfg := Default()
		cfg.Connector.Type, cfg.Local = MoRIIO, c.local
		for _, pool := range []*Pool{&cfg.Pools.Prefill, &cfg.Pools.Decode} {
			pool.Replicas = []Replica{{URL: "http://e:8000", Shared: c.shared}}
			if !c.shared && pool == &cfg.Pools.Decode {
				pool.Replicas[0].URL = "http://d:8000"
			}
		}
		err := cfg.Validate()
		if err == nil != (c.field == "") || err != nil && !strings.Contains(err.Error(), c.field) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Two prefill engines of one host cannot share a bootstrap server of Mooncake.
func TestPrefillEnginesOfOneHostNeedBootstrapPorts(t *testing.T) {
	for _, c := range []struct {
		kind, url string
		port      int
		refused   bool
	}{
		{Mooncake, "http://p:8001", 0, true},
		{Mooncake, "http://p:8001", 8998, true},
		{Mooncake, "http://p:8001", 8999, false},
		{Mooncake, "http://q:8000", 0, false},
		{NIXL, "http://p:8001", 0, false},
	} {
		cfg := Default()
		cfg.Connector.Type = c.kind
		cfg.Pools.Prefill.Replicas = []Replica{{URL: "http://p:8000"}, {URL: c.url, BootstrapPort: c.port}}
		cfg.Pools.Decode.Replicas = []Replica{{URL: "http://p:8002"}}
		err := cfg.Validate()
		got := err != nil && strings.Contains(err.Error(), "pools.prefill.replicas[1].bootstrap_port")
		if got != c.refused || err != nil && !c.refused {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// With MoRI-IO in WRITE mode, a decode leg must come in time, and each decode engine has a host of its own.
func TestMoRIIOWriteNeedsTimeAndHosts(t *testing.T) {
	for _, c := range []struct {
		lease time.Duration
		url   string // of a second decode engine
		field string // "": it is accepted
	}{
		{150 * time.Second, "http://d2:8000", ""},
		{135 * time.Second, "http://d2:8000", "connector.lease: "},
		{150 * time.Second, "http://d:8001", "pools.decode.replicas[1].url"},
		{150 * time.Second, "http://p:8000", "pools.decode.replicas[1].shared"},
	} {
		cfg := Default()
		cfg.Connector.Type, cfg.Connector.Lease = MoRIIOWrite, c.lease
		shared := c.url == "http://p:8000"
		cfg.Pools.Prefill.Replicas = []Replica{{URL: "http://p:8000", Shared: shared}}
		cfg.Pools.Decode.Replicas = []Replica{{URL: "http://d:8000"}, {URL: c.url, Shared: shared}}
		err := cfg.Validate()
		if err == nil != (c.field == "") || err != nil && !strings.Contains(err.Error(), c.field) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Only a prefill leg of NIXL can name the engine from which blocks are pulled.
func TestPullsNeedNIXL(t *testing.T) {
	for name, refused := range map[string]bool{NIXL: false, NIXLPush: false, LMCache: true, Offloading: true} {
		c := Default()
		c.Connector.Type, c.Connector.PullPort = name, 5710
		err := c.Validate()
		if got := err != nil && strings.Contains(err.Error(), "connector.p2p_port"); got != refused {
			t.Errorf("%s: the port is refused: %v, want %v (%v)", name, got, refused, err)
		}
	}
}
