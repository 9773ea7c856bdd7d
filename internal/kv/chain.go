package kv

import (
	"encoding/binary"
	"sort"

	"github.com/cespare/xxhash/v2"
)

// Token is a token id.
type Token = uint32

// Key names the content of one block together with everything before the block. 0 is never a key. Two keys
// are equal only for equal model, block size, adapter, salt and tokens. The exception is a 64-bit collision,
// which costs a wrong guess and never a wrong answer.
type Key uint64

// Common returns how many leading names two chains have in common. Each name stands for everything before it
// too, so no names are equal behind the first difference.
func Common[K comparable](a, b []K) int {
	return sort.Search(min(len(a), len(b)), func(i int) bool { return a[i] != b[i] })
}

// Chain turns token ids into keys. It is a small value; the zero Chain has no block size and makes no keys.
type Chain struct {
	seed uint64
	size int
}

// NewChain returns the chain of model with blockSize tokens a block. A blockSize below 1 gives a chain that
// makes no keys.
func NewChain(model string, blockSize int) Chain {
	blockSize = max(blockSize, 0)
	var d xxhash.Digest
	d.Reset()
	writeText(&d, model)
	writeNumber(&d, uint64(blockSize))
	return Chain{seed: d.Sum64(), size: blockSize}
}

// BlockSize returns the tokens of one block, 0 for the zero Chain.
func (c Chain) BlockSize() int { return c.size }

// Root returns the parent of block 0 under a LoRA adapter and a cache salt, either of which may be "". An
// adapter and a salt of the same name give different roots.
func (c Chain) Root(lora, salt string) Key {
	var d xxhash.Digest
	d.Reset()
	writeNumber(&d, c.seed)
	writeText(&d, lora)
	writeText(&d, salt)
	return keyOf(d.Sum64())
}

// Blocks up to appendBlock tokens are laid out on the stack once for a whole prompt, others are streamed in
// parts of streamPart tokens.
const (
	appendBlock = 256
	streamPart  = 64
)

// Append appends to dst the key of every full block of tokens, and returns dst. The first block follows
// parent. A partial last block has no key.
func (c Chain) Append(dst []Key, parent Key, tokens []Token) []Key {
	if c.size < 1 {
		return dst
	}
	if c.size > appendBlock {
		return c.appendLarge(dst, parent, tokens)
	}
	var room [8 + 4*appendBlock]byte
	buf := room[:8+4*c.size]
	for ; len(tokens) >= c.size; tokens = tokens[c.size:] {
		binary.LittleEndian.PutUint64(buf, uint64(parent))
		putTokens(buf[8:], tokens[:c.size])
		parent = keyOf(xxhash.Sum64(buf))
		dst = append(dst, parent)
	}
	return dst
}

func (c Chain) appendLarge(dst []Key, parent Key, tokens []Token) []Key {
	for ; len(tokens) >= c.size; tokens = tokens[c.size:] {
		parent = c.Block(parent, tokens[:c.size], nil)
		dst = append(dst, parent)
	}
	return dst
}

// Block returns the key of one block that follows parent and holds tokens. The caller makes sure that the
// number of tokens is right. extra changes the key; without extra it is the key that Append gives.
func (c Chain) Block(parent Key, tokens []Token, extra []byte) Key {
	if len(tokens) <= streamPart && len(extra) == 0 {
		return smallBlock(parent, tokens)
	}
	var d xxhash.Digest
	d.Reset()
	writeNumber(&d, uint64(parent))
	var room [4 * streamPart]byte
	for len(tokens) > 0 {
		n := min(len(tokens), streamPart)
		putTokens(room[:], tokens[:n])
		d.Write(room[:4*n])
		tokens = tokens[n:]
	}
	d.Write(extra)
	return keyOf(d.Sum64())
}

func smallBlock(parent Key, tokens []Token) Key {
	var room [8 + 4*streamPart]byte
	buf := room[:8+4*len(tokens)]
	binary.LittleEndian.PutUint64(buf, uint64(parent))
	putTokens(buf[8:], tokens)
	return keyOf(xxhash.Sum64(buf))
}

// putTokens writes four bytes a token, two tokens at a time.
func putTokens(buf []byte, tokens []Token) {
	for len(tokens) >= 2 && len(buf) >= 8 {
		binary.LittleEndian.PutUint64(buf, uint64(tokens[0])|uint64(tokens[1])<<32)
		tokens, buf = tokens[2:], buf[8:]
	}
	if len(tokens) == 1 {
		binary.LittleEndian.PutUint32(buf, tokens[0])
	}
}

func keyOf(sum uint64) Key { return Key(max(sum, 1)) }

func writeText(d *xxhash.Digest, s string) {
	writeNumber(d, uint64(len(s)))
	d.WriteString(s)
}

func writeNumber(d *xxhash.Digest, n uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], n)
	d.Write(b[:])
}
