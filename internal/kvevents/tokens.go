package kvevents

import (
	"encoding/binary"

	"github.com/tandem-router/tandem/internal/kv"
)

// Token ids are most of what an engine sends, and the width of each id says where the next one begins. The
// widths vary as text does, so a branch per width would be mispredicted for every third id. fill therefore
// looks at 64 bytes at once, as if an id began at every byte. It then walks from id to id by additions
// alone. A number in a form that is unusual for an id ends that walk. Such numbers, and the last bytes, are
// read one by one.

const window = 64 // bytes

// lanes has a one in every byte.
const lanes = 0x0101010101010101

// strides returns, for eight bytes of msgpack, the length of the number that begins at each byte. The length
// is 1 for 00 to 7f, and 2, 3, 5 for cc, cd, ce. Other codes give a number between 1 and 9.
func strides(b uint64) uint64 {
	wide := b >> 7 & lanes
	bit0, bit1 := b&wide, b>>1&wide
	return lanes + wide + bit0 + 3*bit1 + 3*(bit0&bit1) // 1 + wide * 1<<(code&3)
}

// idMask cuts the id out of the last four bytes of a number so long.
var idMask = [16]uint32{1: 0xff, 2: 0xff, 3: 0xffff, 5: 0xffffffff}

// Properties of a number by its code.
const (
	oddNumber = 1 << iota // strides is not made for it
	notThree              // the number does not have three bytes, as most have
)

var remarks = func() (t [256]uint8) {
	for c := range t {
		switch {
		case c == 0xcd:
		case c < 0x80, c == 0xcc, c == 0xce:
			t[c] = notThree
		default:
			t[c] = oddNumber | notThree
		}
	}
	return t
}()

// fill reads as many token ids as dst has room for. Small vocabularies have windows in which every number
// has three bytes. After such a window fill reads with branches, for as many ids as a window has bytes.
func (r *reading) fill(dst []kv.Token) error {
	even := false
	for len(dst) > 0 && len(r.rest) >= window+8 {
		before := len(r.rest)
		if even {
			n := min(len(dst), window)
			if err := r.fillOneByOne(dst[:n]); err != nil {
				return err
			}
			dst = dst[n:]
			even = before-len(r.rest) == 3*n
			continue
		}
		n, end, remark := walkWindow((*[window + 8]byte)(r.rest), dst)
		if remark&oddNumber != 0 {
			break
		}
		dst = dst[n:]
		r.rest = r.rest[end:]
		even = remark&notThree == 0
	}
	return r.fillOneByOne(dst)
}

// walkWindow reads the ids that begin in the window, as far as dst has room. It returns the number of ids,
// where the next id begins, and all remarks on the ids. The next id may begin up to 8 bytes behind the
// window. If one id is odd, the caller must not use the ids in dst.
func walkWindow(win *[window + 8]byte, dst []kv.Token) (n int, end uint, remark uint8) {
	var stride [window]uint8
	for i := 0; i < window; i += 8 {
		binary.LittleEndian.PutUint64(stride[i:], strides(binary.LittleEndian.Uint64(win[i:])))
	}
	at := uint(0)
	for at < window && n < len(dst) {
		size := uint(stride[at])
		number := binary.BigEndian.Uint64(win[at : at+8])
		dst[n] = kv.Token(number>>((64-8*size)&63)) & idMask[size&15]
		remark |= remarks[win[at]]
		n++
		at += size
	}
	return n, at, remark
}

// fillOneByOne is fill for ids of any form, to the end of the payload.
func (r *reading) fillOneByOne(dst []kv.Token) error {
	b := r.rest
	for i := range dst {
		if len(b) >= 5 {
			switch c := b[0]; {
			case c == 0xcd:
				dst[i] = kv.Token(binary.BigEndian.Uint16(b[1:]))
				b = b[3:]
				continue
			case c <= 0x7f:
				dst[i] = kv.Token(c)
				b = b[1:]
				continue
			case c == 0xce:
				dst[i] = binary.BigEndian.Uint32(b[1:])
				b = b[5:]
				continue
			case c == 0xcc:
				dst[i] = kv.Token(b[1])
				b = b[2:]
				continue
			}
		}
		r.rest = b
		t, err := r.token()
		if err != nil {
			return err
		}
		dst[i], b = t, r.rest
	}
	r.rest = b
	return nil
}
