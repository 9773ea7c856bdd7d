package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
)

// Key is a client key: a secret that a client shows, and what the router knows of the client by the key. The
// router needs only the hash of the secret.
type Key struct {
	Name   string `yaml:"name" json:"name"`              // in logs, records, metrics and traces
	SHA256 string `yaml:"sha256" json:"sha256"`          // of the secret, 64 hex digits
	Secret Secret `yaml:"secret" json:"-"`               // in the place of SHA256; not in a key file
	Tenant string `yaml:"tenant" json:"tenant,omitzero"` // whose key it is; empty: Name

	Models []string `yaml:"models" json:"models,omitempty"` // that the key may use; empty: all

	Class   string   `yaml:"class" json:"class,omitzero"`      // of the key's requests; empty: the default class
	Classes []string `yaml:"classes" json:"classes,omitempty"` // that a request may ask for

	KVHints bool   `yaml:"kv_hints" json:"kv_hints,omitzero"` // engines get the kv_hints of the key's requests
	Weight  Weight `yaml:"weight" json:"weight,omitzero"`     // of the share of its tenant; 0: 1

	// Limits, for all routers that share bookings. 0 is no limit.
	Requests int `yaml:"requests_per_minute" json:"requests_per_minute,omitzero"`
	Tokens   int `yaml:"tokens_per_minute" json:"tokens_per_minute,omitzero"` // of prompts and answers
	AtOnce   int `yaml:"requests_at_once" json:"requests_at_once,omitzero"`
	KV       int `yaml:"kv_tokens_at_once" json:"kv_tokens_at_once,omitzero"` // of running requests

	Line int `yaml:"-" json:"-"` // in the key file; 0 for a key of the configuration
}

// Weight is the share of a tenant, relative to the weights of other tenants. A weight of 0 in the file would
// be no share. It is read as -1, and -1 is refused.
type Weight float64

// UnmarshalJSON reads a number. Like 0, a value that is no number is no weight.
func (w *Weight) UnmarshalJSON(text []byte) error {
	var f float64
	_ = json.Unmarshal(text, &f) // other values leave 0
	w.set(f)
	return nil
}

func (w *Weight) set(f float64) {
	if *w = Weight(f); f == 0 {
		*w = -1
	}
}

// DefaultWeight is the weight of a tenant whose keys have none.
const DefaultWeight = 1.0

// mostShare and leastShare bound weights, so that shares can be told apart.
const mostShare, leastShare = 1_000_000, 0.000_001

// LongestSecret is how many bytes the secret of a client key may have.
const LongestSecret = 512

// TenantName returns the name of the tenant whose key it is.
func (k *Key) TenantName() string { return cmp.Or(k.Tenant, k.Name) }

// Hash returns the SHA-256 hash of the secret. The hash of a secret that has not been resolved by [Load] is
// that of no text.
func (k *Key) Hash() (sum [sha256.Size]byte) {
	if k.SHA256 == "" {
		return sha256.Sum256([]byte(k.Secret.Reveal()))
	}
	_, _ = hex.Decode(sum[:], []byte(k.SHA256)) // which has been validated
	return sum
}

// source is where the secret comes from, as text for people.
func (k Key) source() string {
	if k.SHA256 != "" {
		return "sha256"
	}
	return k.Secret.String()
}

// nameOfKey is the form of the names of keys and tenants.
var nameOfKey = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

const nameFix = "write 1 to 64 letters, digits, points, hyphens and underscores"

// checkKeys checks each key of the configuration by itself.
func checkKeys(ck *checker, list []Key) {
	for i := range list {
		k, field := &list[i], fmt.Sprintf("keys[%d]", i)
		k.check(func(of, message, fix string) { ck.add(field+"."+of, message, fix) })
		switch {
		case k.SHA256 == "":
			ck.secret(field+".secret", k.Secret, true)
		case k.Secret.IsSet():
			ck.add(field, "has a secret and its hash", "keep one of secret and sha256")
		}
	}
}

// mostOfKey bounds the limits of a key, so that sums do not overflow.
const mostOfKey = 1_000_000_000_000

// limitOfKey is one limit of a key, with the name of its field.
type limitOfKey struct {
	field string
	value int
}

// limits returns the limits of k in the order of their fields.
func (k *Key) limits() [4]limitOfKey {
	return [...]limitOfKey{
		{"requests_per_minute", k.Requests},
		{"tokens_per_minute", k.Tokens},
		{"requests_at_once", k.AtOnce},
		{"kv_tokens_at_once", k.KV},
	}
}

// check calls add for each field with a wrong value.
func (k *Key) check(add func(field, message, fix string)) {
	if !nameOfKey.MatchString(k.Name) {
		add("name", "is no name of a key", nameFix)
	}
	if k.Tenant != "" && !nameOfKey.MatchString(k.Tenant) {
		add("tenant", "is no name of a tenant", nameFix)
	}
	if slices.Contains(k.Models, "") {
		add("models", "has an empty name", "name the models, or leave models out for all")
	}
	if w := k.Weight; w != 0 && !(w >= leastShare && w <= mostShare) {
		add("weight", "is no weight: the tenant would get nothing or all",
			"write a number above 0, or leave it out for 1")
	}
	for _, limit := range k.limits() {
		if limit.value < 0 || limit.value > mostOfKey {
			fix := fmt.Sprintf("write a number from 1 to %d, or leave the limit out", mostOfKey)
			add(limit.field, "is no limit", fix)
		}
	}
	if _, err := hex.DecodeString(k.SHA256); err != nil || len(k.SHA256)%64 != 0 || len(k.SHA256) > 64 {
		add("sha256", "is not a SHA-256 hash", "write the 64 hex digits that `tandem key new` prints")
	}
}

// checkDistinct wants that no two keys have one name or one secret, and that no secret is too long.
func checkDistinct(ck *checker, c *Config) {
	names, hashes := map[string]string{}, map[[sha256.Size]byte]string{}
	weights := map[string]Weight{}
	for i, k := range c.ClientKeys() {
		p := keyProblem(c, i, &k, "")
		where := p.place()
		refuse := func(message, fix string) {
			p.Message, p.Fix = message, fix
			ck.problems = append(ck.problems, p)
		}
		if len(k.Secret.Reveal()) > LongestSecret {
			refuse(fmt.Sprintf("is longer than %d bytes", LongestSecret), "take a shorter secret")
		}
		if first := names[k.Name]; first != "" {
			refuse(fmt.Sprintf("is the second key with the name %s, after %s", k.Name, first), "rename one of them")
		}
		names[k.Name] = where
		tenant := k.TenantName()
		if w := weights[tenant]; w != 0 && k.Weight != 0 && w != k.Weight {
			refuse(fmt.Sprintf("gives tenant %s the weight %v, and another key gives it %v", tenant, k.Weight, w),
				"write the weight at one key of the tenant")
		}
		weights[tenant] = cmp.Or(weights[tenant], k.Weight)
		if k.SHA256 == "" && k.Secret.Reveal() == "" {
			continue // which has been refused
		}
		if first := hashes[k.Hash()]; first != "" {
			refuse("is the second key with the same secret, after "+first, "remove one of them")
		}
		hashes[k.Hash()] = where
	}
}

// keyProblem returns a problem, still without text, of the key at place i of [Config.ClientKeys]. field is a
// field of the key, "" for none.
func keyProblem(c *Config, i int, k *Key, field string) Problem {
	switch {
	case k.Line > 0:
		return Problem{File: c.KeysFile, Line: k.Line, Column: 1, Field: field}
	case i < len(c.APIKeys):
		return Problem{Field: fmt.Sprintf("api_keys[%d]", i)} // which has no fields
	case field == "":
		return Problem{Field: fmt.Sprintf("keys[%d]", i-len(c.APIKeys))}
	}
	return Problem{Field: fmt.Sprintf("keys[%d].%s", i-len(c.APIKeys), field)}
}

// place is where the problem stands, as text.
func (p *Problem) place() string {
	if p.File == "" {
		return p.Field
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}
