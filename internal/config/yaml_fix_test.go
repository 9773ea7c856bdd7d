package config_test

import (
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
)

// The error of a frequent mistake in a file that is no YAML says how to correct the file.
func TestYAMLSlipsHaveAFix(t *testing.T) {
	for text, fix := range map[string]string{
		"log: {level: info}\npools\n  prefill:\n":                            "colon",
		"listen: :8000\npools:\n  decode:\n    replicas: []\n local: auto\n": "indent",
		"x-a: [\n": "close the bracket",
		"listen: \"127.0.0.1:8000\nlocal: auto\n": "close the quotes",
		"pools:\n\tdecode:\n\t\treplicas: []\n":   "spaces",
		"listen:\":8000\"\nlocal: auto\n":         "put a space behind the colon",
	} {
		_, err := config.Parse("tandem.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), fix) || !strings.Contains(err.Error(), "is not YAML") {
			t.Errorf("%q: got %v, want a correction with %q", text, err, fix)
		}
	}
}

// A mistake may be valid YAML with another meaning. The error then shows the correct text.
func TestSlipsThatAreYAMLHaveAFix(t *testing.T) {
	for text, want := range map[string]string{
		`listen:":8000"`:                          `put a space behind the colon of "listen:"`,
		"log:{level: debug}\n":                    `put a space behind the colon of "log:"`,
		"admin:\n  listen:\":9\"\n":               `admin: is text where fields belong; put a space behind the colon of "listen:"`,
		"pools:\n  decode: http://d0:8000\n":      "write decode: {replicas: [http://HOST:PORT]}",
		"pools:\n  prefill:\n    - http://p0:1\n": "write prefill: {replicas: [http://HOST:PORT]}",

		"limits:\n  samples: 99999999999999999999\n": "is a number that is too large where a whole number belongs",
		"limits:\n  samples: \"9\"\n":                "is text where a whole number belongs",
	} {
		_, err := config.Parse("tandem.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
