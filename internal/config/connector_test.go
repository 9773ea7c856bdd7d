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
		{150 * time.Second, "http://D:8001", "pools.decode.replicas[1].url"},
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

// An engine that discovery finds needs an address of its own, too: several engines may share the network of a
// machine.
func TestDiscoveredEnginesNeedAddresses(t *testing.T) {
	for kind, pool := range map[string]string{MoRIIOWrite: PoolDecode, Mooncake: PoolPrefill} {
		cfg := Default()
		cfg.Connector.Type = kind
		cfg.Pools.Decode.Replicas = []Replica{{URL: "http://localhost:8000"}}
		cfg.Pools.Prefill.Replicas = []Replica{{URL: "http://localhost:8001"}}
		found := Members{Source: "dns", Name: "engines", Pool: pool, Replicas: []Replica{
			{URL: "http://127.0.0.1:8002"}, {URL: "http://10.0.0.1:8000"}, {URL: "http://10.0.0.1:8001"},
		}}
		joined, left := cfg.With(found)
		if n := len(joined.Pools.Prefill.Replicas) + len(joined.Pools.Decode.Replicas); n != 3 || len(left) != 2 {
			t.Errorf("%s: %d replicas, left out %v", kind, n, left)
		}
	}
	cfg := Default()
	cfg.Connector.Type = MoRIIO
	both := []Replica{{URL: "http://10.0.0.1:8000", Shared: true}}
	joined, _ := cfg.With(Members{Source: "kubernetes", Name: "pods", Pool: PoolPrefill, Replicas: both},
		Members{Source: "kubernetes", Name: "pods", Pool: PoolDecode, Replicas: both})
	if n := len(joined.Pools.Prefill.Replicas) + len(joined.Pools.Decode.Replicas); n != 0 {
		t.Errorf("an engine for both pools is used %d times", n)
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
