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
