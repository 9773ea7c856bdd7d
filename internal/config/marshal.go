package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// YAML writes the effective configuration, defaults included, in the form of the file. Secrets given by value
// are redacted, so such a text cannot be loaded again; all others can.
func (c *Config) YAML() ([]byte, error) {
	var b bytes.Buffer
	err := yaml.NewEncoder(&b, yaml.Indent(2), yaml.IndentSequence(true), yaml.CustomMarshaler(quoted)).Encode(c)
	return b.Bytes(), err
}

// plain is text that needs no quotes in any YAML.
var plain = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./-]*(:[A-Za-z0-9_./-]+)*$`)

// quoted writes text so that it comes back; the encoder's own rule leaves some blanks and control characters
// bare.
func quoted(s string) ([]byte, error) {
	if plain.MatchString(s) &&
		!slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off"}, strings.ToLower(s)) {
		return []byte(s), nil
	}
	return json.Marshal(s)
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

// MarshalYAML leaves out what is not set. A secret gets two fields: the library does not indent an object of
// one field in an object of a list.
func (k Key) MarshalYAML() (any, error) {
	m := yaml.MapSlice{{Key: "name", Value: k.Name}}
	if k.SHA256 != "" {
		m = append(m, yaml.MapItem{Key: "sha256", Value: k.SHA256})
	}
	if k.Secret.IsSet() {
		secret := yaml.MapSlice{{Key: "file", Value: k.Secret.File}, {Key: "env", Value: k.Secret.Env}}
		if k.Secret.Value != "" {
			secret = append(secret, yaml.MapItem{Key: "value", Value: redacted})
		}
		m = append(m, yaml.MapItem{Key: "secret", Value: secret})
	}
	if k.Tenant != "" {
		m = append(m, yaml.MapItem{Key: "tenant", Value: k.Tenant})
	}
	if len(k.Models) > 0 {
		m = append(m, yaml.MapItem{Key: "models", Value: k.Models})
	}
	if k.Class != "" {
		m = append(m, yaml.MapItem{Key: "class", Value: k.Class})
	}
	if len(k.Classes) > 0 {
		m = append(m, yaml.MapItem{Key: "classes", Value: k.Classes})
	}
	if k.Weight != 0 {
		m = append(m, yaml.MapItem{Key: "weight", Value: float64(k.Weight)})
	}
	if k.KVHints {
		m = append(m, yaml.MapItem{Key: "kv_hints", Value: true})
	}
	for _, limit := range k.limits() {
		if limit.value != 0 {
			m = append(m, yaml.MapItem{Key: limit.field, Value: limit.value})
		}
	}
	return m, nil
}

// InForce says which configuration is in force, or decided about a request. It is immutable; requests of one
// configuration share it.
type InForce struct {
	// The first digits of a hash over all fields, without the text of secrets.
	Revision      string  `json:"revision"`
	Alpha         string  `json:"alpha"` // "auto", or a number
	Beta          float64 `json:"beta"`
	Gamma         float64 `json:"gamma"`
	DecodePenalty float64 `json:"decode_penalty"`
}

// InForce describes c.
func (c *Config) InForce() (*InForce, error) {
	text, err := c.YAML()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	s := c.Scoring
	return &InForce{
		Revision: hex.EncodeToString(sum[:6]), Alpha: s.Alpha.String(), Beta: s.Beta, Gamma: s.Gamma,
		DecodePenalty: s.DecodePenalty,
	}, nil
}
