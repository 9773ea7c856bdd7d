package config

import (
	"crypto/sha256"
	"encoding/hex"
)

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
