package fleet

import (
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/roster"
)

// Apply makes the watchers those of cfg. Servers that stay keep their state, blocks, streams and connections
// whatever is said of them now; requests on servers that go run to their end. A replica that has moved to
// another address is served by the old one until the new one has joined, and a pool that is replaced whole by
// those before until the first of the new ones has.
func (f *Fleet) Apply(cfg *config.Config) error {
	wanted, err := f.wanted(cfg)
	if err != nil {
		return err
	}
	drained := f.carryDrains(wanted)
	var fresh []*Watcher
	for key, s := range wanted {
		if f.keep.watched(key) == nil {
			w, err := f.newWatcher(key, s)
			if err != nil {
				return err
			}
			fresh = append(fresh, w)
		}
	}
	f.pub.drained.Store(&drained)
	f.opt.Prefill.SetIndexing(indexing(cfg.Pools.Prefill, cfg.Tokenizer))
	f.opt.Decode.SetIndexing(indexing(cfg.Pools.Decode, cfg.Tokenizer))
	leaving := f.keep.leaving(wanted, fresh)
	end(leaving)
	f.keep.mu.Lock()
	f.keep.removeLocked(leaving)
	for key, w := range f.keep.watchers {
		if s := wanted[key]; s != nil {
			w.configure(s)
		}
	}
	for _, w := range fresh {
		f.keep.watchers[w.key] = w
		if f.keep.ctx != nil {
			f.startLocked(w)
		}
	}
	f.publishLocked()
	f.keep.mu.Unlock()
	f.forgetProcesses()
	return nil
}

// forgetProcesses drops what is remembered of processes that nobody watches, where it is not worth it.
func (f *Fleet) forgetProcesses() {
	urls := map[string]bool{}
	for _, w := range f.keep.all() {
		urls[w.key.url] = true
	}
	f.processes.keep(urls)
}

// indexing is what of the configuration concerns a pool's index.
func indexing(p config.Pool, t config.Tokenizer) roster.Indexing {
	mode := map[string]roster.Mode{
		config.IndexEvents: roster.Events, config.IndexApproximate: roster.Approximate, config.IndexOff: roster.Off,
	}[p.Index]
	return roster.Indexing{Mode: mode, ChunkBytes: t.ChunkBytes, CharsPerToken: t.CharsPerToken}
}
