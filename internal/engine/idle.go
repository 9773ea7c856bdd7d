package engine

import (
	"crypto/tls"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// idle keeps connections between requests, the last one used on top: under little load the others grow old
// and go.
type idle struct {
	max  int           // immutable
	keep time.Duration // immutable
	all  *Kept         // immutable; nil: no bound

	closed  atomic.Bool // written under mu
	retired atomic.Bool // nothing is kept; written under mu

	mu    sync.Mutex // guards the following
	spoke time.Time  // when the engine last sent something unasked
	conns []*conn    // oldest first
	timer *time.Timer
	armed bool
}

// get returns an idle connection, or nil. The connection was made by trust, and its next answer will name its
// question if the request is for path. However short it was idle, [conn.send] looks at it before it writes:
// bytes that an engine sent beyond its answer would be taken for the answer to the next request.
func (p *idle) get(trust *tls.Config, path string) *conn {
	for {
		c, age := p.pop(path)
		if c == nil {
			return nil
		}
		if c.tls == trust && age < p.keep {
			return c
		}
		c.close()
	}
}

// pop takes the newest connection that names its answers to path.
func (p *idle) pop(path string) (*conn, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range slices.Backward(p.conns) {
		if c.names.here(path) {
			p.conns = slices.Delete(p.conns, i, i+1)
			p.all.leave(1)
			return c, time.Since(c.since)
		}
	}
	return nil, 0
}

// put keeps c for the next request, or closes it when there is no room.
func (p *idle) put(c *conn) {
	c.since = time.Now()
	if !p.push(c) {
		c.close()
	}
}

func (p *idle) push(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Load() || p.retired.Load() || len(p.conns) >= p.max || c.since.Sub(p.spoke) < distrusted ||
		!p.all.take() {
		return false
	}
	p.conns = append(p.conns, c)
	if !p.armed {
		p.arm(p.keep)
	}
	return true
}

// arm has reap called after d. p.mu is held.
func (p *idle) arm(d time.Duration) {
	p.armed = true
	if p.timer == nil {
		p.timer = time.AfterFunc(d, p.reap)
		return
	}
	p.timer.Reset(d)
}

// reap closes what waited too long. It runs from the timer.
func (p *idle) reap() {
	for _, c := range p.takeOld() {
		c.close()
	}
}

func (p *idle) takeOld() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = false
	n, now := 0, time.Now()
	for n < len(p.conns) && now.Sub(p.conns[n].since) >= p.keep {
		n++
	}
	old := append([]*conn(nil), p.conns[:n]...)
	p.conns = append(p.conns[:0], p.conns[n:]...)
	clear(p.conns[len(p.conns) : len(p.conns)+n])
	p.all.leave(n)
	if len(p.conns) > 0 && !p.closed.Load() {
		p.arm(p.keep - now.Sub(p.conns[0].since))
	}
	return old
}

func (p *idle) close() {
	for _, c := range p.takeAll() {
		c.close()
	}
}

func (p *idle) takeAll() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed.Store(true)
	return p.dropLocked()
}

// retire closes the kept connections, and keeps none from now on.
func (p *idle) retire() {
	p.mu.Lock()
	p.retired.Store(true)
	conns := p.dropLocked()
	p.mu.Unlock()
	for _, c := range conns {
		c.close()
	}
}

// distrusted is the time for which no connection to an engine is kept after it sent something unasked.
const distrusted = 10 * time.Minute

// distrust closes the kept connections, and keeps none for a while: the engine has sent something unasked.
func (p *idle) distrust() {
	p.mu.Lock()
	p.spoke = time.Now()
	p.mu.Unlock()
	p.empty()
}

// empty closes the kept connections.
func (p *idle) empty() {
	p.mu.Lock()
	conns := p.dropLocked()
	p.mu.Unlock()
	for _, c := range conns {
		c.close()
	}
}

// dropLocked removes and returns the kept connections.
func (p *idle) dropLocked() []*conn {
	p.armed = false
	if p.timer != nil {
		p.timer.Stop()
	}
	conns := p.conns
	p.conns = nil
	p.all.leave(len(conns))
	return conns
}

// Kept bounds how many connections several clients keep together for later requests. Where the traffic moves
// from engine to engine, each client has as many as its engine once needed. Safe for concurrent use.
type Kept struct {
	most int64
	now  atomic.Int64
}

// NewKept makes a bound of so many connections; 0 is no bound.
func NewKept(most int) *Kept {
	if most <= 0 {
		return nil
	}
	return &Kept{most: int64(most)}
}

func (k *Kept) take() bool {
	if k == nil {
		return true
	}
	if k.now.Add(1) > k.most {
		k.now.Add(-1)
		return false
	}
	return true
}

func (k *Kept) leave(n int) {
	if k != nil {
		k.now.Add(-int64(n))
	}
}
