package kv

import "github.com/cespare/xxhash/v2"

// TextChain turns the bytes of a prompt into keys of chunks of one size, for prompts whose token ids are
// unknown. Its keys never equal the keys of a [Chain], except for 64-bit collisions. The keys belong into an
// Index of their own, which [Index.Assume] feeds: engines' events tell tokens, not text.
//
// It is a small value; the zero TextChain makes no keys.
type TextChain struct {
	seed uint64
	size int
}

// NewTextChain returns the chain of model with chunk bytes a key. A chunk below 1 gives a chain that makes no
// keys.
func NewTextChain(model string, chunk int) TextChain {
	chunk = max(chunk, 0)
	var d xxhash.Digest
	d.Reset()
	writeText(&d, "text")
	writeText(&d, model)
	writeNumber(&d, uint64(chunk))
	return TextChain{seed: d.Sum64(), size: chunk}
}

// ChunkSize returns the bytes of one chunk, 0 for the zero TextChain.
func (c TextChain) ChunkSize() int { return c.size }

// Root returns the parent of chunk 0 under a LoRA adapter and a cache salt, either of which may be "".
func (c TextChain) Root(lora, salt string) Key { return Chain{seed: c.seed}.Root(lora, salt) }

// Append appends to dst the key of every full chunk of the parts laid end to end, and returns dst. The first
// chunk follows parent. The borders between parts make no difference. A rest at the end that does not fill a
// chunk has no key.
func (c TextChain) Append(dst []Key, parent Key, parts ...[]byte) []Key {
	if c.size < 1 {
		return dst
	}
	var d xxhash.Digest
	begin(&d, parent)
	open := c.size // bytes missing in the chunk that d has begun
	for _, part := range parts {
		for len(part) >= open {
			d.Write(part[:open])
			parent = keyOf(d.Sum64())
			dst = append(dst, parent)
			part = part[open:]
			begin(&d, parent)
			open = c.size
		}
		d.Write(part)
		open -= len(part)
	}
	return dst
}

func begin(d *xxhash.Digest, parent Key) {
	d.Reset()
	writeNumber(d, uint64(parent))
}
