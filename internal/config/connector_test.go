package config

import (
	"strings"
	"testing"
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
