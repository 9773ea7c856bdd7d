package kvevents

import (
	"encoding/binary"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/tandem-router/tandem/internal/kv"
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
	Rank       int       // data-parallel rank
	Events     []kv.Event
	ByteHashes bool                  // write hashes as 32 bytes, the number in the last 8, instead of uint64
	LoRAID     func(name string) int // lora_id of an adapter; nil says 1 for all
}

// Encode appends b to dst as vLLM 0.20 (Array) or 0.32 (Map) would write it. It includes the fields that
// such an engine always writes: extra_keys with a nil for each block, lora_id and lora_name. In map form it
// also writes kv_cache_spec_kind and its window, where the event has them. A bare event has no extra_keys.
func Encode(dst []byte, b *EncodeBatch, form Form) []byte {
	e := encoder{out: dst, b: b}
	e.array(3)
	e.out = msgp.AppendFloat64(e.out, seconds(b.At))
	e.array(len(b.Events))
	for i := range b.Events {
		if form == Array {
			e.eventArray(&b.Events[i])
		} else {
			e.eventMap(&b.Events[i])
		}
	}
	e.int(b.Rank)
	return e.out
}

// seconds is Python's time.time().
func seconds(t time.Time) float64 { return float64(t.Unix()) + float64(t.Nanosecond())/1e9 }

type encoder struct {
	out []byte
	b   *EncodeBatch
}

func (e *encoder) array(n int)  { e.out = msgp.AppendArrayHeader(e.out, uint32(n)) }
func (e *encoder) str(s string) { e.out = msgp.AppendString(e.out, s) }
func (e *encoder) int(n int)    { e.out = msgp.AppendInt64(e.out, int64(n)) }
func (e *encoder) null()        { e.out = msgp.AppendNil(e.out) }

func (e *encoder) eventArray(ev *kv.Event) {
	switch ev.Kind {
	case kv.Stored:
		n := 10
		if ev.Group < 0 { // a trailing default is left out
			n--
		}
		e.array(n)
		e.str("BlockStored")
		e.stored(ev, func(string) {})
		if ev.Group >= 0 {
			e.int(ev.Group)
		}
	case kv.Removed:
		n := 4
		if ev.Group < 0 {
			n--
		}
		e.array(n)
		e.str("BlockRemoved")
		e.hashes(ev.Hashes)
		e.str(medium(ev.Tier))
		if ev.Group >= 0 {
			e.int(ev.Group)
		}
	case kv.Cleared:
		e.array(1)
		e.str("AllBlocksCleared")
	}
}

func (e *encoder) eventMap(ev *kv.Event) {
	switch ev.Kind {
	case kv.Stored:
		e.head("BlockStored", 9, ev)
		e.stored(ev, e.str)
		e.tail(ev)
	case kv.Removed:
		e.head("BlockRemoved", 3, ev)
		e.str("block_hashes")
		e.hashes(ev.Hashes)
		e.str("medium")
		e.str(medium(ev.Tier))
		e.tail(ev)
	case kv.Cleared:
		e.out = msgp.AppendMapHeader(e.out, 1)
		e.str("type")
		e.str("AllBlocksCleared")
	}
}

// head opens a map of n pairs and the pairs that tail writes.
func (e *encoder) head(tag string, n int, ev *kv.Event) {
	if ev.Group >= 0 {
		n++
	}
	n += bit(ev.SpecKind != "" && ev.Kind == kv.Stored) + bit(ev.Window > 0 && ev.Kind == kv.Stored)
	e.out = msgp.AppendMapHeader(e.out, uint32(n))
	e.str("type")
	e.str(tag)
}

func (e *encoder) tail(ev *kv.Event) {
	if ev.Group >= 0 {
		e.str("group_idx")
		e.int(ev.Group)
	}
	if ev.SpecKind != "" && ev.Kind == kv.Stored {
		e.str("kv_cache_spec_kind")
		e.str(ev.SpecKind)
	}
	if ev.Window > 0 && ev.Kind == kv.Stored {
		e.str("kv_cache_spec_sliding_window")
		e.int(ev.Window)
	}
}

// stored writes the fields that both forms have in the same order; key writes a field's name, or nothing.
func (e *encoder) stored(ev *kv.Event, key func(string)) {
	key("block_hashes")
	e.hashes(ev.Hashes)
	key("parent_block_hash")
	if ev.HasParent {
		e.hash(ev.Parent)
	} else {
		e.null()
	}
	key("token_ids")
	e.array(len(ev.Tokens))
	for _, t := range ev.Tokens {
		e.out = msgp.AppendUint64(e.out, uint64(t))
	}
	key("block_size")
	e.int(ev.BlockSize)
	key("lora_id")
	e.loraID(ev.LoRA)
	key("medium")
	e.str(medium(ev.Tier))
	key("lora_name")
	if ev.LoRA == "" {
		e.null()
	} else {
		e.str(ev.LoRA)
	}
	key("extra_keys")
	e.extraKeys(ev)
}

func (e *encoder) loraID(name string) {
	switch {
	case name == "":
		e.null()
	case e.b.LoRAID != nil:
		e.int(e.b.LoRAID(name))
	default:
		e.int(1)
	}
}

func (e *encoder) hashes(hs []kv.EngineHash) {
	e.array(len(hs))
	for _, h := range hs {
		e.hash(h)
	}
}

// hash writes one hash. The first 24 bytes of the long form are made up from the number, since no reader may
// depend on them.
func (e *encoder) hash(h kv.EngineHash) {
	if !e.b.ByteHashes {
		e.out = msgp.AppendUint64(e.out, uint64(h))
		return
	}
	var b [32]byte
	for i := range 3 {
		binary.BigEndian.PutUint64(b[8*i:], uint64(h)*(2*uint64(i)+3))
	}
	binary.BigEndian.PutUint64(b[24:], uint64(h))
	e.out = msgp.AppendBytes(e.out, b[:])
}

func (e *encoder) extraKeys(ev *kv.Event) {
	if ev.Bare {
		e.null()
		return
	}
	e.array(len(ev.Hashes))
	for i := range ev.Hashes {
		e.extraOf(ev, i)
	}
}

func (e *encoder) extraOf(ev *kv.Event, i int) {
	var room [64]byte
	var rest []byte
	n := 0
	if i < len(ev.Extra) {
		rest, n = writeExtra(room[:0], ev.Extra[i])
	}
	salted := i == 0 && !ev.HasParent && ev.Salt != ""
	total := n + bit(ev.LoRA != "") + bit(salted)
	if total == 0 {
		e.null()
		return
	}
	e.array(total)
	if ev.LoRA != "" {
		e.str(ev.LoRA)
	}
	e.out = append(e.out, rest...)
	if salted {
		e.str(ev.Salt)
	}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// medium is the inverse of kv.ParseTier, in vLLM's words.
func medium(t kv.Tier) string {
	switch t {
	case kv.GPU:
		return "GPU"
	case kv.CPU:
		return "CPU"
	case kv.Shared:
		return "cpu"
	case kv.Disk:
		return "STORAGE"
	}
	return "EXTERNAL"
}
