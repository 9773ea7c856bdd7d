package orchestrator

import (
	"crypto/sha256"
	"encoding/hex"

	"tandem/internal/config"
)

// InForce says which configuration decided about a request. It is immutable; requests of one configuration
// share it.
type InForce struct {
	// The first digits of a hash over all fields; the text of secrets is no part of it.
	Revision      string  `json:"revision"`
	Alpha         string  `json:"alpha"` // "auto", or a number
	Beta          float64 `json:"beta"`
	Gamma         float64 `json:"gamma"`
	DecodePenalty float64 `json:"decode_penalty"`
}

// inForce describes cfg.
func inForce(cfg *config.Config) (*InForce, error) {
	text, err := cfg.YAML()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	s := cfg.Scoring
	return &InForce{
		Revision: hex.EncodeToString(sum[:6]), Alpha: s.Alpha.String(), Beta: s.Beta, Gamma: s.Gamma,
		DecodePenalty: s.DecodePenalty,
	}, nil
}
