package kvevents

import (
	"time"

	"tandem/internal/kv"
)

// Form is the way events are written.
type Form uint8

// The two forms in the wild.
const (
	Map   Form = iota // vLLM 0.24 and later: an event is a map with its "type"
	Array             // before: a positional array, tag first
)

// EncodeBatch is a batch as an engine publishes it.
type EncodeBatch struct {
	At         time.Time // written as the engine's ts, float64 Unix seconds
	Rank       int
	Events     []kv.Event
	ByteHashes bool                  // write hashes as 32 bytes, the number in the last 8, instead of uint64
	LoRAID     func(name string) int // lora_id of an adapter; nil says 1 for all
}

// Encode appends b to dst as vLLM 0.20 (Array) or 0.32 (Map) would write it.
func Encode(dst []byte, b *EncodeBatch, form Form) []byte { return dst }
