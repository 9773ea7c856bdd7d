package kvevents

import (
	"encoding/binary"
	"fmt"

	"github.com/tandem-router/tandem/internal/kv"
)

// tag is the kind of an event as its first element or its "type" names it.
type tag uint8

const (
	tagUnknown tag = iota
	tagStored
	tagRemoved
	tagCleared
)

func tagOf(v value) tag {
	if v.kind != kindStr {
		return tagUnknown
	}
	return tagNamed(v.raw)
}

func tagNamed(name []byte) tag {
	switch string(name) {
	case "BlockStored":
		return tagStored
	case "BlockRemoved":
		return tagRemoved
	case "AllBlocksCleared":
		return tagCleared
	}
	return tagUnknown
}

// field is a field of an event that we read.
type field uint8

const (
	fieldNone field = iota
	fieldType
	fieldHashes
	fieldParent
	fieldTokens
	fieldBlockSize
	fieldLoRAID
	fieldMedium
	fieldLoRAName
	fieldExtra
	fieldGroup
	fieldSpec
	fieldWindow
	fieldLookahead
	fieldLocality
)

// layouts are the fields at each position of an array-form event; see vLLM's distributed/kv_events.py.
var layouts = [...][]field{
	tagStored: {
		fieldNone, fieldHashes, fieldParent, fieldTokens, fieldBlockSize, fieldLoRAID, fieldMedium, fieldLoRAName,
		fieldExtra,
		fieldGroup, fieldSpec, fieldWindow,
	},
	tagRemoved: {fieldNone, fieldHashes, fieldMedium, fieldGroup},
	tagCleared: nil,
}

func fieldNamed(name []byte) field {
	switch string(name) {
	case "type":
		return fieldType
	case "block_hashes":
		return fieldHashes
	case "parent_block_hash":
		return fieldParent
	case "token_ids":
		return fieldTokens
	case "block_size":
		return fieldBlockSize
	case "lora_id":
		return fieldLoRAID
	case "medium":
		return fieldMedium
	case "lora_name":
		return fieldLoRAName
	case "extra_keys":
		return fieldExtra
	case "group_idx":
		return fieldGroup
	case "kv_cache_spec_kind":
		return fieldSpec
	case "kv_cache_spec_sliding_window":
		return fieldWindow
	case "lookahead_token_ids":
		return fieldLookahead
	case "locality":
		return fieldLocality
	}
	return fieldNone
}

// reading is one event being read.
type reading struct {
	walker
	e         *kv.Event
	old       leftover
	hasHashes bool
	hasExtra  bool   // extra_keys is there, and not nil
	loraID    int64  // -1: none
	extra     []byte // extra_keys as sent; read last, since it means nothing without lora_name and parent
}

// leftover is what the slot of an event held before and may be used again. It must not be written to before
// it is: the event may not have any.
type leftover struct {
	LoRA     string
	SpecKind string
	Extra    [][]byte
}

// event reads one event. The tag is right also beside an error, so that the caller can name the lost event.
func (r *reading) event() (tag, error) {
	t, err := r.fields()
	if err != nil || t == tagUnknown {
		return t, err
	}
	return t, r.finish(t)
}

func (r *reading) fields() (tag, error) {
	if n, ok := r.pairs(); ok {
		return r.object(n)
	}
	if n, ok := r.few(); ok {
		return r.array(n)
	}
	v, err := r.next()
	switch {
	case err != nil:
		return tagUnknown, err
	case v.kind == kindArray:
		return r.array(v.n)
	case v.kind == kindMap:
		return r.object(v.n)
	}
	return tagUnknown, nil
}

func (r *reading) array(n uint64) (tag, error) {
	if n == 0 {
		return tagUnknown, nil
	}
	t, err := r.tag()
	if err != nil || t == tagUnknown {
		return tagUnknown, err
	}
	layout := layouts[t]
	for i := uint64(1); i < n; i++ {
		f := fieldNone
		if i < uint64(len(layout)) {
			f = layout[i]
		}
		if err := r.field(f); err != nil {
			return t, err
		}
	}
	return t, nil
}

func (r *reading) object(n uint64) (tag, error) {
	t := tagUnknown
	body := r.walker
	for range n {
		name, err := r.name()
		if err != nil {
			return t, err
		}
		f := fieldNamed(name)
		if f == fieldType {
			if t, err = r.tag(); err != nil || t == tagUnknown {
				return tagUnknown, err
			}
			continue
		}
		if err := r.field(f); err != nil {
			return typeIn(body, n), err
		}
	}
	return t, nil
}

func (r *reading) tag() (tag, error) {
	if s, ok := r.short(); ok {
		return tagNamed(s), nil
	}
	v, err := r.next()
	return tagOf(v), err
}

// typeIn looks for "type" in a map whose head has been read, wherever it stands.
func typeIn(w walker, n uint64) tag {
	for range n {
		name, err := w.name()
		if err != nil {
			return tagUnknown
		}
		if fieldNamed(name) == fieldType {
			v, _ := w.next()
			return tagOf(v)
		}
		if w.skip() != nil {
			return tagUnknown
		}
	}
	return tagUnknown
}

func (r *reading) field(f field) (err error) {
	switch f {
	case fieldHashes:
		return r.hashes()
	case fieldParent:
		r.e.Parent, r.e.HasParent, err = r.hashOrNil()
	case fieldTokens:
		return r.tokens()
	case fieldBlockSize:
		r.e.BlockSize, err = r.numberOr(0)
	case fieldLoRAID:
		return r.adapterID()
	case fieldMedium:
		return r.medium()
	case fieldLoRAName:
		r.e.LoRA, err = r.text(r.old.LoRA)
	case fieldExtra:
		r.hasExtra = !r.null()
		if r.hasExtra && !r.plain() {
			r.extra, err = r.span()
		}
	case fieldGroup:
		r.e.Group, err = r.numberOr(kv.NoGroup)
	case fieldSpec:
		r.e.SpecKind, err = r.text(r.old.SpecKind)
	case fieldWindow:
		r.e.Window, err = r.numberOr(0)
	case fieldLookahead:
		r.e.Ahead, err = r.lookahead()
	case fieldLocality:
		return r.locality()
	default:
		return r.skip()
	}
	return err
}

// plain reads extra keys of plain text, which carry nothing: a nil for each block.
func (r *reading) plain() bool {
	w := r.walker
	n, err := w.count()
	if err != nil || !allNil(w.rest[:n]) { // n is within rest: an element has a byte or more
		return false
	}
	r.rest, r.extra = w.rest[n:], nil
	return true
}

func allNil(b []byte) bool {
	for ; len(b) >= 8; b = b[8:] {
		if binary.LittleEndian.Uint64(b) != 0xc0c0c0c0_c0c0c0c0 {
			return false
		}
	}
	for _, c := range b {
		if c != 0xc0 {
			return false
		}
	}
	return true
}

// finish gives the event its kind and reads the extra keys.
func (r *reading) finish(t tag) error {
	r.e.Kind = [...]kv.EventKind{tagStored: kv.Stored, tagRemoved: kv.Removed, tagCleared: kv.Cleared}[t]
	if t == tagCleared {
		return nil
	}
	if !r.hasHashes {
		return errShape
	}
	r.e.Bare = t == tagStored && !r.hasExtra
	// vLLM before 0.14 gives adapters only a number; it must not pass for the base model.
	if r.e.LoRA == "" && r.loraID >= 0 {
		r.e.LoRA = fmt.Sprintf("lora_id:%d", r.loraID)
	}
	if len(r.extra) == 0 {
		return nil
	}
	return readExtra(r.extra, r.e, r.old.Extra)
}
