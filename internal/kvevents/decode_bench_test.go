package kvevents

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

const benchBlock = 16 // tokens in a block

// wireText returns token ids as a tokenizer gives them: frequent words have small ids, so the encoded ids
// have different widths.
func wireText(r *rand.Rand) kv.Token { return kv.Token(128_000 * math.Pow(r.Float64(), 3)) }

// wireUniform returns ids drawn evenly from a vocabulary of 128,000, as load generators do. No other mixture
// of widths is worse for a decoder that predicts widths.
func wireUniform(r *rand.Rand) kv.Token { return kv.Token(r.IntN(128_000)) }

// wireShort returns only ids of the most frequent width.
func wireShort(r *rand.Rand) kv.Token { return kv.Token(256 + r.IntN(65_000)) }

// benchStores returns a batch of prompts. Each prompt is one event with a chain of blocks.
func benchStores(events, blocks int, ids func(*rand.Rand) kv.Token) []kv.Event {
	r := rand.New(rand.NewPCG(1, 2))
	out := make([]kv.Event, events)
	for i := range out {
		e := &out[i]
		*e = kv.Event{Kind: kv.Stored, BlockSize: benchBlock, SpecKind: "full_attention"}
		for range blocks {
			e.Hashes = append(e.Hashes, kv.EngineHash(r.Uint64()))
		}
		for range blocks * benchBlock {
			e.Tokens = append(e.Tokens, ids(r))
		}
	}
	return out
}

// benchRemovals returns an engine's events for evicted blocks, one event for each block.
func benchRemovals(n int) []kv.Event {
	r := rand.New(rand.NewPCG(3, 4))
	out := make([]kv.Event, n)
	for i := range out {
		out[i] = kv.Event{Kind: kv.Removed, Hashes: []kv.EngineHash{kv.EngineHash(r.Uint64())}}
	}
	return out
}

func BenchmarkDecode(b *testing.B) {
	for _, tt := range []struct {
		name   string
		events []kv.Event
		blocks int
	}{
		{"prompt of text", benchStores(1, 512, wireText), 512},
		{"prompt of uniform ids", benchStores(1, 512, wireUniform), 512},
		{"prompt of short ids", benchStores(1, 512, wireShort), 512},
		{"single blocks", benchStores(64, 1, wireText), 64},
		{"removals", benchRemovals(128), 128},
	} {
		for _, form := range []Form{Map, Array} {
			b.Run(fmt.Sprintf("%s/%s", tt.name, map[Form]string{Map: "map", Array: "array"}[form]),
				func(b *testing.B) {
					payload := Encode(nil, &EncodeBatch{At: time.Now(), Events: tt.events}, form)
					benchDecode(b, payload, tt.blocks)
				})
		}
	}
}

func benchDecode(b *testing.B, payload []byte, blocks int) {
	var into kv.Batch
	b.ReportAllocs()
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		if _, err := Decode(payload, &into); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(blocks), "ns/block")
	b.ReportMetric(float64(len(payload))/float64(blocks), "bytes/block")
}

const (
	benchPrompts = 8
	benchBlocks  = 128 // blocks of each prompt
)

// benchStream returns a million blocks of text in a thousand different batches. They do not fit into the
// processor's caches and branch predictors.
func benchStream() [][]byte {
	r := rand.New(rand.NewPCG(5, 6))
	payloads := make([][]byte, 1024)
	events := make([]kv.Event, benchPrompts)
	for i := range payloads {
		for j := range events {
			e := kv.Event{Kind: kv.Stored, BlockSize: benchBlock, SpecKind: "full_attention"}
			for range benchBlocks {
				e.Hashes = append(e.Hashes, kv.EngineHash(r.Uint64()))
			}
			for range benchBlocks * benchBlock {
				e.Tokens = append(e.Tokens, wireText(r))
			}
			events[j] = e
		}
		payloads[i] = Encode(nil, &EncodeBatch{At: time.Now(), Events: events}, Map)
	}
	return payloads
}

// BenchmarkDecodeStream decodes batches that are not in the processor's caches.
func BenchmarkDecodeStream(b *testing.B) {
	payloads := benchStream()
	var into kv.Batch
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, err := Decode(payloads[i%len(payloads)], &into); err != nil {
			b.Fatal(err)
		}
		i++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(benchPrompts*benchBlocks), "ns/block")
}

// BenchmarkIngest decodes msgpack and applies the events to an index, on one core. The prompts are chains of
// blocks. At the end the index holds a million blocks.
func BenchmarkIngest(b *testing.B) {
	payloads := benchStream()
	index := newBenchIndex()
	var into kv.Batch
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if i == len(payloads) {
			b.StopTimer()
			index, i = newBenchIndex(), 0
			b.StartTimer()
		}
		if _, err := Decode(payloads[i], &into); err != nil {
			b.Fatal(err)
		}
		index.Apply(0, &into)
		i++
	}
	perBlock := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / (benchPrompts * benchBlocks)
	b.ReportMetric(perBlock, "ns/block")
	b.ReportMetric(1e3/perBlock, "Mblocks/s")
}

func newBenchIndex() *kv.Index {
	return kv.NewIndex(kv.Options{Chain: kv.NewChain("m", benchBlock), ByteBudget: 4 << 30})
}
