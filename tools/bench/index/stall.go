package index

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// Phases of a stall run; a lookup that touches two belongs to the later.
const (
	warming int32 = iota
	quiet
	leaving
	phases
)

// stall measures the longest lookup while a holder with many blocks leaves: forgotten at once, and by an
// event that says all is cleared. How long the machine itself interrupts a reader is measured right after, in
// a window as long, in which nothing happens.
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

// fillHolder has holder 0 have so many blocks that nobody else has.
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
	return fmt.Errorf("holder 0 has not the %d blocks stored", blocks)
}

// watch has another goroutine look prompts up without a pause while leave runs and then as long in quiet, and
// returns the longest lookup of each phase.
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
