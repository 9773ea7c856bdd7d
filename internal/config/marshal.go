package config

import (
	"bytes"

	"github.com/goccy/go-yaml"
)

// YAML writes the effective configuration, defaults included, in the form of the file. Secrets given by value are redacted, so such a text
// cannot be loaded again; all others can.
func (c *Config) YAML() ([]byte, error) {
	var b bytes.Buffer
	err := yaml.NewEncoder(&b, yaml.Indent(2), yaml.IndentSequence(true)).Encode(c)
	return b.Bytes(), err
}

// MarshalYAML keeps where the secret comes from, never its text.
func (s Secret) MarshalYAML() (any, error) {
	m := map[string]string{}
	for k, v := range map[string]string{"file": s.File, "env": s.Env} {
		if v != "" {
			m[k] = v
		}
	}
	if s.Value != "" {
		m["value"] = redacted
	}
	return m, nil
}

// MarshalYAML writes auto, or the number as a number.
func (a Alpha) MarshalYAML() (any, error) {
	if a.Auto {
		return "auto", nil
	}
	return a.Value, nil
}
