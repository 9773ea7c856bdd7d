package config

import "testing"

// Paths of adapters are compared behind the longest folder that they lie in.
func TestAdapterRoot(t *testing.T) {
	p := Pool{AdapterFolders: []string{"/fast", "/fast/adapters/", "/srv"}}
	for path, want := range map[string]string{
		"/fast/adapters/sql/v2": "sql/v2",
		"/fast/sql/v2":          "sql/v2",
		"/faster/sql":           "/faster/sql",
		"/srv":                  "/srv",
		"/srv/":                 "/srv/",
		"org/sql":               "org/sql",
		"":                      "",
	} {
		if got := p.AdapterRoot(path); got != want {
			t.Errorf("AdapterRoot(%q) = %q, want %q", path, got, want)
		}
	}
}
