package enginesim

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// written is the message about blocks that P has written on D.
type written struct {
	ID       string // the request's id on D
	Blocks   []int  // ids on D
	Contents []uint64
	Why      string // not empty: why nothing will be written
}

// register tells the prefill side which blocks a request waits for. Only a broken path is an error here.
// Whatever fails on the prefill side, the request waits.
func (r *rank) register(ctx context.Context, o core.Order) {
	r.mu.Lock()
	from := core.Peer{
		EngineID: r.core.EngineID(), Host: r.cfg.Host, Port: r.cfg.Port, Ranks: r.cfg.TensorParallel,
	}
	r.mu.Unlock()
	err := r.tell(ctx, &o, opRegister, core.Registration{ID: o.RequestID, From: from, Blocks: o.Blocks})
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.core.Loaded(r.now(), o.RequestID, nil, err)
	r.poke()
}

// write copies this engine's blocks into those of the decode side, which takes the link's time. If that
// fails, only P's log has the error: the lease expires, and the request on D waits for ever.
func (r *rank) write(ctx context.Context, o core.Order) {
	sleep(ctx, r.srv.o.TransferLatency)
	if rate := r.srv.o.TransferRate; rate > 0 {
		whole := time.Duration(float64(len(o.Blocks)) / rate * float64(time.Second))
		sleep(ctx, r.cfg.Slowed(whole, o.Peer.Ranks))
	}
	r.mu.Lock()
	contents := r.core.ReadBlocks(o.Blocks)
	r.mu.Unlock()
	r.srv.cores.peers.garble(ctx, peerOf(&o), contents)
	if r.tell(ctx, &o, opWrite, written{ID: o.RemoteIDs[0], Blocks: o.To, Contents: contents}) != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.core.Pushed(r.now(), o.RequestID, len(o.Blocks))
	r.poke()
}

func (r *rank) tell(ctx context.Context, o *core.Order, op byte, what any) error {
	body, err := json.Marshal(what)
	if err != nil {
		return err
	}
	return r.srv.cores.peers.ask(ctx, peerOf(o), op, func(b []byte) []byte { return append(b, body...) }, nil)
}

// pushed handles a peer's message about a push. It needs mu.
func (r *rank) pushed(op byte, body []byte) bool {
	defer r.poke()
	if op == opRegister {
		var g core.Registration
		if json.Unmarshal(body, &g) != nil {
			return false
		}
		r.core.Register(r.now(), g)
		return true
	}
	if op == opAsk {
		var g core.Registration
		if json.Unmarshal(body, &g) != nil {
			return false
		}
		r.core.Ask(r.now(), g)
		return true
	}
	var w written
	if op == opRefuse {
		if json.Unmarshal(body, &w) != nil {
			return false
		}
		r.core.Loaded(r.now(), w.ID, nil, errors.New(w.Why))
		return true
	}
	return json.Unmarshal(body, &w) == nil && r.core.Write(r.now(), w.ID, w.Blocks, w.Contents)
}
