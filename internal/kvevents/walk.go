package kvevents

import (
	"encoding/binary"
	"errors"
)

// Errors of a payload that is not msgpack, or ends too early.
var (
	errTruncated = errors.New("msgpack: ends too early")
	errCode      = errors.New("msgpack: byte 0xc1 is no value")
)

// kind is the kind of a msgpack value; all widths of a kind are one kind.
type kind uint8

const (
	kindNil kind = iota
	kindBool
	kindUint  // not negative, however it was written
	kindInt   // negative
	kindFloat // n holds float64 bits
	kindStr
	kindBin
	kindExt
	kindArray // n elements follow
	kindMap   // n pairs follow
)

// value is one msgpack value; of an array or map only its head.
type value struct {
	kind kind
	n    uint64 // number, two's complement if negative; float bits; 1 for true; elements or pairs
	raw  []byte // contents of str, bin and ext, part of the payload
}

// walker reads msgpack values off the front of rest. Nothing is copied, and no count is believed that the
// bytes left could not hold.
type walker struct{ rest []byte }

// next takes one value, or the head of an array or map.
func (w *walker) next() (value, error) {
	if len(w.rest) == 0 {
		return value{}, errTruncated
	}
	c := w.rest[0]
	w.rest = w.rest[1:]
	switch {
	case c <= 0x7f:
		return value{kind: kindUint, n: uint64(c)}, nil
	case c <= 0x8f:
		return w.list(kindMap, uint64(c&0x0f))
	case c <= 0x9f:
		return w.list(kindArray, uint64(c&0x0f))
	case c <= 0xbf:
		return w.bytes(kindStr, uint64(c&0x1f))
	case c >= 0xe0:
		return value{kind: kindInt, n: uint64(int64(int8(c)))}, nil
	}
	return w.wide(c)
}

// wide reads the value behind the codes 0xc0 to 0xdf.
func (w *walker) wide(c byte) (value, error) {
	switch c {
	case 0xc0:
		return value{kind: kindNil}, nil
	case 0xc2, 0xc3:
		return value{kind: kindBool, n: uint64(c & 1)}, nil
	case 0xc4, 0xc5, 0xc6:
		return w.sized(kindBin, 1<<(c-0xc4))
	case 0xc7, 0xc8, 0xc9:
		return w.ext(1 << (c - 0xc7))
	case 0xca, 0xcb:
		return w.float(4 << (c - 0xca))
	case 0xcc, 0xcd, 0xce, 0xcf:
		n, err := w.uint(1 << (c - 0xcc))
		return value{kind: kindUint, n: n}, err
	case 0xd0, 0xd1, 0xd2, 0xd3:
		return w.int(1 << (c - 0xd0))
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8:
		return w.bytes(kindExt, 1+1<<(c-0xd4)) // with its type byte
	case 0xd9, 0xda, 0xdb:
		return w.sized(kindStr, 1<<(c-0xd9))
	case 0xdc, 0xdd:
		n, err := w.uint(2 << (c - 0xdc))
		return w.listOr(kindArray, n, err)
	case 0xde, 0xdf:
		n, err := w.uint(2 << (c - 0xde))
		return w.listOr(kindMap, n, err)
	}
	return value{}, errCode
}

// uint takes a big-endian number of 1, 2, 4 or 8 bytes.
func (w *walker) uint(width int) (uint64, error) {
	b := w.rest
	if len(b) < width {
		return 0, errTruncated
	}
	w.rest = b[width:]
	switch width {
	case 1:
		return uint64(b[0]), nil
	case 2:
		return uint64(binary.BigEndian.Uint16(b)), nil
	case 4:
		return uint64(binary.BigEndian.Uint32(b)), nil
	}
	return binary.BigEndian.Uint64(b), nil
}

func (w *walker) int(width int) (value, error) {
	n, err := w.uint(width)
	shift := 64 - 8*width
	signed := int64(n<<shift) >> shift
	if signed < 0 {
		return value{kind: kindInt, n: uint64(signed)}, err
	}
	return value{kind: kindUint, n: n}, err
}

func (w *walker) float(width int) (value, error) {
	n, err := w.uint(width)
	if width == 4 {
		n = float64bits(uint32(n))
	}
	return value{kind: kindFloat, n: n}, err
}

func (w *walker) sized(k kind, width int) (value, error) {
	n, err := w.uint(width)
	if err != nil {
		return value{}, err
	}
	return w.bytes(k, n)
}

func (w *walker) ext(width int) (value, error) {
	n, err := w.uint(width)
	if err != nil {
		return value{}, err
	}
	return w.bytes(kindExt, n+1)
}

func (w *walker) bytes(k kind, n uint64) (value, error) {
	if n > uint64(len(w.rest)) {
		return value{}, errTruncated
	}
	raw := w.rest[:n:n]
	w.rest = w.rest[n:]
	return value{kind: k, raw: raw}, nil
}

func (w *walker) listOr(k kind, n uint64, err error) (value, error) {
	if err != nil {
		return value{}, err
	}
	return w.list(k, n)
}

// list checks that n elements (twice n for a map) can be there at all: each takes a byte or more.
func (w *walker) list(k kind, n uint64) (value, error) {
	need := n
	if k == kindMap {
		need *= 2
	}
	if need > uint64(len(w.rest)) {
		return value{}, errTruncated
	}
	return value{kind: k, n: n}, nil
}

// The following take the commonest forms of a value without the detour over next. false: the value has
// another form, or is none; nothing was taken.

// null takes a nil.
func (w *walker) null() bool {
	if len(w.rest) == 0 || w.rest[0] != 0xc0 {
		return false
	}
	w.rest = w.rest[1:]
	return true
}

// small takes a number below 128.
func (w *walker) small() (int, bool) {
	if len(w.rest) == 0 || w.rest[0] > 0x7f {
		return 0, false
	}
	n := int(w.rest[0])
	w.rest = w.rest[1:]
	return n, true
}

// few takes the head of an array of less than 65,536 elements.
func (w *walker) few() (uint64, bool) {
	b := w.rest
	if len(b) < 3 || b[0] != 0xdc {
		return w.tiny(0x90, 1)
	}
	n := int(binary.BigEndian.Uint16(b[1:]))
	if len(b) < 3+n {
		return 0, false
	}
	w.rest = b[3:]
	return uint64(n), true
}

// pairs takes the head of a map of less than 16 pairs.
func (w *walker) pairs() (uint64, bool) { return w.tiny(0x80, 2) }

func (w *walker) tiny(code byte, size int) (uint64, bool) {
	b := w.rest
	if len(b) == 0 || b[0]&0xf0 != code || len(b) <= size*int(b[0]&0x0f) {
		return 0, false
	}
	w.rest = b[1:]
	return uint64(b[0] & 0x0f), true
}

// count takes the head of an array of any length.
func (w *walker) count() (uint64, error) {
	if n, ok := w.few(); ok {
		return n, nil
	}
	v, err := w.next()
	if err == nil && v.kind != kindArray {
		err = errShape
	}
	return v.n, err
}

// short takes a string of less than 32 bytes.
func (w *walker) short() ([]byte, bool) {
	b := w.rest
	if len(b) == 0 || b[0]&0xe0 != 0xa0 || len(b) <= int(b[0]&0x1f) {
		return nil, false
	}
	n := 1 + int(b[0]&0x1f)
	w.rest = b[n:]
	return b[1:n], true
}

// long takes a number written in eight bytes, as nearly all hashes are.
func (w *walker) long() (uint64, bool) {
	b := w.rest
	if len(b) < 9 || b[0] != 0xcf {
		return 0, false
	}
	w.rest = b[9:]
	return binary.BigEndian.Uint64(b[1:]), true
}

// name takes the key of a pair. A key that is not a string reads as nil, which is no field's name.
func (w *walker) name() ([]byte, error) {
	if s, ok := w.short(); ok {
		return s, nil
	}
	before := w.rest
	v, err := w.next()
	if err != nil || v.kind == kindStr {
		return v.raw, err
	}
	w.rest = before
	return nil, w.skip()
}

// skip takes one whole value with all inside it, at any depth, without recursion.
func (w *walker) skip() error {
	for left := uint64(1); left > 0; left-- {
		v, err := w.next()
		if err != nil {
			return err
		}
		switch v.kind {
		case kindArray:
			left += v.n
		case kindMap:
			left += 2 * v.n
		}
		if left-1 > uint64(len(w.rest)) {
			return errTruncated
		}
	}
	return nil
}

// span takes one whole value and returns its bytes.
func (w *walker) span() ([]byte, error) {
	before := w.rest
	err := w.skip()
	return before[:len(before)-len(w.rest)], err
}
