package roster

import (
	"encoding/binary"
	"testing"

	"github.com/tandem-router/tandem/internal/kv"
)

// BenchmarkComputed is the cost of an answer for a full replica without events. Half of each prompt is
// known, and the other half pushes out older prompts.
func BenchmarkComputed(b *testing.B) {
	for _, blocks := range []int{64, 6250} {
		b.Run(map[int]string{64: "1k tokens", 6250: "100k tokens"}[blocks], func(b *testing.B) {
			rs := engines("a")
			rs[0].Facts.Blocks = 100_000
			r, _ := New(Options{}, func() *plain { return new(plain) })
			r.SetIndexing(Indexing{Mode: Approximate})
			r.SetMembers(rs, start)
			keys, next := make([]kv.Key, blocks), kv.Key(1)
			for b.Loop() {
				for i := blocks / 2; i < blocks; i++ {
					keys[i] = next << 20
					next++
				}
				for i := range blocks / 2 {
					keys[i] = kv.Key(i + 1)
				}
				r.RecordComputed(&r.members.All[0].Member, Prompt{Keys: keys}, blocks*8, blocks*8)
			}
		})
	}
}

// BenchmarkRemember is the cost of every request that was matched by its tokens. It names 4 KB of text, some
// 1,000 tokens, and notes the text in both pools. Half of the text is known, and the replicas are full.
func BenchmarkRemember(b *testing.B) {
	rs := engines("a")
	rs[0].Facts.Blocks = 100_000
	var pools [2]*Roster[*plain]
	for i := range pools {
		pools[i], _ = New(Options{}, func() *plain { return new(plain) })
		pools[i].SetIndexing(Indexing{ChunkBytes: 256, CharsPerToken: 4})
		pools[i].SetMembers(rs, start)
	}
	text, n := make([]byte, 4096), uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		n++
		binary.LittleEndian.PutUint64(text[2048:], n)
		chain, adapter, per, _ := pools[0].TextChain("m")
		p := Prompt{Keys: chain.Append(make([]kv.Key, 0, 16), chain.Root(adapter, ""), text), Chunk: per}
		for _, r := range pools {
			r.Remember("a", p)
		}
	}
}
