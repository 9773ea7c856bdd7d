package kvevents

import (
	"encoding/binary"

	"github.com/tinylib/msgp/msgp"

	"github.com/tandem-router/tandem/internal/kv"
)

// Extra keys are what a block's hash holds beside its tokens. On the wire they are a list per block, without
// tags, in the order adapter, multimodal items, cache salt, prompt embeddings. vLLM's
// v1/core/kv_cache_utils.py makes them. Here the adapter goes to Event.LoRA and the salt to Event.Salt. The
// other elements go, one by one, into bytes that are equal exactly if the elements are equal:
//
//	'm' len identifier offset    multimodal item; offset zigzag, from the block's start; negative: before it
//	's' len text                 a bare string, neither adapter nor salt (older: a multimodal identifier)
//	'b' len bytes                prompt embeddings
//	'r' len msgpack              anything else, as sent
//
// len and offset are varints.
const (
	extraMultimodal = 'm'
	extraText       = 's'
	extraBytes      = 'b'
	extraRaw        = 'r'
)

func appendExtra(dst []byte, tag byte, b []byte) []byte {
	dst = binary.AppendUvarint(append(dst, tag), uint64(len(b)))
	return append(dst, b...)
}

// readExtra reads extra_keys into e. The hashes, the parent and the adapter of e must be set already. old is
// a slice to reuse.
func readExtra(sent []byte, e *kv.Event, old [][]byte) error {
	w := walker{rest: sent}
	v, err := w.next()
	switch {
	case err != nil:
		return err
	case v.kind == kindNil:
		return nil
	case v.kind != kindArray:
		return errShape
	}
	x := extras{walker: w, e: e, old: old}
	for i := range min(int(v.n), len(e.Hashes)) {
		if err := x.block(i); err != nil {
			return err
		}
	}
	return nil
}

type extras struct {
	walker
	e   *kv.Event
	old [][]byte
}

// block reads the extra keys of block i: nil, a list, or an element that stands alone.
func (x *extras) block(i int) error {
	before := x.rest
	v, err := x.next()
	switch {
	case err != nil:
		return err
	case v.kind == kindNil:
		return nil
	case v.kind != kindArray:
		x.rest = before
		return x.element(i, 0)
	}
	for j := range v.n {
		if err := x.element(i, j); err != nil {
			return err
		}
	}
	return nil
}

func (x *extras) element(i int, j uint64) error {
	span, err := x.span()
	if err != nil {
		return err
	}
	v, _ := (&walker{rest: span}).next()
	switch {
	case j == 0 && x.adapter(v):
	case v.kind == kindStr && i == 0 && !x.e.HasParent:
		x.salt(v.raw)
	case v.kind == kindStr:
		x.add(i, extraText, v.raw)
	case v.kind == kindBin:
		x.add(i, extraBytes, v.raw)
	default:
		x.item(i, span)
	}
	return nil
}

// adapter reports whether the first element is the adapter: its name, or its number in old versions.
func (x *extras) adapter(v value) bool {
	return x.e.LoRA != "" && (v.kind == kindUint || v.kind == kindStr && string(v.raw) == x.e.LoRA)
}

// salt takes a bare string on block 0. The salt comes after multimodal identifiers, so the last one is it.
func (x *extras) salt(raw []byte) {
	if x.e.Salt != "" {
		x.add(0, extraText, []byte(x.e.Salt))
	}
	x.e.Salt = string(raw)
}

// item reads [identifier, offset], or any other value, as sent.
func (x *extras) item(i int, span []byte) {
	w := walker{rest: span}
	head, _ := w.next()
	if head.kind == kindArray && head.n == 2 {
		id, _ := w.next()
		offset, err := w.next()
		if err == nil && id.kind == kindStr && (offset.kind == kindUint || offset.kind == kindInt) {
			x.add(i, extraMultimodal, id.raw)
			x.e.Extra[i] = binary.AppendVarint(x.e.Extra[i], int64(offset.n))
			return
		}
	}
	x.add(i, extraRaw, span)
}

func (x *extras) add(i int, tag byte, b []byte) {
	if x.e.Extra == nil {
		x.e.Extra = x.blank()
	}
	x.e.Extra[i] = appendExtra(x.e.Extra[i], tag, b)
}

// blank returns a nil for each block.
func (x *extras) blank() [][]byte {
	n := len(x.e.Hashes)
	if cap(x.old) < n {
		return make([][]byte, n)
	}
	blank := x.old[:n]
	clear(blank)
	return blank
}

// writeExtra appends the elements of one block's canonical extra as msgpack and returns how many they are.
// Bytes of another make go out as one bin.
func writeExtra(dst, extra []byte) (out []byte, n int) {
	out = dst
	for rest := extra; len(rest) > 0; n++ {
		tag := rest[0]
		size, w := binary.Uvarint(rest[1:])
		if w <= 0 || size > uint64(len(rest)-1-w) {
			return msgp.AppendBytes(dst, extra), 1
		}
		body := rest[1+w : 1+w+int(size)]
		rest = rest[1+w+int(size):]
		switch tag {
		case extraText:
			out = msgp.AppendStringFromBytes(out, body)
		case extraBytes:
			out = msgp.AppendBytes(out, body)
		case extraRaw:
			out = append(out, body...)
		case extraMultimodal:
			offset, w := binary.Varint(rest)
			if w <= 0 {
				return msgp.AppendBytes(dst, extra), 1
			}
			rest = rest[w:]
			out = msgp.AppendStringFromBytes(msgp.AppendArrayHeader(out, 2), body)
			out = msgp.AppendInt64(out, offset)
		default:
			return msgp.AppendBytes(dst, extra), 1
		}
	}
	return out, n
}
