package fleet

import (
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/roster"
)

// Apply makes the watchers match cfg. Servers that stay keep their state, blocks, streams and connections,
// even if cfg changes their settings. Requests on servers that go run to their end. If a replica has moved
// to another address, the old address serves until the new one has joined. If a whole pool is replaced, the
// old replicas serve until the first new one has joined.
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

// forgetProcesses forgets the processes that no watcher watches. Their eras stay.
func (f *Fleet) forgetProcesses() {
	urls := map[string]bool{}
	for _, w := range f.keep.all() {
		urls[w.key.url] = true
	}
	f.processes.keep(urls)
}

// indexing is the part of the configuration that concerns a pool's index.
func indexing(p config.Pool, t config.Tokenizer) roster.Indexing {
	mode := map[string]roster.Mode{
		config.IndexEvents: roster.Events, config.IndexApproximate: roster.Approximate, config.IndexOff: roster.Off,
	}[p.Index]
	return roster.Indexing{Mode: mode, ChunkBytes: t.ChunkBytes, CharsPerToken: t.CharsPerToken}
}
