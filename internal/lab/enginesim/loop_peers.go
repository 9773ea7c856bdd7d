package enginesim

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// execute starts the core's orders. Their goroutines end with the server.
func (r *rank) execute(ctx context.Context, orders []core.Order) {
	for _, o := range orders {
		o.RemoteIDs = slices.Clone(o.RemoteIDs)
		o.Blocks = slices.Clone(o.Blocks)
		switch o.Kind {
		case core.OrderRead:
			if r.cfg.MoRIIO != 0 {
				r.readInStep(ctx, o)
				continue
			}
			r.srv.spawn(func() { r.read(ctx, o) })
		case core.OrderNotify:
			r.srv.spawn(func() { r.decline(ctx, o) })
		case core.OrderHeartbeat:
			r.srv.spawn(func() { r.heartbeat(ctx, o) })
		case core.OrderRegister:
			if r.cfg.MoRIIO != 0 {
				r.srv.spawn(func() { r.tellBlocks(ctx, o) })
				continue
			}
			if o.Bootstrap != "" || r.cfg.Mooncake {
				r.srv.spawn(func() { r.askSource(ctx, o) })
				continue
			}
			r.srv.spawn(func() { r.register(ctx, o) })
		case core.OrderProbe:
			r.srv.spawn(func() { r.probe(ctx, o) })
		case core.OrderRefuse:
			r.srv.spawn(func() { r.refuse(ctx, o) })
		case core.OrderWrite:
			r.srv.spawn(func() { r.write(ctx, o) })
		case core.OrderPut:
			r.srv.spawn(func() { r.put(ctx, o) })
		case core.OrderDone:
			r.srv.spawn(func() { r.tellDone(ctx, o) })
		}
	}
}

// remote is a peer, with the number of ranks that the params claim.
type remote struct {
	peerKey
	claimed int
}

// peerOf returns the peer of an order.
func peerOf(o *core.Order) remote {
	return remote{
		peerKey{engine: o.Peer.EngineID, addr: net.JoinHostPort(o.Peer.Host, strconv.Itoa(o.Peer.Port))},
		o.Peer.Ranks,
	}
}

// read pulls the blocks of one prompt, which takes the link's time. Then it notifies the peer, then the core.
func (r *rank) read(ctx context.Context, o core.Order) {
	sleep(ctx, r.srv.o.TransferLatency)
	contents, err := r.pull(ctx, o)
	r.srv.cores.peers.garble(ctx, peerOf(&o), contents)
	if err == nil && r.srv.o.TransferRate > 0 {
		whole := time.Duration(float64(len(o.Blocks)) / r.srv.o.TransferRate * float64(time.Second))
		sleep(ctx, r.cfg.Slowed(whole, o.Peer.Ranks))
	}
	if err == nil {
		r.sendWord(ctx, o)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.core.Loaded(r.now(), o.RequestID, contents, err)
	r.poke()
}

// wordTime is how long a read's request waits for the notification to arrive.
const wordTime = time.Millisecond

// sendWord notifies the peer that a read is done. In NIXL, the read carries the notification, and the sender
// does not learn whether it arrives. So the request continues, even if the notification is still on its way.
func (r *rank) sendWord(ctx context.Context, o core.Order) {
	arrived := make(chan struct{})
	r.srv.spawn(func() {
		defer close(arrived)
		_ = r.notify(ctx, o)
	})
	t := time.NewTimer(wordTime)
	defer t.Stop()
	select {
	case <-arrived:
	case <-t.C:
	}
}

func (r *rank) pull(ctx context.Context, o core.Order) ([]uint64, error) {
	var contents []uint64
	r.srv.cores.peers.expect(ctx, peerOf(&o).peerKey, o.Registration)
	err := r.srv.cores.peers.ask(ctx, peerOf(&o), opRead, func(b []byte) []byte {
		for _, id := range o.Blocks {
			b = binary.BigEndian.AppendUint32(b, uint32(id))
		}
		return b
	}, func(answer []byte) error {
		if len(answer) != 8*len(o.Blocks) {
			return errors.New("short read")
		}
		contents = make([]uint64, len(o.Blocks))
		for i := range contents {
			contents[i] = binary.BigEndian.Uint64(answer[8*i:])
		}
		return nil
	})
	if err == nil {
		r.srv.cores.peers.misread(peerOf(&o).peerKey, contents)
	}
	return contents, err
}

// decline tells the prefill side that its blocks are not needed.
func (r *rank) decline(ctx context.Context, o core.Order) {
	if r.notify(ctx, o) != nil && ctx.Err() == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.core.NotifyFailed()
	}
}

// notify tells the prefill side to free its blocks. If the message is lost, the lease expires.
func (r *rank) notify(ctx context.Context, o core.Order) error {
	return r.srv.cores.peers.ask(ctx, peerOf(&o), opNotify,
		func(b []byte) []byte { return append(b, o.RemoteIDs[0]...) }, nil)
}

// heartbeat renews leases of the prefill side. If the message is lost, the leases expire.
func (r *rank) heartbeat(ctx context.Context, o core.Order) {
	_ = r.srv.cores.peers.ask(ctx, peerOf(&o), opHeartbeat, func(b []byte) []byte {
		for _, id := range o.RemoteIDs {
			b = binary.BigEndian.AppendUint16(b, uint16(len(id)))
			b = append(b, id...)
		}
		return b
	}, nil)
}

// answerPeer answers one request of the side channel. It appends the answer's body to dst and sets the
// status, which is the last byte of the given dst.
func (r *rank) answerPeer(dst []byte, op byte, body []byte) []byte {
	r.srv.waitEngineFrozen(r.srv.life.ctx.Done())
	r.mu.Lock()
	defer r.mu.Unlock()
	ok := true
	switch op {
	case opHello:
		dst, ok = r.welcome(dst, body)
	case opRead:
		dst, ok = r.readBlocks(dst, body)
	case opNotify:
		r.core.Notify(r.now(), string(body))
		r.poke()
	case opHeartbeat:
		r.core.Heartbeat(r.now(), splitIDs(body))
	case opProbe:
		dst = r.offer(dst, body)
	case opRegister, opWrite, opAsk, opRefuse:
		ok = r.pushed(op, body)
	case opBlocks, opPut, opDone:
		ok = r.hearWrite(op, body)
	default:
		ok = false
	}
	if !ok {
		dst[4] = statusNo
	}
	return dst
}

// registered returns the body behind the number of the memory's registration, and whether this is the present
// registration. It needs mu.
func (r *rank) registered(body []byte) ([]byte, bool) {
	if len(body) < 4 || binary.BigEndian.Uint32(body) != uint32(r.core.Registration()) {
		return nil, false
	}
	return body[4:], true
}

// readBlocks needs mu. Memory under an older registration cannot be read.
func (r *rank) readBlocks(dst, body []byte) ([]byte, bool) {
	body, same := r.registered(body)
	if !same {
		return dst, false
	}
	ids := make([]int, len(body)/4)
	for i := range ids {
		ids[i] = int(int32(binary.BigEndian.Uint32(body[4*i:])))
	}
	contents := r.core.ReadBlocks(ids)
	for _, c := range contents {
		dst = binary.BigEndian.AppendUint64(dst, c)
	}
	return dst, len(contents) == len(ids)
}

func splitIDs(body []byte) []string {
	var ids []string
	for len(body) >= 2 {
		n := int(binary.BigEndian.Uint16(body))
		body = body[2:]
		if n > len(body) {
			break
		}
		ids = append(ids, string(body[:n]))
		body = body[n:]
	}
	return ids
}
