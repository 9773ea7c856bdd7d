package fleet

import (
	"reflect"
	"slices"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/replica"
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
	fresh, err := f.newWatchers(wanted)
	if err != nil {
		return err
	}
	f.pub.drained.Store(&drained)
	f.opt.Prefill.SetIndexing(indexing(cfg.Pools.Prefill, cfg.Tokenizer))
	f.opt.Decode.SetIndexing(indexing(cfg.Pools.Decode, cfg.Tokenizer))
	leaving := f.keep.leaving(wanted, fresh)
	end(leaving)
	f.keep.mu.Lock()
	defer f.keep.mu.Unlock()
	f.keep.aliases = nil
	for _, a := range cfg.Aliases {
		f.keep.aliases = append(f.keep.aliases, a.Name)
	}
	f.keep.removeLocked(leaving)
	for key, w := range f.keep.watchers {
		if s := wanted[key]; s != nil {
			w.configure(s)
		}
	}
	for _, w := range fresh {
		f.keep.watchers[w.key] = w
		f.beginSeries(w)
		if f.keep.ctx != nil {
			f.startLocked(w)
		}
	}
	f.keep.sortLocked(cfg, fresh)
	f.publishLocked()
	f.forgetProcessesLocked(leaving)
	return nil
}

// newWatchers makes the watchers of the wanted servers that are not watched yet.
func (f *Fleet) newWatchers(wanted map[serverKey]*settings) (fresh []*Watcher, err error) {
	for key, s := range wanted {
		if f.keep.watched(key) != nil {
			continue
		}
		w, err := newWatcher(f, key, s)
		if err != nil {
			return nil, err
		}
		fresh = append(fresh, w)
	}
	return fresh, nil
}

// forgetProcessesLocked forgets the processes of servers that have left. Their eras stay.
func (f *Fleet) forgetProcessesLocked(left []*Watcher) {
	for _, w := range left {
		if !f.keep.hasLocked(w.key.url) {
			f.processes.forget(w.key.url)
		}
	}
}

// indexing is the part of the configuration that concerns a pool's index.
func indexing(p config.Pool, t config.Tokenizer) roster.Indexing {
	mode := map[string]roster.Mode{
		config.IndexEvents: roster.Events, config.IndexApproximate: roster.Approximate, config.IndexOff: roster.Off,
	}[p.Index]
	return roster.Indexing{Mode: mode, ChunkBytes: t.ChunkBytes, CharsPerToken: t.CharsPerToken}
}

// wanted makes the settings of every server in cfg, by its key. A server whose settings have not changed
// keeps them. It reads the files that cfg names.
func (f *Fleet) wanted(cfg *config.Config) (map[serverKey]*settings, error) {
	pools := map[replica.Role]config.Pool{replica.Prefill: cfg.Pools.Prefill, replica.Decode: cfg.Pools.Decode}
	drained := map[string]bool{} // one mark is enough for a server in both pools: it is stopped as a whole
	for _, pool := range pools {
		for i := range pool.Replicas {
			if pool.Replicas[i].Drain {
				drained[pool.Replicas[i].URL] = true
			}
		}
	}
	out := make(map[serverKey]*settings, len(f.keep.all()))
	common := map[replica.Role]*poolSettings{}
	for _, role := range roles {
		pool := pools[role]
		var err error
		if common[role], err = f.poolSettings(cfg, role, pool); err != nil {
			return nil, err
		}
		for i := range pool.Replicas {
			r := &pool.Replicas[i]
			key := serverKey{role, r.URL}
			if out[key], err = f.settings(key, r, common[role], drained[r.URL]); err != nil {
				return nil, err
			}
		}
	}
	f.common = common
	return out, nil
}

// poolSettings returns what cfg says about all servers of a pool.
func (f *Fleet) poolSettings(cfg *config.Config, role replica.Role, pool config.Pool) (*poolSettings, error) {
	read, err := cfg.EngineTLS(pool)
	if err != nil {
		return nil, err
	}
	was := f.common[role]
	if was != nil && was.tls != nil && config.SameTLS(was.tls, read) {
		read = was.tls
	}
	pool.Replicas = nil
	is := &poolSettings{
		pool: pool, tls: read, probe: cfg.Timeouts.Probe, connect: cfg.Timeouts.Connect,
		failures: cfg.Health.Failures, pullPort: cfg.Connector.PullPort,
	}
	if role == replica.Prefill && f.pub.connector.Load().Bootstrap {
		is.bootstrapPort = cfg.Connector.BootstrapPort
	}
	if role == replica.Decode && f.pub.connector.Load().Writes {
		is.writtenAt = [2]int{cfg.Connector.HandshakePort, cfg.Connector.NotifyPort}
	}
	if was != nil && was.tls == is.tls && reflect.DeepEqual(was, is) {
		return was, nil
	}
	return is, nil
}

// settings returns the settings of one server: the present ones, if they are equal.
func (f *Fleet) settings(key serverKey, r *config.Replica, of *poolSettings, drain bool) (*settings, error) {
	if w := f.keep.watched(key); w != nil {
		if was := w.set.Load(); was.cfg == *r && was.poolSettings == of && was.drain == drain {
			return was, nil
		}
	}
	s := &settings{cfg: *r, id: r.ID(), drain: drain, poolSettings: of}
	_, err := engine.New(f.options(s))
	return s, err
}

// options is what the settings mean for the server's client.
func (f *Fleet) options(s *settings) engine.Options {
	return engine.Options{
		URL: s.cfg.URL, TLS: s.tls, APIKey: s.pool.APIKey.Reveal(), Dial: f.opt.Dial, DialTimeout: s.connect,
		Kept: f.opt.Kept,
	}
}

// SetDrained begins or ends draining the server of ws, which [Fleet.Find] found. When it returns, no plan
// uses a drained server any more. A drain: true in the file stays in force in any case. Only one call may
// run at a time, and none beside [Fleet.Apply].
func (f *Fleet) SetDrained(ws []*Watcher, on bool) {
	drains := slices.Clone(f.Drains())
	for _, w := range ws {
		drains = slices.DeleteFunc(drains, func(d Drained) bool { return d.URL == w.key.url })
		if on {
			drains = append(drains, Drained{URL: w.key.url, Name: w.set.Load().id})
		}
	}
	f.pub.drained.Store(&drains)
	f.keep.mu.Lock()
	defer f.keep.mu.Unlock()
	for _, w := range ws {
		was := w.set.Load()
		now := *was
		now.drain = on || was.cfg.Drain
		w.set.Store(&now)
		w.facts.remake()
		w.drain.changed(was.drain)
		w.life.wake()
	}
	f.publishLocked()
}

// RestoreDrains drains the servers again that an earlier process has drained. It returns the drains of
// servers that are not watched. It may not run beside [Fleet.Apply] or [Fleet.SetDrained].
func (f *Fleet) RestoreDrains(drains []Drained) (away []Drained) {
	for _, d := range drains {
		all := f.keep.all()
		at := slices.IndexFunc(all, func(w *Watcher) bool { return w.key.url == d.URL })
		if at < 0 {
			at = slices.IndexFunc(all, func(w *Watcher) bool { return w.set.Load().id == d.Name })
		}
		if at < 0 {
			away = append(away, d)
			continue
		}
		f.SetDrained(f.sameServer(all[at:at+1:at+1]), true)
	}
	return away
}

// carryDrains marks the servers that are drained on command in the settings of a new configuration, and
// returns the drains that stay. A server that has left the configuration is not drained any more.
func (f *Fleet) carryDrains(wanted map[serverKey]*settings) (carried []Drained) {
	for _, d := range f.Drains() {
		to, stays := follow(d, wanted)
		if !stays || slices.Contains(carried, to) {
			continue
		}
		carried = append(carried, to)
		for _, role := range roles {
			if s := wanted[serverKey{role, to.URL}]; s != nil && !s.drain {
				drains := *s
				drains.drain = true
				wanted[serverKey{role, to.URL}] = &drains
			}
		}
	}
	return carried
}
