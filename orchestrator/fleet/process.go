package fleet

import (
	"sync"
	"sync/atomic"
)

// process is what is remembered of the engine process behind a server's address for as long as it lives:
// whether its cache may hold wrong blocks. That is no setting and no state of a watcher. It outlives reloads,
// and the server's leaving the configuration and coming back; the watchers of a server that stands in both
// pools share it. Safe for concurrent use.
type process struct {
	epoch atomic.Uint32 // see [salted]; 0 while the cache is trusted

	mu      sync.Mutex // guards the following
	started float64    // by the newest look, 0 unknown
}

// processes are by the URL of their server.
type processes struct {
	mu sync.Mutex // guards by
	by map[string]*process
}

// of returns what is remembered of the process at url.
func (ps *processes) of(url string) *process {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.by == nil {
		ps.by = map[string]*process{}
	}
	p := ps.by[url]
	if p == nil {
		p = &process{}
		ps.by[url] = p
	}
	return p
}

// note notes which process p is now by its start, and reports whether that ended a distrust: another process
// than before has an empty cache. One that is seen for the first time may be known by another address;
// engines tell nothing better than the hundredth of a second at which they started, so who started with one
// that is distrusted is distrusted with it, which costs a cache at worst.
func (ps *processes) note(p *process, started float64) (trustedAgain bool) {
	if started == 0 {
		return false
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	was := p.swap(started)
	switch {
	case was == started:
		return false
	case was != 0:
		return p.epoch.Swap(0) > 0
	}
	for _, other := range ps.by {
		if epoch := other.epoch.Load(); other != p && epoch > 0 && other.since() == started {
			p.epoch.Store(max(epoch, p.epoch.Load()))
		}
	}
	return false
}

// swap sets the start and returns what it was.
func (p *process) swap(started float64) (was float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, p.started = p.started, started
	return was
}

func (p *process) since() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.started
}

// keep forgets all processes but those at urls and those that are distrusted.
func (ps *processes) keep(urls map[string]bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for url, p := range ps.by {
		if !urls[url] && p.epoch.Load() == 0 {
			delete(ps.by, url)
		}
	}
}
