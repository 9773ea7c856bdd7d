package valkey

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"

	"github.com/tandem-router/tandem/internal/answercache"
)

// LeastSecret is the smallest length of a secret in bytes.
const LeastSecret = 32

// NewCodec returns a codec that encrypts with AES-256-GCM, with a key made from secret. Routers that share
// answers must have the same secret. Nobody can read or forge an answer without the secret. The codec also
// reads answers written with the former secrets. With an empty secret nothing is encrypted.
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
