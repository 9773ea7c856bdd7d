package index

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/tandem-router/tandem/internal/kv"
)

// Constants of all engines.
const (
	blockTokens = 16
	traceParts  = traceBlock / blockTokens // blocks of an engine in one of the trace
	stepBlocks  = 512                      // blocks that one engine step prefills at most: 8,192 tokens
	vocabulary  = 1 << 17                  // token ids
)

var indexChain = kv.NewChain("bench", blockTokens)

// segment names the new blocks of one request: 0 is the system prompt that all share, 1+2t are the new blocks
// of turn t's prompt, 2+2t are the blocks of its answer.
type segment uint32

// privateFrom is the first segment that belongs to no turn.
const privateFrom segment = 1 << 31

func promptOf(t int) segment { return segment(1 + 2*t) }
func answerOf(t int) segment { return segment(2 + 2*t) }

// span is the part of a prompt that belongs to one segment: the blocks from (included) to (excluded), counted
// from the start of the prompt.
type span struct {
	of       segment
	from, to int
}

// story repeats the trace without end. Each round has new conversations of the same shape after the same
// system prompt.
type story struct{ turns []turn }

// length returns the number of full blocks of turn t's prompt.
func (s *story) length(t int) int { return s.turns[t%len(s.turns)].in / blockTokens }

// answer returns the number of full blocks that the answer to turn t adds.
func (s *story) answer(t int) int {
	u := s.turns[t%len(s.turns)]
	return (u.in+u.out)/blockTokens - u.in/blockTokens
}

// like returns the turn of the same round with which t shares its beginning, and the number of shared blocks.
// The turn is -1 if they share the system prompt alone.
func (s *story) like(t int) (turn, blocks int) {
	u := s.turns[t%len(s.turns)]
	if u.like < 0 || u.kept <= 1 {
		return -1, min(traceParts, s.length(t))
	}
	turn = t - t%len(s.turns) + u.like
	return turn, min(u.kept*traceParts, s.length(t), s.length(turn))
}

// path appends to dst the segments of the first limit blocks of turn t's prompt, in prompt order.
func (s *story) path(dst []span, t, limit int) []span {
	mine, hi := len(dst), min(s.length(t), limit)
	for t >= 0 {
		parent, from := s.like(t)
		if from < hi {
			dst = append(dst, span{promptOf(t), from, hi})
			hi = from
		}
		t = parent
	}
	if hi > 0 {
		dst = append(dst, span{0, 0, hi})
	}
	slices.Reverse(dst[mine:])
	return dst
}

// keys returns the keys of turn t's whole prompt.
func (s *story) keys(t int) []kv.Key {
	var tokens []kv.Token
	for _, part := range s.path(nil, t, s.length(t)) {
		for at := part.from; at < part.to; at++ {
			tokens = appendTokens(tokens, part.of, at)
		}
	}
	return keysOf(tokens)
}

func keysOf(tokens []kv.Token) []kv.Key {
	return indexChain.Append(make([]kv.Key, 0, len(tokens)/blockTokens), indexChain.Root("", ""), tokens)
}

// appendTokens appends the tokens of one block: random ids, evenly spread over the vocabulary. Half of the
// ids take three bytes on the wire, and half five.
func appendTokens(dst []kv.Token, of segment, at int) []kv.Token {
	x := mix(uint64(of)<<32 | uint64(at))
	for i := range blockTokens {
		if i%3 == 0 {
			x = mix(x)
		}
		dst = append(dst, kv.Token(x>>(i%3*20))%vocabulary)
	}
	return dst
}

// hashOf is the engine's hash of a block. It differs between engines, as in vLLM without PYTHONHASHSEED.
func hashOf(h kv.Holder, of segment, at int) kv.EngineHash {
	return kv.EngineHash(mix(mix(uint64(of)<<32|uint64(at)) + uint64(h+1)<<48))
}

// mix is the finalizer of splitmix64: a permutation that leaves no pattern.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// dice is a small, fast random source. It gives the same numbers in each run.
type dice uint64

// below returns a number from 0 to n-1.
func (d *dice) below(n int) int {
	*d = dice(mix(uint64(*d)))
	hi, _ := bits.Mul64(uint64(*d), uint64(n))
	return int(hi)
}

// seedOf makes a seed from a name, so that every part has its own random source.
func seedOf(name string) dice {
	var b [8]byte
	copy(b[:], name)
	return dice(binary.LittleEndian.Uint64(b[:]))
}
