package valkey

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"

	"github.com/tandem-router/tandem/internal/answercache"
)

// LeastSecret is how many bytes a secret has at least.
const LeastSecret = 32

// NewCodec returns a codec that encrypts with AES-256-GCM under a key made of secret. Routers that share
// answers have the secret in common. Nobody without the secret can read or forge an answer. The codec also
// reads answers written under the former secrets. With an empty secret nothing is encrypted.
func NewCodec(most int, secret string, former ...string) (*answercache.Codec, error) {
	if secret == "" {
		return answercache.NewCodec(most, nil), nil
	}
	seals := make([]cipher.AEAD, 0, 1+len(former))
	for _, s := range append([]string{secret}, former...) {
		seal, err := newSeal(s)
		if err != nil {
			return nil, err
		}
		seals = append(seals, seal)
	}
	return answercache.NewCodec(most, seals[0], seals[1:]...), nil
}

func newSeal(secret string) (cipher.AEAD, error) {
	if len(secret) < LeastSecret {
		return nil, fmt.Errorf("the secret has %d bytes, and needs at least %d", len(secret), LeastSecret)
	}
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "tandem answer cache 1", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
