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

// halfMatched is an index in which holders have on average half of keys. If spread is true, each holder has
// another length. Each holder also has a prompt of its own, so that the directory is large.
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

// Every holder awaits many prompts that begin like the one asked for.
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

// A prompt of 1,024 blocks stored and evicted again from its tail, as a full cache does.
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

// A prompt of 64 blocks for a replica whose 100,000 blocks are all assumed taken.
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

// A prompt that is sent beside so many that begin like it, to be computed by 64 holders, and then is.
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

// lowerMatched is an index in which 16 holders have a prompt of 8192 blocks. The part of the prompt behind
// onGPU blocks is in host memory only.
func lowerMatched(onGPU int) (*Index, []Key) {
	ix := NewIndex(Options{Chain: testChain})
	for h := range Holder(16) {
		copied := stored(0, 8192, 1)
		copied.Tier = CPU
		ix.Apply(h, &Batch{Events: []Event{stored(0, 8192, 1)}})
		if onGPU < 8192 {
			ix.Apply(h, &Batch{Events: []Event{copied, removed(hashes(onGPU, 8192, 1)...)}})
		}
	}
	return ix, promptKeys(8192, 1)
}

func BenchmarkMatchTiers8192x16(b *testing.B) {
	for _, onGPU := range []int{8192, 4096} {
		b.Run(fmt.Sprintf("%d-on-gpu", onGPU), func(b *testing.B) {
			ix, keys := lowerMatched(onGPU)
			depth, below := make([]int32, 16), make([]Below, 16)
			b.ReportAllocs()
			for b.Loop() {
				ix.MatchTiers(keys, depth, below)
			}
		})
	}
}

// What a block takes in the index, with a copy in host memory and without.
func BenchmarkBytesPerBlock(b *testing.B) {
	copied := stored(0, 8192, 1)
	copied.Tier = CPU
	for name, events := range map[string][]Event{
		"gpu": {stored(0, 8192, 1)}, "both": {stored(0, 8192, 1), copied},
		"host-memory": {stored(0, 8192, 1), copied, removed(hashes(0, 8192, 1)...)},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				ix := NewIndex(Options{Chain: testChain})
				ix.Apply(0, &Batch{Events: events})
				b.ReportMetric(float64(ix.bytes())/8192, "bytes/block")
			}
		})
	}
}
