package roster

import (
	"testing"

	"tandem/internal/kv"
)

// BenchmarkComputed is what an answer costs a replica without events that is full: half of each prompt is known, the other half pushes out older ones.
func BenchmarkComputed(b *testing.B) {
	for _, blocks := range []int{64, 6250} {
		b.Run(map[int]string{64: "1k tokens", 6250: "100k tokens"}[blocks], func(b *testing.B) {
			rs := engines("a")
			rs[0].Facts.Blocks = 100_000
			r := New(Options{}, func() *plain { return new(plain) })
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
				r.Computed(&r.Members[0].Member, Prompt{Keys: keys}, blocks*8, blocks*8)
			}
		})
	}
}
