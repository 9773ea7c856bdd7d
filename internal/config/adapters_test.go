package config

import "testing"

// The paths of adapters are compared without the longest folder that contains them.
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
