package index

import (
	"fmt"
	"runtime"
	"syscall"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/kvevents"
)

// published is one batch of one engine, as bytes.
type published struct {
	holder          kv.Holder
	payload         []byte
	stored, removed int
}

// wave is a set of published batches, and the result of a lookup after all batches are applied.
type wave struct {
	all             []published
	arena           []byte // of all payloads
	stored, removed int

	keys   []kv.Key // of the prompt that came last
	holder kv.Holder
	depth  int // its blocks at holder
}

// add encodes a batch as vLLM 0.32 does.
func (w *wave) add(h kv.Holder, b *kv.Batch) {
	p := published{holder: h}
	p.stored, p.removed = count(b)
	w.arena, p.payload = encode(w.arena, b.Events)
	w.stored, w.removed = w.stored+p.stored, w.removed+p.removed
	w.all = append(w.all, p)
}

func newWave(changes int) *wave { return &wave{arena: make([]byte, 0, 100*changes)} }

// publish lets the fleet continue until changes blocks have been stored or removed.
func (r *resident) publish(changes int) *wave {
	w := newWave(changes)
	for w.stored+w.removed < changes {
		w.add(r.fleet.next(&r.stepped), &r.stepped)
	}
	w.holder, w.depth = r.fleet.at.holder, r.fleet.work.done
	w.keys = r.fleet.story.keys(r.fleet.turn)[:w.depth]
	return w
}

// publishApart invents prompts and answers of the trace's lengths that share no blocks, until they have the
// given number of blocks. First all are stored, then all are removed, the ends first.
func (r *resident) publishApart(blocks int) (come, gone *wave) {
	come, gone = newWave(blocks), newWave(blocks)
	for ; come.stored < blocks; r.made++ {
		h, of := kv.Holder(r.made%len(r.depth)), privateFrom+1<<28+segment(r.made)
		prompt := min(r.fleet.story.length(r.made), r.fleet.longest)
		n := prompt + r.fleet.story.answer(r.made)
		for at := 0; at < prompt; at += stepBlocks {
			r.publishChain(come, h, of, at, min(at+stepBlocks, prompt), stepBlocks)
		}
		for at := prompt; at < n; at += decodes {
			r.publishChain(come, h, of, at, min(at+decodes, n), 1)
		}
		for at := n; at > 0; at -= stepBlocks {
			r.publishRemovals(gone, h, of, max(at-stepBlocks, 0), at)
		}
		come.keys = chainKeys(of, n)
		come.holder = h
		come.depth = n
	}
	gone.keys, gone.holder = come.keys, come.holder
	return come, gone
}

// publishChain adds a batch with the blocks from (included) to (excluded) of a segment, several in each
// event.
func (r *resident) publishChain(w *wave, h kv.Holder, of segment, from, to, each int) {
	r.stepped.Events = r.stepped.Events[:0]
	for ; from < to; from += each {
		chainEvent(&r.stepped, h, of, from, min(from+each, to))
	}
	w.add(h, &r.stepped)
}

// publishRemovals adds a batch that removes those blocks, the last one first.
func (r *resident) publishRemovals(w *wave, h kv.Holder, of segment, from, to int) {
	r.stepped.Events = r.stepped.Events[:0]
	for at := to - 1; at >= from; at-- {
		e := nextEvent(&r.stepped, kv.Removed)
		e.Hashes = append(e.Hashes, hashOf(h, of, at))
	}
	w.add(h, &r.stepped)
}

// count returns the numbers of blocks that a batch stores and removes. Removals come first, one event each.
func count(b *kv.Batch) (stored, removed int) {
	for i := range b.Events {
		if b.Events[i].Kind == kv.Stored {
			stored += len(b.Events[i].Hashes)
		} else {
			removed++
		}
	}
	return stored, removed
}

// encode writes events as vLLM 0.32 does and returns the grown arena with the part that holds them.
func encode(arena []byte, events []kv.Event) (grown, payload []byte) {
	from := len(arena)
	grown = kvevents.Encode(arena, &kvevents.EncodeBatch{At: time.Now(), Events: events}, kvevents.Map)
	return grown, grown[from:len(grown):len(grown)]
}

// ingest times decoding and applying of published batches on one goroutine: the events of full engines, then
// stores alone, then removals alone.
func (m *measurement) ingest(r *resident) error {
	return m.rates(r, "ingest", m.plan.Changes, r.timeIngest)
}

// apply times the same without decoding.
func (m *measurement) apply(r *resident) error {
	return m.rates(r, "apply", m.plan.Changes/2, r.timeApply)
}

func (m *measurement) rates(r *resident, name string, changes int, time func(*wave) (pace, error)) error {
	for range m.plan.Runs {
		mixed := r.publish(changes)
		m.countBytes(mixed)
		all, err := time(mixed)
		if err != nil {
			return fmt.Errorf("engines: %w", err)
		}
		stores, removes := r.publishApart(changes / 4)
		come, err := time(stores)
		if err != nil {
			return fmt.Errorf("stores: %w", err)
		}
		gone, err := time(removes)
		if err != nil {
			return fmt.Errorf("removals: %w", err)
		}
		m.addRates(name, all, come, gone)
	}
	return nil
}

// addRates adds the rates per second. The headline is the smaller of the rates of all changes and of stores.
func (m *measurement) addRates(name string, all, come, gone pace) {
	m.add(name+"_mblocks_s", min(all.rate(), come.rate()))
	m.add(name+"_changes_mblocks_s", all.rate())
	m.add(name+"_stored_mblocks_s", come.rate())
	m.add(name+"_removed_mblocks_s", gone.rate())
	m.add(name+"_changes_wall_mblocks_s", float64(all.blocks)/float64(all.wall.Microseconds()))
	m.add(name+"_changes_cpu_mblocks_s", float64(all.blocks)/float64(all.cpu.Microseconds()))
}

// countBytes records the payload bytes per block.
func (m *measurement) countBytes(w *wave) {
	gone := float64(w.removed * removalBytes)
	m.counts.storedBytes = (float64(len(w.arena)) - gone) / float64(max(w.stored, 1))
	m.counts.removedBytes = gone / float64(max(w.removed, 1))
	m.counts.batchStored = float64(w.stored) / float64(len(w.all))
	m.counts.batchRemoved = float64(w.removed) / float64(len(w.all))
}

// removalBytes is the length of vLLM's event that removes a block.
var removalBytes = func() int {
	one := kv.Event{Kind: kv.Removed, Hashes: []kv.EngineHash{hashOf(0, 0, 0)}}
	_, two := encode(nil, []kv.Event{one, one})
	_, three := encode(nil, []kv.Event{one, one, one})
	return len(three) - len(two)
}()

// pace is the time for a number of blocks.
type pace struct {
	blocks int
	// Wall-clock time, and CPU time of the whole process, so that work on other goroutines counts.
	wall, cpu time.Duration
}

// rate returns million blocks a second, by the longer of the two times.
func (p pace) rate() float64 { return float64(p.blocks) / float64(max(p.wall, p.cpu).Microseconds()) }

// timeIngest decodes and applies.
func (r *resident) timeIngest(w *wave) (pace, error) {
	return r.clock(w, func(a *kv.Applied) error {
		for _, p := range w.all {
			b := &r.batches[p.holder]
			if s, err := kvevents.Decode(p.payload, b); err != nil || s != (kvevents.DecodeStats{}) {
				return fmt.Errorf("decode: %+v %w", s, err)
			}
			addTo(a, r.ix.Apply(p.holder, b))
		}
		return nil
	})
}

// timeApply applies batches that were decoded before.
func (r *resident) timeApply(w *wave) (pace, error) {
	decoded := make([]kv.Batch, len(w.all))
	for i, p := range w.all {
		if _, err := kvevents.Decode(p.payload, &decoded[i]); err != nil {
			return pace{}, err
		}
	}
	return r.clock(w, func(a *kv.Applied) error {
		for i := range decoded {
			addTo(a, r.ix.Apply(w.all[i].holder, &decoded[i]))
		}
		return nil
	})
}

// clock times work, which must apply the whole wave. The time ends when a lookup sees the last block.
func (r *resident) clock(w *wave, work func(*kv.Applied) error) (pace, error) {
	var got kv.Applied
	want := kv.Applied{Stored: w.stored, Removed: w.removed}
	runtime.GC()
	cpu, start := processorTime(), time.Now()
	err := work(&got)
	r.ix.Match(w.keys, r.depth)
	p := pace{want.Stored + want.Removed, time.Since(start), processorTime() - cpu}
	switch {
	case err != nil:
		return p, err
	case got != want:
		return p, fmt.Errorf("applied %+v, want %+v", got, want)
	case int(r.depth[w.holder]) != w.depth:
		return p, fmt.Errorf("a lookup sees %d blocks of the last prompt, want %d", r.depth[w.holder], w.depth)
	}
	return p, nil
}

func addTo(sum *kv.Applied, a kv.Applied) {
	sum.Stored += a.Stored
	sum.Removed += a.Removed
	sum.Orphans += a.Orphans
	sum.Skipped += a.Skipped
}

// processorTime is the CPU time that the process has used so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
