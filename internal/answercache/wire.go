package answercache

import (
	"bytes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/klauspost/compress/zstd"
)

// A value outside this process:
//
//	magic "tan1" | flags | sealed, or sum of the rest and the rest
//
// and the rest, which a cipher can hide:
//
//	key | when made | size of the body | events | content type | makers | body
//
// Numbers are big-endian; texts have their length in two bytes before them. The key stands in it, so that a
// value that was moved under another one is not taken.
const wireMagic = "tan1"

const (
	wireStream byte = 1 << iota
	wireZipped
	wireSealed
)

// Codec writes answers for a store outside this process, and reads values of such a store, which may be
// anything.
type Codec struct {
	packs *packer
	seal  cipher.AEAD   // writes
	opens []cipher.AEAD // for reading: seal, and former seals
	most  int           // bytes of a body
}

// NewCodec returns a codec for bodies of at most the given number of bytes. seal adds its own nonces. With a
// nil seal, anyone with access to the store can read and forge answers. Answers that a former seal sealed are
// read too.
func NewCodec(most int, seal cipher.AEAD, former ...cipher.AEAD) *Codec {
	c := &Codec{packs: newPacker(zstd.WithDecoderMaxMemory(max(uint64(most), 1<<10))), seal: seal, most: most}
	if seal != nil {
		c.opens = append([]cipher.AEAD{seal}, former...)
	}
	return c
}

// Most returns the largest length of a value.
func (c *Codec) Most() int { return c.most + wireExtra }

// wireExtra limits the bytes of a value besides its body.
const wireExtra = 64 << 10

// These are the errors of values that are not accepted.
var (
	ErrForeign = errors.New("the value is none of ours")
	ErrForged  = errors.New("the value is not what was written")
)

// Append appends the value of an answer to dst.
func (c *Codec) Append(dst []byte, k Key, a *Answer) []byte {
	p := c.packs.pack(a)
	flags := byte(0)
	if a.Stream {
		flags |= wireStream
	}
	if p.zipped {
		flags |= wireZipped
	}
	rest := append(make([]byte, 0, len(p.body)+512), k[:]...)
	rest = binary.BigEndian.AppendUint64(rest, uint64(a.Made.UnixMilli()))
	rest = binary.BigEndian.AppendUint32(rest, uint32(p.size))
	rest = binary.BigEndian.AppendUint32(rest, uint32(a.Events))
	rest = appendText(rest, a.ContentType)
	rest = append(rest, byte(min(len(a.Makers), math.MaxUint8)))
	for _, m := range a.Makers[:min(len(a.Makers), math.MaxUint8)] {
		rest = appendText(appendText(rest, m.Replica), m.Server)
		rest = binary.BigEndian.AppendUint64(rest, math.Float64bits(m.Started))
	}
	rest = append(rest, p.body...)
	if c.seal != nil {
		head := append([]byte(wireMagic), flags|wireSealed)
		return c.seal.Seal(append(dst, head...), nil, rest, append(head, k[:]...))
	}
	sum := sha256.Sum256(append([]byte{flags}, rest...))
	return append(append(append(append(dst, wireMagic...), flags), sum[:]...), rest...)
}

func appendText(dst []byte, s string) []byte {
	s = s[:min(len(s), math.MaxUint16)]
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(s))), s...)
}

// Read returns the answer to the question k in a value. It accepts any bytes.
func (c *Codec) Read(value []byte, k Key) (*Answer, error) {
	rest, ok := bytes.CutPrefix(value, []byte(wireMagic))
	if !ok || len(rest) == 0 || len(value) > c.Most() {
		return nil, ErrForeign
	}
	flags, rest, err := c.open(value[:len(wireMagic)+1], rest[1:], k)
	if err != nil {
		return nil, err
	}
	r := reader{rest: rest}
	p := &packed{zipped: flags&wireZipped != 0}
	if Key(r.next(len(k))) != k {
		return nil, ErrForged
	}
	p.answer.Stream = flags&wireStream != 0
	p.answer.Made = time.UnixMilli(int64(r.uint64()))
	p.size = int(r.uint32())
	p.answer.Events = int(r.uint32())
	p.answer.ContentType = r.text()
	for range r.next(1)[0] {
		p.answer.Makers = append(p.answer.Makers, Maker{
			Replica: r.text(), Server: r.text(), Started: math.Float64frombits(r.uint64()),
		})
	}
	if p.body = r.rest; r.short || p.size > c.most {
		return nil, ErrForeign
	}
	a, err := c.packs.unpack(p)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrForged, err)
	}
	return a, nil
}

// open removes the seal. A router with a key accepts only sealed values, and others only unsealed ones.
func (c *Codec) open(head, rest []byte, k Key) (flags byte, plain []byte, err error) {
	flags = head[len(head)-1]
	switch sealed := flags&wireSealed != 0; {
	case sealed != (c.seal != nil):
		return 0, nil, ErrForeign
	case sealed:
		plain, err = c.unseal(rest, append(bytes.Clone(head), k[:]...))
		return flags, plain, err
	case len(rest) < sha256.Size:
		return 0, nil, ErrForeign
	}
	sum := sha256.Sum256(append([]byte{flags}, rest[sha256.Size:]...))
	if !bytes.Equal(sum[:], rest[:sha256.Size]) {
		return 0, nil, ErrForged
	}
	return flags, rest[sha256.Size:], nil
}

func (c *Codec) unseal(sealed, bound []byte) ([]byte, error) {
	for _, seal := range c.opens {
		if plain, err := seal.Open(nil, nil, sealed, bound); err == nil {
			return plain, nil
		}
	}
	return nil, ErrForged
}

// reader takes bytes from the front; missing bytes are zero.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) next(n int) []byte {
	if len(r.rest) < n {
		r.short = true
		r.rest = nil
		return make([]byte, n)
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) uint64() uint64 { return binary.BigEndian.Uint64(r.next(8)) }
func (r *reader) uint32() uint32 { return binary.BigEndian.Uint32(r.next(4)) }
func (r *reader) text() string   { return string(r.next(int(binary.BigEndian.Uint16(r.next(2))))) }
