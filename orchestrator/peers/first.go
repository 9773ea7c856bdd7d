package peers

import (
	"context"
	"sync"
	"time"
)

// firstTime is the first time of an event, or of the knowledge that it will not happen. Safe for concurrent
// use.
type firstTime struct {
	done chan struct{} // closed then
	once sync.Once
}

func newFirst() *firstTime { return &firstTime{done: make(chan struct{})} }

func (f *firstTime) is() { f.once.Do(func() { close(f.done) }) }

// WaitForFirst waits until every router has been asked once, and until routers at a server have had the time
// to report everything. After that, this router knows what other routers know about engines, before it uses
// an engine. WaitForFirst gives up when ctx ends, or when a router counts as silent. [Peers.Run] must have
// been called.
func (ps *Peers) WaitForFirst(ctx context.Context) {
	ps.mu.Lock()
	var waiting []*firstTime
	patience := time.Duration(0)
	for _, p := range ps.all {
		waiting, patience = append(waiting, p.first), max(patience, p.patience)
	}
	if s := ps.store; s != nil {
		waiting, patience = append(waiting, s.health.first), max(patience, s.patience)
	}
	ps.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, f := range waiting {
		select {
		case <-f.done:
		case <-limited.Done():
		}
	}
}
