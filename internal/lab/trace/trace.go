// Package trace reads recorded traffic: which session asked for how many tokens, when, and which blocks of
// the prompt were the same as before.
//
// A trace holds no text. A prompt is a row of block identities: two prompts share the tokens of their first n
// blocks if, and only if, their first n identities are the same.
package trace

import (
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/capture"
)

// Session is calls of one client that may wait for each other. A trace without sessions is read as one of
// single calls.
type Session struct {
	ID        string
	At        time.Duration // since the start of the trace
	Timed     bool          // At is in the data; otherwise the player of the trace has to draw it
	BlockSize int           // tokens of a block in the calls' identities, 0: they have none
	Calls     []Call        // a call comes behind the one that it waits for
}

// Call is one request.
type Call struct {
	After  int           // index of the call that must end first, -1: the start of the session
	Think  time.Duration // from that moment on
	Input  int           // tokens of the prompt, at least 1
	Output int           // tokens of the answer, at least 1
	Model  string        // "" unknown
	Asked  capture.Asked

	ids    []uint64 // identities, where they were read as a list
	runs   []run    // otherwise: what follows the first keep identities of parent
	parent int32    // -1 none
	keep   int32
	prefix *head // what the first identities are in all sessions; nil: they are the session's own
	salt   uint64
}

// run is identities first, first+1, ...
type run struct {
	first uint64
	count int32
}

// head is a prompt's beginning that several sessions share: tool definitions and system prompt.
type head struct {
	identity uint64
	blocks   int
}

// AppendBlocks appends the identities of the blocks of the i-th call's prompt. There is one for each full
// block at least, and one for a partial last block where the trace has it.
func (s *Session) AppendBlocks(dst []uint64, i int) []uint64 {
	c := &s.Calls[i]
	if c.ids != nil {
		return append(dst, c.ids...)
	}
	return s.unroll(dst, c)
}

// unroll follows the parents of c, from the end of its prompt to the start.
func (s *Session) unroll(dst []uint64, c *Call) []uint64 {
	n := s.blocks(c)
	start := len(dst)
	dst = slices.Grow(dst, n)[:start+n]
	out := dst[start:]
	for end := n; end > 0; {
		from := min(int(c.keep), end)
		at := int(c.keep)
		for _, r := range c.runs {
			for k := int32(0); k < r.count && at < end; k++ {
				out[at] = c.name(r.first+uint64(k), at)
				at++
			}
		}
		end = from
		if c.parent < 0 {
			break
		}
		c = &s.Calls[c.parent]
	}
	return dst
}

// name makes an identity of a session one of the trace.
func (c *Call) name(id uint64, at int) uint64 {
	if c.prefix != nil && at < c.prefix.blocks {
		return mix(c.prefix.identity, uint64(at))
	}
	return mix(c.salt, id)
}

// blocks returns how many identities c has.
func (s *Session) blocks(c *Call) int {
	if c.ids != nil {
		return len(c.ids)
	}
	n := int(c.keep)
	for _, r := range c.runs {
		n += int(r.count)
	}
	return n
}

// AppendTokens appends token ids of the i-th call's prompt, below vocab (0: any 32 bits): equal blocks have
// equal tokens, and no others do but by accident. What lies behind the last known block is unlike everything
// else, which unique tells apart. blocks is what [Session.AppendBlocks] gave.
func (s *Session) AppendTokens(dst []uint32, i int, blocks []uint64, unique uint64, vocab uint32) []uint32 {
	left := s.Calls[i].Input
	dst = slices.Grow(dst, left)
	size := s.BlockSize
	for _, id := range blocks {
		n := min(size, left)
		dst = appendTokens(dst, id, n, vocab)
		left -= n
	}
	return appendTokens(dst, mix(unique, ^uint64(0)), left, vocab)
}

// appendTokens appends n tokens that id decides.
func appendTokens(dst []uint32, id uint64, n int, vocab uint32) []uint32 {
	start := len(dst)
	dst = slices.Grow(dst, n)[:start+n]
	out := dst[start:]
	x := mix(id, 0x746f6b656e)
	for i := range out {
		out[i] = uint32(x >> 32)
		x = x*6364136223846793005 + 1442695040888963407
	}
	if vocab > 0 {
		for i := range out {
			out[i] = uint32(uint64(out[i]) * uint64(vocab) >> 32)
		}
	}
	return dst
}

// mix is a 64-bit hash of two words.
func mix(a, b uint64) uint64 {
	x := a*0x9e3779b97f4a7c15 + b + 0x632be59bd9b4e019
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// mixString is a 64-bit hash of a word and a text.
func mixString(a uint64, s string) uint64 {
	x := mix(a, uint64(len(s)))
	for i := range len(s) {
		x = mix(x, uint64(s[i]))
	}
	return x
}
