package index

import (
	"fmt"
	"runtime"
	"syscall"
	"time"

	"tandem/internal/kv"
	"tandem/internal/kvevents"
)

// published is one batch of one engine, as bytes.
type published struct {
	holder          kv.Holder
	payload         []byte
	stored, removed int
}

// publish has the fleet go on until so many blocks have changed, and returns what it published as it is on the wire.
func (r *resident) publish(changes int) (all []published) {
	arena := make([]byte, 0, 100*changes)
	for done := 0; done < changes; {
		h := r.fleet.next(&r.stepped)
		p := published{holder: h}
		p.stored, p.removed = count(&r.stepped)
		arena, p.payload = encode(arena, r.stepped.Events)
		done += p.stored + p.removed
		all = append(all, p)
	}
	return all
}

// publishApart is publish with all removals before all stores, so that each can be timed alone.
func (r *resident) publishApart(changes int) (removes, stores []published) {
	arena := make([]byte, 0, 100*changes)
	for done := 0; done < changes; {
		h := r.fleet.next(&r.stepped)
		stored, removed := count(&r.stepped)
		events := r.stepped.Events
		var gone, come []byte
		if removed > 0 {
			arena, gone = encode(arena, events[:removed])
			removes = append(removes, published{h, gone, 0, removed})
		}
		arena, come = encode(arena, events[removed:])
		stores = append(stores, published{h, come, stored, 0})
		done += stored + removed
	}
	return removes, stores
}

// count returns the blocks that a batch stores and those that it removes, which come first, an event each.
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

// ingest times, on one goroutine, what was published from bytes to applied, at a size that stays: as engines send it, and stores alone behind removals alone.
func (m *measurement) ingest(r *resident) error {
	for range m.plan.Runs {
		mixed := r.publish(m.plan.Changes)
		all, err := r.timeIngest(mixed)
		if err != nil {
			return err
		}
		m.countBytes(mixed)
		removes, stores := r.publishApart(m.plan.Changes)
		gone, err := r.timeIngest(removes)
		if err != nil {
			return err
		}
		come, err := r.timeIngest(stores)
		if err != nil {
			return err
		}
		m.addRates("ingest", all, come, gone)
	}
	return nil
}

// addRates adds what block changes and stores alone make a second; the headline is the smaller.
func (m *measurement) addRates(name string, all, come, gone pace) {
	m.add(name+"_mblocks_s", min(all.rate(), come.rate()))
	m.add(name+"_changes_mblocks_s", all.rate())
	m.add(name+"_stored_mblocks_s", come.rate())
	m.add(name+"_removed_mblocks_s", gone.rate())
	m.add(name+"_changes_wall_mblocks_s", float64(all.blocks)/float64(all.wall.Microseconds()))
}

// countBytes notes what a block takes on the wire.
func (m *measurement) countBytes(mixed []published) {
	var stored, removed, storedBytes, removedBytes float64
	for _, p := range mixed {
		stored += float64(p.stored)
		removed += float64(p.removed)
		size := float64(len(p.payload))
		gone := float64(p.removed * removalBytes)
		storedBytes += size - gone
		removedBytes += gone
	}
	m.counts.storedBytes, m.counts.removedBytes = storedBytes/max(stored, 1), removedBytes/max(removed, 1)
	m.counts.batchStored, m.counts.batchRemoved = stored/float64(len(mixed)), removed/float64(len(mixed))
}

// removalBytes is what vLLM's event takes that removes a block.
var removalBytes = func() int {
	one := kv.Event{Kind: kv.Removed, Hashes: []kv.EngineHash{hashOf(0, 0, 0)}}
	_, two := encode(nil, []kv.Event{one, one})
	_, three := encode(nil, []kv.Event{one, one, one})
	return len(three) - len(two)
}()

// pace is how long so many blocks took.
type pace struct {
	blocks    int
	wall, cpu time.Duration // by the clock, and of all processors for the whole process, so that work left to others counts
}

// rate returns million blocks a second, by whichever of the two times is longer.
func (p pace) rate() float64 { return float64(p.blocks) / float64(max(p.wall, p.cpu).Microseconds()) }

// timeIngest decodes and applies. The clock stops when a lookup sees the last block.
func (r *resident) timeIngest(all []published) (pace, error) {
	want := kv.Applied{}
	for _, p := range all {
		want.Stored += p.stored
		want.Removed += p.removed
	}
	return r.clock(want, func(a *kv.Applied) error {
		for _, p := range all {
			b := &r.batches[p.holder]
			if s, err := kvevents.Decode(p.payload, b); err != nil || s != (kvevents.DecodeStats{}) {
				return fmt.Errorf("decode: %+v %w", s, err)
			}
			addTo(a, r.ix.Apply(p.holder, b))
		}
		return nil
	})
}

// clock times work, which must do what is wanted.
func (r *resident) clock(want kv.Applied, work func(*kv.Applied) error) (pace, error) {
	var got kv.Applied
	keys := r.fleet.placedKeys()
	runtime.GC()
	cpu, start := processorTime(), time.Now()
	err := work(&got)
	r.ix.Match(keys, r.depth)
	p := pace{want.Stored + want.Removed, time.Since(start), processorTime() - cpu}
	if err != nil {
		return p, err
	}
	if got != want {
		return p, fmt.Errorf("applied %+v, want %+v", got, want)
	}
	if h := r.fleet.at.holder; want.Stored > 0 && int(r.depth[h]) < len(keys) {
		return p, fmt.Errorf("a lookup sees %d of the %d blocks that were stored last", r.depth[h], len(keys))
	}
	return p, nil
}

// placedKeys returns the keys of the blocks of the turn's prompt that its engine has.
func (f *fleet) placedKeys() []kv.Key { return f.story.keys(f.turn)[:f.work.done] }

func addTo(sum *kv.Applied, a kv.Applied) {
	sum.Stored += a.Stored
	sum.Removed += a.Removed
	sum.Orphans += a.Orphans
	sum.Skipped += a.Skipped
}

// processorTime is what the process has used so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ready is a batch that has been decoded.
type ready struct {
	holder kv.Holder
	batch  kv.Batch
}

// apply times the same without the decoding.
func (m *measurement) apply(r *resident) error {
	for range m.plan.Runs {
		all, err := r.timeApply(r.publish(m.plan.Changes / 2))
		if err != nil {
			return err
		}
		removes, stores := r.publishApart(m.plan.Changes / 2)
		gone, err := r.timeApply(removes)
		if err != nil {
			return err
		}
		come, err := r.timeApply(stores)
		if err != nil {
			return err
		}
		m.addRates("apply", all, come, gone)
	}
	return nil
}

func (r *resident) timeApply(all []published) (pace, error) {
	want := kv.Applied{}
	decoded := make([]ready, len(all))
	for i, p := range all {
		want.Stored += p.stored
		want.Removed += p.removed
		decoded[i].holder = p.holder
		if _, err := kvevents.Decode(p.payload, &decoded[i].batch); err != nil {
			return pace{}, err
		}
	}
	return r.clock(want, func(a *kv.Applied) error {
		for i := range decoded {
			addTo(a, r.ix.Apply(decoded[i].holder, &decoded[i].batch))
		}
		return nil
	})
}
