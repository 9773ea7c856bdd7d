package answercache

import (
	"errors"
	"time"

	"github.com/klauspost/compress/zstd"
)

// packer compresses the bodies of answers if this saves enough.
type packer struct {
	in  *zstd.Encoder
	out *zstd.Decoder
}

// These are the least saving of compression, and the least length of a body for which it is tried. Streams
// shrink to a tenth, vectors of numbers by a third. A short answer is faster without compression.
const (
	packFrom   = 1 << 10
	packSaving = 4 // a quarter at least
)

func newPacker(limits ...zstd.DOption) *packer {
	// Neither can fail with these options, and neither starts a goroutine for whole bodies.
	in, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2))
	if err != nil {
		panic(err)
	}
	out, err := zstd.NewReader(nil, append(limits, zstd.WithDecoderConcurrency(2))...)
	if err != nil {
		panic(err)
	}
	return &packer{in, out}
}

// packed is an answer in its kept form.
type packed struct {
	answer  Answer // without its body
	body    []byte
	zipped  bool
	size    int // of the body when it is not compressed
	expires time.Time
}

// overhead is the memory of an answer besides its body, in bytes: the entry, its key, and the store's own
// data.
const overhead = 512

func (p *packed) weight() uint32 {
	n := overhead + len(p.body) + len(p.answer.ContentType)
	for _, m := range p.answer.Makers {
		n += len(m.Replica) + len(m.Server)
	}
	return uint32(min(n, 1<<32-1))
}

func (z *packer) pack(a *Answer) *packed {
	p := &packed{answer: *a, body: a.Body, size: len(a.Body)}
	p.answer.Body = nil
	if len(a.Body) >= packFrom {
		if b := z.in.EncodeAll(a.Body, nil); len(b) <= len(a.Body)-len(a.Body)/packSaving {
			p.body, p.zipped = append(make([]byte, 0, len(b)), b...), true
		}
	}
	return p
}

// errSize is the error of a body that no longer has its length.
var errSize = errors.New("the kept answer has another length than it had")

func (z *packer) unpack(p *packed) (*Answer, error) {
	a := p.answer
	a.Body = p.body
	if p.zipped {
		b, err := z.out.DecodeAll(p.body, make([]byte, 0, p.size))
		if err != nil {
			return nil, err
		}
		a.Body = b
	}
	if len(a.Body) != p.size {
		return nil, errSize
	}
	return &a, nil
}
