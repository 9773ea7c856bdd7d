package index

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// longPrompts times lookups of prompts that 8 holders have to different depths. CPU caches are cold, because
// other memory is read between lookups. Prompts come in random order, so that no branch predictor learns it.
func (m *measurement) longPrompts(r *resident) error {
	scrub := make([]uint64, m.plan.Scrub/8)
	weave(scrub) // pages that were never written are all the same page of zeros
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

// tracePrompts times one lookup of each prompt of the trace. Between two lookups the events of the prompt's
// engine are applied, and this time does not count.
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

// Phases of a stall run. A lookup that runs in two phases belongs to the later one.
const (
	warming int32 = iota
	quiet
	leaving
	phases
)

// stall measures the longest lookup while a holder with many blocks is removed: by Forget, and by a Cleared
// event. Right after, it measures for the same time without a removal, to see how long the machine itself
// interrupts a reader.
func (m *measurement) stall(r *resident) error {
	keys := r.comingKeys(m.plan.Turns)
	r.ix.Forget(0)
	for run := range m.plan.ClearRuns {
		worst, still := time.Duration(0), time.Duration(0)
		for _, leave := range []func(){
			func() { r.ix.Forget(0) },
			func() { r.ix.Apply(0, &kv.Batch{Events: []kv.Event{{Kind: kv.Cleared, Group: kv.NoGroup}}}) },
		} {
			if err := r.fillHolder(run, m.plan.Clearing); err != nil {
				return err
			}
			longest, took := r.watch(keys, leave)
			worst, still = max(worst, longest[leaving]), max(still, longest[quiet])
			m.add("clear_took_ms", millis(took))
		}
		r.ix.Forget(0)
		m.add("clear_reader_stall_ms", millis(worst))
		m.add("clear_reader_quiet_ms", millis(still))
	}
	return nil
}

// fillHolder gives holder 0 this number of blocks, which no other holder has.
func (r *resident) fillHolder(run, blocks int) error {
	stored := 0
	for i := 0; stored < blocks; i++ {
		of := privateFrom + segment(1<<24+run<<20+i)
		stored += r.storeChain(0, of, min(chainBlocks, blocks-stored))
	}
	for _, h := range r.ix.Stats().Holders {
		if h.Holder == 0 && h.Blocks == blocks {
			return nil
		}
	}
	return fmt.Errorf("holder 0 does not have the %d stored blocks", blocks)
}

// watch looks prompts up on another goroutine without a pause: while leave runs, and then for the same time
// without leave. It returns the longest lookup of each phase.
func (r *resident) watch(keys [][]kv.Key, leave func()) (longest [phases]time.Duration, took time.Duration) {
	var phase, stop atomic.Int32
	var reader sync.WaitGroup
	begun := make(chan struct{})
	reader.Go(func() {
		depth := make([]int32, len(r.depth))
		for i := 0; stop.Load() == 0; i++ {
			before, start := phase.Load(), time.Now()
			r.ix.Match(keys[i%len(keys)], depth)
			d := time.Since(start)
			at := max(before, phase.Load())
			longest[at] = max(longest[at], d)
			if i == len(keys) {
				close(begun)
			}
		}
	})
	<-begun
	phase.Store(leaving)
	start := time.Now()
	leave()
	took = time.Since(start)
	phase.Store(quiet)
	time.Sleep(took)
	stop.Store(1)
	reader.Wait()
	return longest, took
}
