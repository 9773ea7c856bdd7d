package orchestrator

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// tenantOf identifies the owner of an API key by a part of the key's hash. This part distinguishes keys and
// does not reveal them. 0 is no key.
func tenantOf(key string) uint32 {
	if key == "" {
		return 0
	}
	sum := sha256.Sum256([]byte("tandem tenant " + key))
	return max(1, binary.LittleEndian.Uint32(sum[:]))
}

// keyLabel returns the first eight digits of the hash that [tenantOf] uses; "" for no key.
func keyLabel(tenant uint32) string {
	if tenant == 0 {
		return ""
	}
	return hex.EncodeToString(binary.LittleEndian.AppendUint32(nil, tenant))
}
