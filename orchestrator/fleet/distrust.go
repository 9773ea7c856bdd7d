package fleet

import (
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// eras calls change, which moves processes into new eras. Then the pools forget the blocks that these
// processes have cached.
func (f *Fleet) eras(change func()) (changed []*Watcher) {
	before := map[*process]uint32{}
	all := f.keep.all()
	for _, w := range all {
		before[w.process] = w.process.epoch.Load()
	}
	changes := f.processes.changes.Load()
	change()
	for _, w := range all {
		if w.process.epoch.Load() == before[w.process] {
			continue
		}
		for _, m := range w.Members() {
			w.pool.Forget(m.ID)
		}
		w.showDistrust()
		changed = append(changed, w)
	}
	if f.processes.changes.Load() != changes && f.opt.DistrustChanged != nil {
		f.opt.DistrustChanged()
	}
	return changed
}

// Distrusted returns the engine processes that may have cached wrong blocks, as far as this router knows. A
// process can be in the list without being an engine of this router.
func (f *Fleet) Distrusted() []replica.Distrust { return f.processes.all(time.Now()) }

// HearDistrust adds findings of other routers, or of this router before its restart. All of found must be
// plausible.
func (f *Fleet) HearDistrust(found []replica.Distrust) {
	if len(found) == 0 {
		return
	}
	for _, w := range f.eras(func() { f.processes.hear(found, time.Now()) }) {
		w.log.Warn("an engine may have cached wrong blocks, as another router has found, or this one before its "+
			"restart; its requests are salted until it is restarted: restart it when you can",
			"replica", w.Name(), "era", w.process.epoch.Load())
	}
}

// DistrustChanges counts how often an engine process became known as distrusted, or as distrusted again.
func (f *Fleet) DistrustChanges() uint64 { return f.processes.changes.Load() }
