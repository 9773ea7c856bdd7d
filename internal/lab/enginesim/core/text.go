package core

import (
	"math/bits"

	"github.com/tandem-router/tandem/internal/kv"
)

// The simulator's model. The KV of a block is one number, its content:
//
//	state     after the blocks 0..i-1 of a request's table = fold of their contents in memory
//	content   of block i = state, stepped once for each token of the block
//	next token = a function of the state after everything computed
//
// A right table gives numbers that depend only on the prompt. Steps, cache hits and transfers do not change
// them. A wrong, stale or foreign block changes the text after it, and the content of every block computed
// after it. Wrong KV shows in the same way in a real model.
//
// One difference to a real model: a block is right or wrong as a whole. If P's and D's prompts differ only in
// how far they fill the same last block, a real D overwrites the surplus and is right. Here its text is
// wrong.

const (
	contentSeed = 0x51_7c_c1_b7_27_22_0a_95
	hashSeed    = 0x2b_7e_15_16_28_ae_d2_a6
	oddA        = 0x9e_37_79_b9_7f_4a_7c_15
	oddB        = 0xd6_e8_fe_b8_66_59_fd_93
)

// mix is a bijection of h for fixed w, and of w for fixed h.
func mix(h, w uint64) uint64 {
	h = (h ^ w) * oddA
	return h ^ h>>32
}

// finish lets every bit of h affect the whole number.
func finish(h uint64) uint64 {
	h = (h ^ h>>31) * oddB
	h = (h ^ h>>29) * oddA
	return h ^ h>>32
}

func mixString(h uint64, s string) uint64 {
	for i := range len(s) {
		h = mix(h, uint64(s[i])+1)
	}
	return finish(mix(h, uint64(len(s))<<32))
}

// hashBlock returns the hash of a full block, chained like vLLM's: parent, tokens, and extra for the adapter
// and, in block 0, the salt. It is never 0.
func hashBlock(parent uint64, tokens []uint32, extra uint64) kv.EngineHash {
	h := mix(parent, extra)
	for len(tokens) >= 2 {
		h = mix(h, uint64(tokens[0])|uint64(tokens[1])<<32)
		tokens = tokens[2:]
	}
	if len(tokens) == 1 {
		h = mix(h, ^uint64(tokens[0]))
	}
	return kv.EngineHash(max(finish(h), 1))
}

// stepTokens computes the KV of tokens on top of a block's state.
func stepTokens(state uint64, tokens []uint32) uint64 {
	for _, t := range tokens {
		state = mix(state, uint64(t)+1)
	}
	return state
}

// attend folds one more block of the table into the state.
func attend(state, content uint64) uint64 { return finish(mix(state, content)) }

// draw samples a token. try is the number of draws that were rejected before.
func (c *Config) draw(state, seed uint64, try int) uint32 {
	x := finish(mix(state, finish(seed)+uint64(try)*oddB))
	if c.EOSEvery > 0 && c.EOS > 0 && finish(x+1)%uint64(c.EOSEvery) == 0 {
		return uint32(c.EOS)
	}
	hi, _ := bits.Mul64(x, uint64(c.Vocab-c.FirstToken))
	return uint32(c.FirstToken) + uint32(hi)
}
