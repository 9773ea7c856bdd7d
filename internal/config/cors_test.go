package config

import (
	"strings"
	"testing"
)

// A text that no browser sends as an Origin is refused. The error names its place in the list.
func TestOriginsAreChecked(t *testing.T) {
	for origin, good := range map[string]bool{
		"*": true, "https://chat.example.com": true, "http://localhost:3000": true, "https://*.example.com": true,
		"app://localhost": true, "http://[::1]:3000": true,
		"https://chat.example.com/": false, "chat.example.com": false, "https://": false, "null": false, "": false,
		"https://a*b.example.com": false, "https://u@example.com": false, "https://example.com:": false,
		"https://example.com?x": false, "https://*": false, "*.example.com": false,
	} {
		c := Default()
		c.CORS.Origins = []string{"https://example.com", origin}
		err := c.Validate()
		if (err == nil) != good || err != nil && !strings.Contains(err.Error(), "cors.origins[1]") {
			t.Errorf("%q: got %v, want accepted %v, or an error for cors.origins[1]", origin, err, good)
		}
	}
}
