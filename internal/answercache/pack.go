package answercache

import (
	"errors"
	"time"

	"github.com/klauspost/compress/zstd"
)

// packer compresses the bodies of answers where that pays.
type packer struct {
	in  *zstd.Encoder
	out *zstd.Decoder
}

// What compressing has to bring, and how long a body has to be for it to be tried. Streams shrink to a tenth,
// vectors of numbers by a third; a short answer is kept faster as it is.
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

// packed is an answer as it is kept.
type packed struct {
	answer  Answer // without its body
	body    []byte
	zipped  bool
	size    int // of the body when it is not compressed
	expires time.Time
}

// overhead is what an answer takes beside its body, in bytes: the entry, its key, and the store's own data.
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

// errSize is a body that is not as long as it was.
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
