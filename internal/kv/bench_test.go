package kv

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func BenchmarkKeys131072(b *testing.B) {
	c := NewChain("m", 16)
	tokens := tokensOf(131072)
	root := c.Root("", "")
	keys := make([]Key, 0, len(tokens)/16)
	b.ReportAllocs()
	for b.Loop() {
		keys = c.Append(keys[:0], root, tokens)
	}
}

// halfMatched returns an index in which each holder has, on average, half of keys. If spread is true, each
// holder has another number of blocks. Each holder also has its own prompt, so that the directory is large.
func halfMatched(holders, blocks int, spread bool) (*Index, []Key) {
	ix := NewIndex(Options{Chain: testChain, ByteBudget: 4 << 30})
	r := rand.New(rand.NewPCG(1, 2))
	for h := range holders {
		n := blocks / 2
		if spread {
			n = 1 + r.IntN(blocks)
		}
		ix.Apply(Holder(h), &Batch{Events: []Event{stored(0, n, 1)}})
		ix.Apply(Holder(h), &Batch{Events: []Event{stored(0, 2*blocks, Token(h+1)<<20)}})
	}
	return ix, promptKeys(blocks, 1)
}

func benchmarkMatch(b *testing.B, holders int) {
	for _, spread := range []bool{false, true} {
		b.Run(map[bool]string{false: "one-depth", true: "all-depths"}[spread], func(b *testing.B) {
			ix, keys := halfMatched(holders, 8192, spread)
			depth := make([]int32, holders)
			b.ReportAllocs()
			for b.Loop() {
				ix.Match(keys, depth)
			}
		})
	}
}

func BenchmarkMatch8192x16(b *testing.B) { benchmarkMatch(b, 16) }
func BenchmarkMatch8192x64(b *testing.B) { benchmarkMatch(b, 64) }

func BenchmarkMatchMiss(b *testing.B) {
	ix, _ := halfMatched(64, 8192, true)
	keys := promptKeys(8192, 99)
	depth := make([]int32, 64)
	for b.Loop() {
		ix.Match(keys, depth)
	}
}

// Every holder expects many prompts that share a prefix with the prompt of the match.
func BenchmarkMatchSpeculated(b *testing.B) {
	ix := NewIndex(Options{Chain: testChain})
	tokens := prompt(1024, 1)
	keys := func() []Key { return testChain.Append(nil, testChain.Root("", ""), tokens) }
	for h := range 64 {
		for i := range guessesPerHolder {
			tokens[len(tokens)/2] = Token(h*1000 + i)
			ix.Speculate(Holder(h), keys(), someday)
		}
	}
	asked, depth := keys(), make([]int32, 64)
	b.ReportAllocs()
	for b.Loop() {
		ix.Match(asked, depth)
	}
}

// A prompt of 1,024 blocks is stored and then evicted from its end, as in a full cache.
func BenchmarkApply(b *testing.B) {
	for _, perEvent := range []int{1, 64, 1024} {
		b.Run(fmt.Sprintf("%d-per-event", perEvent), func(b *testing.B) {
			ix := NewIndex(Options{Chain: testChain})
			var batch Batch
			for from := 0; from < 1024; from += perEvent {
				batch.Events = append(batch.Events, stored(from, from+perEvent, 1))
			}
			for i := 1023; i >= 0; i-- {
				batch.Events = append(batch.Events, removed(hashes(i, i+1, 1)...))
			}
			b.ReportAllocs()
			for b.Loop() {
				ix.Apply(0, &batch)
			}
		})
	}
}

// A prompt of 64 blocks is assumed on a replica whose 100,000 blocks are all in use.
func BenchmarkAssumeWhenFull(b *testing.B) {
	ix := NewIndex(Options{Chain: testChain})
	r := rand.New(rand.NewPCG(1, 2))
	keys := make([]Key, 64)
	b.ReportAllocs()
	for b.Loop() {
		for i := range keys {
			keys[i] = Key(r.Uint64())
		}
		ix.Assume(0, keys, 100_000)
	}
}

// 64 holders expect a prompt beside many prompts with the same prefix. Then the prompt is computed.
func BenchmarkSpeculateAndConfirm(b *testing.B) {
	for _, each := range []int{1, 8, guessesPerHolder - 1, guessesPerHolder} {
		b.Run(fmt.Sprintf("%d-each", each), func(b *testing.B) {
			ix := NewIndex(Options{Chain: testChain})
			tokens := prompt(1024, 1)
			keys := func() []Key { return testChain.Append(nil, testChain.Root("", ""), tokens) }
			for h := range 64 {
				for i := range each {
					tokens[len(tokens)/2] = Token(h*1000 + i)
					ix.Speculate(Holder(h), keys(), someday)
				}
			}
			tokens[len(tokens)/2] = 999_999
			asked := keys()
			b.ReportAllocs()
			for b.Loop() {
				ix.guesses.add(7, asked, someday)
				ix.guesses.confirm(7, asked[len(asked)-1:])
			}
		})
	}
}
