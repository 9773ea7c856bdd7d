package enginesim

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"tandem/internal/enginesim/core"
	"tandem/internal/kv"
	"tandem/internal/kvevents"
)

// rank is one engine core, with the goroutine that drives it in real time and the side channel that peers
// read it through.
type rank struct {
	srv   *Server
	n     int
	began time.Time
	wake  chan struct{} // capacity 1
	open  atomic.Int32  // requests in the core
	side  *side
	pub   atomic.Pointer[kvevents.Publisher] // nil without events, and while the process is down
	bind  kvevents.PublisherOptions          // where pub is bound, with real ports; written by start only
	cfg   core.Config                        // the core's, as it began

	mu    sync.Mutex // guards the following
	core  *core.Engine
	sinks map[string]target // by internal request id
}

// target is where a request's outputs go.
type target struct {
	sink *sink
	seq  int // which sequence of the HTTP request
}

// sink gathers the outputs of one HTTP request until its handler takes them.
type sink struct {
	ready chan struct{} // capacity 1: something is there

	mu   sync.Mutex // guards the following
	got  []delivery
	fail *problem // the core died or was restarted
}

// delivery is one output on its way to a handler.
type delivery struct {
	seq    int
	out    core.Output
	params []byte // kv_transfer_params as JSON, nil for none
}

func newSink() *sink { return &sink{ready: make(chan struct{}, 1)} }

func (s *sink) signal() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// take swaps the gathered outputs for an empty list.
func (s *sink) take(empty []delivery) ([]delivery, *problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.got
	s.got = empty[:0]
	return got, s.fail
}

func (r *rank) now() time.Duration { return time.Since(r.began) }

func (r *rank) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// add gives a request to the core; its outputs go to the sink.
func (r *rank) add(q *core.Request, to target) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.core.Add(r.now(), q); err != nil {
		return err
	}
	r.sinks[q.ID] = to
	r.open.Add(1)
	r.poke()
	return nil
}

// abort ends a request that is still in the core. Nothing is delivered for it afterwards.
func (r *rank) abort(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.sinks[id]; !ok {
		return
	}
	r.forget(id)
	r.core.Abort(r.now(), id)
	r.poke()
}

// forget needs mu.
func (r *rank) forget(id string) {
	delete(r.sinks, id)
	r.open.Add(-1)
}

// reject tells the core that the API layer refused a request with these params.
func (r *rank) reject(t *core.Transfer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.core.Reject(r.now(), t)
	r.poke()
}

func (r *rank) stats() core.Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.Stats()
}

func (r *rank) histograms() []core.Histogram {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.Histograms()
}

// drive steps the core until ctx ends. Events of a step go out before its outputs: a subscriber knows a block
// before the client has the answer.
func (r *rank) drive(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		r.srv.thawCore(ctx.Done())
		r.mu.Lock()
		now := r.now()
		step := r.core.Step(now)
		dead := r.core.Dead()
		r.mu.Unlock()
		if dead != nil {
			r.srv.die(dead)
		}
		sleep(ctx, step.Took)
		r.publish(step.Events)
		r.deliver(step.Outputs)
		r.execute(ctx, step.Orders)
		if step.Idle {
			r.rest(ctx, timer, step.Wake)
		}
	}
}

// rest waits until there is something to do, or until the time at which the core wants a step.
func (r *rank) rest(ctx context.Context, timer *time.Timer, until time.Duration) {
	var due <-chan time.Time
	if until > 0 {
		timer.Reset(max(until-r.now(), 0))
		due = timer.C
	}
	select {
	case <-r.wake:
	case <-due:
	case <-ctx.Done():
	}
}

func (r *rank) publish(events []kv.Event) {
	if len(events) == 0 {
		return
	}
	b := kvevents.EncodeBatch{At: r.srv.now(), Rank: r.n, Events: r.srv.o.Wrong.told(events)}
	if f := r.srv.o.OnEvents; f != nil {
		f(&b)
	}
	r.srv.faults.publish(r, &b)
}

// deliver hands outputs to their sinks, and wakes each sink once.
func (r *rank) deliver(outs []core.Output) {
	if len(outs) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range outs {
		o := &outs[i]
		to, ok := r.sinks[o.ID]
		if !ok {
			continue
		}
		if o.Finished {
			r.forget(o.ID)
		}
		d := delivery{seq: to.seq, out: *o}
		if o.Params != nil {
			d.params = r.srv.appendTransfer(nil, o.Params)
			d.out.Params = nil
		}
		to.sink.mu.Lock()
		to.sink.got = append(to.sink.got, d)
		to.sink.mu.Unlock()
		to.sink.signal()
	}
}

// failAll ends every request with p. It needs no lock.
func (r *rank) failAll(p *problem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, to := range r.sinks {
		r.forget(id)
		to.sink.mu.Lock()
		to.sink.fail = p
		to.sink.mu.Unlock()
		to.sink.signal()
	}
}

// restart is a new process in place of the old: requests are cut, the cache is empty, the engine has another
// id and its events begin at 0.
func (r *rank) restart() {
	r.failAll(restarted)
	r.mu.Lock()
	r.core.Restart()
	r.mu.Unlock()
	r.side.cut()
	if p := r.pub.Load(); p != nil {
		p.Restart()
	}
	r.poke()
}

// execute starts what the core wants done with its peers. The goroutines end with the server.
func (r *rank) execute(ctx context.Context, orders []core.Order) {
	for _, o := range orders {
		o.RemoteIDs = slices.Clone(o.RemoteIDs)
		o.Blocks = slices.Clone(o.Blocks)
		switch o.Kind {
		case core.OrderRead:
			r.srv.spawn(func() { r.read(ctx, o) })
		case core.OrderNotify:
			r.srv.spawn(func() { r.decline(ctx, o) })
		case core.OrderHeartbeat:
			r.srv.spawn(func() { r.heartbeat(ctx, o) })
		}
	}
}

// peerOf is whom o goes to.
func peerOf(o *core.Order) peerKey {
	return peerKey{engine: o.Peer.EngineID, addr: net.JoinHostPort(o.Peer.Host, strconv.Itoa(o.Peer.Port))}
}

// read pulls the blocks of one prompt, which takes the link's time, tells the peer and then the core.
func (r *rank) read(ctx context.Context, o core.Order) {
	sleep(ctx, r.srv.o.TransferLatency)
	contents, err := r.pull(ctx, o)
	r.srv.peers.garble(ctx, peerOf(&o), contents)
	if err == nil && r.srv.o.TransferRate > 0 {
		sleep(ctx, time.Duration(float64(len(o.Blocks))/r.srv.o.TransferRate*float64(time.Second)))
	}
	if err == nil {
		r.sendWord(ctx, o)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.core.Loaded(r.now(), o.RequestID, contents, err)
	r.poke()
}

// wordTime is what the word of a read has to arrive before its request goes on.
const wordTime = time.Millisecond

// sendWord tells the peer of a read that is done. In NIXL the word goes with the read: to its sender it is
// sent when it has left, whether it arrives or not. So a request goes on without it where it stays under way.
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
	err := r.srv.peers.ask(ctx, peerOf(&o), opRead, func(b []byte) []byte {
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
	return contents, err
}

// decline tells the prefill side that its blocks are not wanted.
func (r *rank) decline(ctx context.Context, o core.Order) {
	if r.notify(ctx, o) != nil && ctx.Err() == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.core.NotifyFailed()
	}
}

// notify tells the prefill side that its blocks can go. Unheard, their lease frees them.
func (r *rank) notify(ctx context.Context, o core.Order) error {
	return r.srv.peers.ask(ctx, peerOf(&o), opNotify,
		func(b []byte) []byte { return append(b, o.RemoteIDs[0]...) }, nil)
}

// heartbeat renews leases of the prefill side. Unheard, they run out.
func (r *rank) heartbeat(ctx context.Context, o core.Order) {
	_ = r.srv.peers.ask(ctx, peerOf(&o), opHeartbeat, func(b []byte) []byte {
		for _, id := range o.RemoteIDs {
			b = binary.BigEndian.AppendUint16(b, uint16(len(id)))
			b = append(b, id...)
		}
		return b
	}, nil)
}

// answerPeer answers one question of the side channel: the status byte and the body go behind dst, whose last
// byte is the status.
func (r *rank) answerPeer(dst []byte, op byte, body []byte) []byte {
	r.srv.thawCore(r.srv.ctx.Done())
	r.mu.Lock()
	defer r.mu.Unlock()
	ok := true
	switch op {
	case opHello:
		ok = string(body) == r.core.EngineID()
		dst = append(dst, r.srv.url...)
	case opRead:
		dst, ok = r.readBlocks(dst, body)
	case opNotify:
		r.core.Notify(r.now(), string(body))
		r.poke()
	case opHeartbeat:
		r.core.Heartbeat(r.now(), splitIDs(body))
	default:
		ok = false
	}
	if !ok {
		dst[4] = 1
	}
	return dst
}

// readBlocks needs mu.
func (r *rank) readBlocks(dst, body []byte) ([]byte, bool) {
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
