package enginesim

import (
	"context"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// moriioPatience is MoRI-IO's transfer_timeout: how long a step waits for its reads.
const moriioPatience = 30 * time.Second

// readInStep reads the blocks of one prompt while the engine stands still, as MoRI-IO does in READ mode.
// After moriioPatience the engine goes on without the blocks. It waits for ever for the handshake with a peer
// that it has not met.
func (r *rank) readInStep(ctx context.Context, o core.Order) {
	peers, boot := r.srv.cores.peers, r.srv.cores.peers.boots.Load()
	for !peers.met(peerOf(&o).peerKey) {
		_ = peers.ask(ctx, peerOf(&o), opHeartbeat, nil, nil) // it fails until the peer answers
		if ctx.Err() != nil || peers.boots.Load() != boot {
			return
		}
	}
	done := make(chan struct{})
	r.srv.spawn(func() {
		defer close(done)
		r.read(ctx, o)
	})
	timer := time.NewTimer(moriioPatience)
	defer timer.Stop()
	select {
	case <-done:
	case <-ctx.Done():
	case <-timer.C:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.core.GiveUpWaiting(o.RequestID)
	}
}

// met reports whether this process has shaken hands with the peer.
func (ps *peers) met(key peerKey) bool {
	p := ps.get(key)
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	return p.met.known && p.met.boot == ps.boots.Load()
}
