package index

import (
	"runtime"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// longPrompts times lookups of prompts of which half is there, at 8 holders to different depths. Caches are
// cold, since something else is read in between, and prompts come in no order that a branch predictor could
// learn.
func (m *measurement) longPrompts(r *resident) error {
	scrub := make([]uint64, m.plan.Scrub/8)
	weave(scrub) // pages never written to are all one page of zeros
	took := make([]time.Duration, 0, m.plan.Lookups)
	dice := seedOf("lookups")
	for range m.plan.Runs {
		took = took[:0]
		for range m.plan.Lookups {
			readLines(scrub)
			p := &r.prompts[dice.below(len(r.prompts))]
			start := time.Now()
			r.ix.Match(p.keys, r.depth)
			took = append(took, time.Since(start))
		}
		m.add("lookup_6250_us", micros(rank(took, 0.5)))
	}
	m.add("lookup_6250_allocs", r.allocations())
	return r.checkPrompts()
}

// allocations returns how many objects one lookup allocates.
func (r *resident) allocations() float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const n = 100
	for i := range n {
		r.ix.Match(r.prompts[i%len(r.prompts)].keys, r.depth)
	}
	runtime.ReadMemStats(&after)
	return float64((after.Mallocs - before.Mallocs) / n)
}

// readLines reads a word of every cache line.
func readLines(a []uint64) (sum uint64) {
	for i := 0; i < len(a); i += 8 {
		sum += a[i]
	}
	runtime.KeepAlive(sum)
	return sum
}

// tracePrompts times one lookup of each prompt of the trace as it arrives; what its engine then publishes is
// applied before the next one, with the clock stopped.
func (m *measurement) tracePrompts(r *resident) error {
	var ends float64
	for range m.plan.Runs {
		keys := r.comingKeys(m.plan.Turns)
		took := make([]time.Duration, 0, len(keys))
		for _, k := range keys {
			start := time.Now()
			r.ix.Match(k, r.depth)
			took = append(took, time.Since(start))
			ends += float64(differentEnds(r.depth))
			r.fleet.arrive()
			for r.fleet.step(&r.stepped) {
				r.ix.Apply(r.fleet.at.holder, &r.stepped)
			}
		}
		m.add("lookup_corpus_mean_us", micros(mean(took)))
		m.add("lookup_corpus_p99_us", micros(rank(took, 0.99)))
	}
	m.counts.ends = ends / float64(m.plan.Runs*m.plan.Turns)
	return nil
}

// comingKeys returns the keys of the next n turns' prompts.
func (r *resident) comingKeys(n int) [][]kv.Key {
	keys := make([][]kv.Key, 0, n)
	for t := r.fleet.turn + 1; len(keys) < n; t++ {
		if k := r.fleet.story.keys(t); len(k) > 0 {
			keys = append(keys, k)
		}
	}
	return keys
}

// differentEnds counts the depths that differ, 0 apart.
func differentEnds(depth []int32) int {
	d := slices.Clone(depth)
	slices.Sort(d)
	d = slices.Compact(d)
	if d[0] == 0 {
		return len(d) - 1
	}
	return len(d)
}

// rank sorts took and returns its quantile q.
func rank(took []time.Duration, q float64) time.Duration {
	slices.Sort(took)
	return took[min(int(q*float64(len(took))), len(took)-1)]
}

func mean(took []time.Duration) (sum time.Duration) {
	for _, d := range took {
		sum += d
	}
	return sum / time.Duration(len(took))
}

func micros(d time.Duration) float64 { return float64(d) / 1e3 }

func millis(d time.Duration) float64 { return float64(d) / 1e6 }
