package enginesim

import (
	"context"
	"encoding/json"
	"slices"
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

// moriioHandshakes are the handshakes that a prefill engine in WRITE mode has begun. They have no time limit,
// and one waits for the other. Only the goroutine that drives the rank uses them.
type moriioHandshakes struct {
	boot int64
	with []remote
}

// meetInStep shakes hands with the decode engines that this step's prefills name, while the engine stands
// still. For each layer of the model, and once more after the step, it waits for moriioPatience.
func (r *rank) meetInStep(ctx context.Context, orders []core.Order) {
	h, peers := &r.handshakes, r.srv.cores.peers
	if boot := peers.boots.Load(); h.boot != boot {
		*h = moriioHandshakes{boot: boot}
	}
	patience := 2 * time.Duration(r.cfg.Layers) * moriioPatience
	for _, o := range orders {
		if o.Kind != core.OrderMeet {
			continue
		}
		to := peerOf(&o)
		if !peers.met(to.peerKey) && !slices.Contains(h.with, to) {
			h.with = append(h.with, to)
		}
		bounded, cancel := context.WithTimeout(ctx, patience)
		for len(h.with) > 0 && bounded.Err() == nil && peers.boots.Load() == h.boot && !peers.met(to.peerKey) {
			first := h.with[0]
			if peers.met(first.peerKey) || peers.ask(bounded, first, opHeartbeat, nil, nil) == nil {
				h.with = h.with[1:]
			}
		}
		cancel()
		if peers.boots.Load() == h.boot && peers.met(to.peerKey) {
			r.mu.Lock()
			r.core.Met(r.now(), o.Peer)
			r.mu.Unlock()
		}
	}
}

// tellBlocks tells P where to write. ZMQ keeps a message for as long as P is away, and gives it to P's next
// process.
func (r *rank) tellBlocks(ctx context.Context, o core.Order) {
	r.tellSometime(ctx, &o, opBlocks,
		core.Registration{Transfer: o.TransferID, Blocks: o.Blocks, Rank: r.cfg.Rank})
}

func (r *rank) tellDone(ctx context.Context, o core.Order) {
	r.tellSometime(ctx, &o, opDone, o.TransferID)
}

// tellSometime tells a peer something until the message is there, or until this process ends.
func (r *rank) tellSometime(ctx context.Context, o *core.Order, op byte, what any) {
	peers := r.srv.cores.peers
	for boot := peers.boots.Load(); ctx.Err() == nil && peers.boots.Load() == boot; {
		if r.tell(ctx, o, op, what) == nil {
			return
		}
		sleep(ctx, 100*time.Millisecond)
	}
}

// put writes blocks into those of the decode engine, which takes the link's time. A write that fails takes
// all of moriioPatience, and only P's log has the error.
func (r *rank) put(ctx context.Context, o core.Order) {
	sleep(ctx, r.srv.o.TransferLatency)
	r.mu.Lock()
	contents := r.core.ReadBlocks(o.Blocks)
	r.mu.Unlock()
	r.srv.cores.peers.garble(ctx, peerOf(&o), contents)
	err := r.tell(ctx, &o, opPut, written{Blocks: o.To, Contents: contents})
	if err != nil {
		sleep(ctx, moriioPatience)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.core.Wrote(o.TransferID, err == nil)
	r.poke()
}

// hearWrite handles a peer's message in WRITE mode. It needs mu.
func (r *rank) hearWrite(op byte, body []byte) bool {
	defer r.poke()
	switch op {
	case opBlocks:
		var g core.Registration
		if json.Unmarshal(body, &g) != nil {
			return false
		}
		r.core.HearBlocks(r.now(), g)
	case opDone:
		var id string
		if json.Unmarshal(body, &id) != nil {
			return false
		}
		r.core.HearDone(id)
	case opPut:
		var w written
		body, same := r.registered(body)
		return same && json.Unmarshal(body, &w) == nil && r.core.Put(w.Blocks, w.Contents)
	}
	return true
}
