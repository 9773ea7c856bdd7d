package answercache

import (
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/maypok86/otter/v2/stats"
)

// Memory keeps answers in memory, limited in bytes. W-TinyLFU chooses which answers stay: an answer that is
// needed once does not replace an answer that is needed often.
type Memory struct {
	cache *otter.Cache[Key, *packed]
	count *stats.Counter
	packs *packer
}

// NewMemory returns a memory that holds at most the given number of bytes.
func NewMemory(bytes int64) *Memory {
	m := &Memory{count: stats.NewCounter(), packs: newPacker()}
	m.cache = otter.Must(&otter.Options[Key, *packed]{
		MaximumWeight: uint64(bytes), StatsRecorder: m.count,
		Weigher: func(_ Key, p *packed) uint32 { return p.weight() },
		// The cache does its housekeeping on the goroutine of the caller. It has no goroutine of its own.
		Executor: func(do func()) { do() },
	})
	return m
}

// Resize sets the largest number of bytes that it holds.
func (m *Memory) Resize(bytes int64) { m.cache.SetMaximum(uint64(bytes)) }

// Put keeps an answer until it expires.
func (m *Memory) Put(k Key, a *Answer, expires time.Time) {
	p := m.packs.pack(a)
	p.expires = expires
	m.cache.Set(k, p)
}

// Get returns the answer to a question; nil if there is none, or only an expired one.
func (m *Memory) Get(k Key, now time.Time) *Answer {
	p, ok := m.cache.GetIfPresent(k)
	if !ok {
		return nil
	}
	a, err := m.packs.unpack(p)
	if err != nil || !now.Before(p.expires) {
		m.cache.Invalidate(k)
		return nil
	}
	return a
}

// Drop removes an answer.
func (m *Memory) Drop(k Key) { m.cache.Invalidate(k) }

// MemoryStats describes the content of a [Memory].
type MemoryStats struct {
	Answers   int
	Bytes     int64
	Evictions uint64 // answers that were removed for others, since the start
}

// Stats returns the present contents in numbers.
func (m *Memory) Stats() MemoryStats {
	return MemoryStats{
		Answers: m.cache.EstimatedSize(), Bytes: int64(m.cache.WeightedSize()),
		Evictions: m.count.Snapshot().Evictions,
	}
}
