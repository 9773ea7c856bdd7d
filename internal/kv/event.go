package kv

import (
	"encoding/binary"
	"strings"
	"time"
)

// EngineHash is a block hash as one engine names it: an integer, or the last eight bytes, big-endian, of a
// longer digest. It means something only together with the holder that said it.
type EngineHash uint64

// HashOf reduces a digest of any length to an EngineHash, as vLLM does when it publishes integers. Digests
// shorter than eight bytes are read as if zeros stood before them.
func HashOf(digest []byte) EngineHash {
	if n := len(digest); n >= 8 {
		return EngineHash(binary.BigEndian.Uint64(digest[n-8:]))
	}
	var b [8]byte
	copy(b[8-len(digest):], digest)
	return EngineHash(binary.BigEndian.Uint64(b[:]))
}

// Tier is the memory that a copy of a block lies in.
type Tier uint8

// The tiers. The zero Tier is the engine's own block pool.
//
// Shared is a store outside of the engine, which several engines may share. vLLM's MooncakeStore and LMCache
// name such a store "cpu". vLLM's own host memory is "CPU".
const (
	GPU Tier = iota
	CPU
	Shared
	Disk
	Other
)

// ParseTier reads the "medium" of an event, in any case except that of Shared. Engines before the field
// existed say nothing, which means GPU.
func ParseTier(medium string) Tier {
	switch {
	case medium == "cpu":
		return Shared
	case medium == "", strings.EqualFold(medium, "GPU"):
		return GPU
	case strings.EqualFold(medium, "CPU"), strings.EqualFold(medium, "CPU_PINNED"):
		return CPU
	case strings.EqualFold(medium, "STORAGE"), strings.EqualFold(medium, "DISK"):
		return Disk
	}
	return Other
}

func (t Tier) String() string {
	switch t {
	case GPU:
		return "gpu"
	case CPU:
		return "cpu"
	case Shared:
		return "shared"
	case Disk:
		return "disk"
	}
	return "other"
}

// EventKind says what happened to the blocks of an event.
type EventKind uint8

// The kinds of events. The zero kind is no event and is ignored.
const (
	Stored EventKind = iota + 1
	Removed
	Cleared
)

func (k EventKind) String() string {
	switch k {
	case Stored:
		return "stored"
	case Removed:
		return "removed"
	case Cleared:
		return "cleared"
	}
	return "none"
}

// NoGroup is the Group of an event that named none.
const NoGroup = -1

// Event is one change of an engine's block pool, whatever the version that told it.
type Event struct {
	Kind      EventKind
	Hashes    []EngineHash // the blocks, in prompt order for Stored
	Parent    EngineHash   // Stored: the block before Hashes[0], if HasParent
	HasParent bool         // false: Hashes[0] is block 0 of a prompt
	Tokens    []Token      // Stored: BlockSize tokens a hash; another count means that blocks were masked
	BlockSize int          // Stored: tokens a block; 0 in placeholders of offload tiers
	LoRA      string       // Stored: the adapter's name, "" for the base model
	Tier      Tier
	Group     int    // KV cache group, NoGroup when unsaid
	SpecKind  string // Stored: kind of the group's attention as vLLM spells it, "" when unsaid
	Window    int    // Stored: tokens of the group's sliding window, 0 when unsaid
	Salt      string // Stored: cache salt of block 0, "" without one or with a parent
	// Stored: per block what else its content depends on (multimodal ids, embeddings), canonical bytes; nil when
	// no block has any.
	Extra [][]byte
	// Stored: tokens behind each block that the engine's hash of the block covers, too (vLLM's
	// lookahead_token_ids); 0 when the hashes cover the blocks alone.
	Ahead int
	Bare  bool // Stored: it does not say what else its blocks depend on beside their tokens
	Local bool // its memory is of this engine alone ("locality")
}

// Batch is what an engine published in one message. All slices belong to the decoder and hold until it
// decodes the next message into the same Batch.
type Batch struct {
	Seq    uint64
	At     time.Time // the engine's clock, not ours
	Rank   int       // data-parallel rank of the publisher
	Events []Event
}
