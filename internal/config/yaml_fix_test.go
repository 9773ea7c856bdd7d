package config_test

import (
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
)

// The usual slips of a hand edit come with a fix.
func TestYAMLSlipsHaveAFix(t *testing.T) {
	for text, fix := range map[string]string{
		"log: {level: info}\npools\n  prefill:\n":                            "colon",
		"listen: :8000\npools:\n  decode:\n    replicas: []\n local: auto\n": "indent",
		"x-a: [\n": "close the bracket",
		"listen: \"127.0.0.1:8000\nlocal: auto\n": "close the quotes",
		"pools:\n\tdecode:\n\t\treplicas: []\n":   "spaces",
	} {
		_, err := config.Parse("tandem.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), fix) || !strings.Contains(err.Error(), "is not YAML") {
			t.Errorf("%q: %v, want a fix with %q", text, err, fix)
		}
	}
}
