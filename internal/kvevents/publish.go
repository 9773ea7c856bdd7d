package kvevents

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pebbe/zmq4"
)

// maxPaused is how many batches Pause holds back, as many as vLLM queues. Later batches are in the replay
// buffer only.
const maxPaused = 100_000

// Publisher publishes batches like vLLM's ZmqEventPublisher: a PUB socket for live batches, a ROUTER that
// answers replay requests from a bounded buffer. All methods may be called from any goroutine.
type Publisher struct {
	o        PublisherOptions
	endpoint string // as bound
	replay   string
	done     chan struct{} // closed when serve has left

	// Owned by serve.
	router     *zmq4.Socket // nil without replay
	wake       *zmq4.Socket
	unanswered [][]byte // a replay request that a pause interrupted

	mu     sync.Mutex // guards the following
	pub    *zmq4.Socket
	nudge  *zmq4.Socket // far end of wake
	buffer stepBuffer
	closed bool
}

// stepBuffer has the published batches that can be replayed, and the batches that are not sent yet. The
// publisher's mutex guards it.
type stepBuffer struct {
	seq    uint64
	steps  []step // replay buffer, oldest first
	held   []step // not sent yet, while paused
	paused bool
	drop   int
}

type step = message

// NewPublisher binds and starts serving. An address in use is tried again for a second: the socket of an
// engine that just went may linger.
func NewPublisher(o PublisherOptions) (*Publisher, error) {
	p := &Publisher{done: make(chan struct{})}
	var err error
	if p.o, err = o.withDefaults(); err != nil {
		return nil, err
	}
	z, err := p.o.Context.acquire()
	if err != nil {
		return nil, err
	}
	if err := p.open(z); err != nil {
		p.shut()
		return nil, fmt.Errorf("publish KV events at %s: %w", o.Endpoint, err)
	}
	go p.serve()
	return p, nil
}

func (p *Publisher) open(z *zmq4.Context) (err error) {
	if p.pub, p.endpoint, err = bind(z, zmq4.PUB, p.o.Endpoint, p.o.HWM); err != nil {
		return err
	}
	if p.o.Replay != "" {
		if p.router, p.replay, err = bind(z, zmq4.ROUTER, p.o.Replay, p.o.ReplayHWM); err != nil {
			return err
		}
	}
	at := p.o.Context.inproc("publisher")
	if p.wake, _, err = bind(z, zmq4.PAIR, at, 0); err != nil {
		return err
	}
	if p.nudge, err = z.NewSocket(zmq4.PAIR); err != nil {
		return err
	}
	return p.nudge.Connect(at)
}

// Publish sends b under the next sequence number and keeps the encoded batch for replay. It never waits for
// a subscriber; a subscriber that is too slow misses batches. b itself is not kept.
func (p *Publisher) Publish(b *EncodeBatch) {
	payload := Encode(nil, b, p.o.Form)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	s := step{seq: p.buffer.seq, payload: payload}
	p.buffer.seq++
	switch {
	case p.buffer.drop > 0:
		p.buffer.drop--
	case !p.buffer.paused:
		p.send(s)
	case len(p.buffer.held) < maxPaused:
		p.buffer.held = append(p.buffer.held, s)
	}
	p.keep(s)
}

func (p *Publisher) send(s step) {
	// A PUB socket drops, it never refuses.
	_, _ = p.pub.SendMessageDontwait(p.o.Topic, seqFrame(s.seq), s.payload)
}

func (p *Publisher) keep(s step) {
	p.buffer.steps = append(p.buffer.steps, s)
	if over := len(p.buffer.steps) - p.o.BufferSteps; over > 0 {
		clear(p.buffer.steps[:over]) // the payloads may go before the array does
		p.buffer.steps = p.buffer.steps[over:]
	}
}

// Restart does what a restart of the engine does to the stream: sequence from 0, replay buffer empty.
// Connections stay; see Close for the rest.
func (p *Publisher) Restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.buffer.seq = 0
	p.buffer.steps = nil
	p.buffer.held = nil
	p.buffer.drop = 0
}

// Drop makes the next n batches miss their live send: they take a sequence number and go to the replay buffer
// only.
func (p *Publisher) Drop(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.buffer.drop += n
}

// Pause holds live sends and answers to replay requests back until Resume, like an engine that hangs while
// its ZMQ thread lives.
func (p *Publisher) Pause() { p.setPaused(true) }

// Resume sends the batches that were held back, and later batches at once.
func (p *Publisher) Resume() { p.setPaused(false) }

func (p *Publisher) setPaused(paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.buffer.paused = paused
	if !paused {
		for _, s := range p.buffer.held {
			p.send(s)
		}
		p.buffer.held = nil
	}
	_, _ = p.nudge.SendBytes(nil, zmq4.DONTWAIT) // full: it is awake
}

// Endpoints returns the bound addresses with real ports; a wildcard host stays as it is. replay is "" without
// one.
func (p *Publisher) Endpoints() (endpoint, replay string) { return p.endpoint, p.replay }

// Close stops serving and closes the sockets; what subscribers have not got yet is lost, as when an engine
// dies. A second call does nothing.
func (p *Publisher) Close() {
	p.mu.Lock()
	first := !p.closed
	if first {
		p.closed = true
		_, _ = p.nudge.SendBytes(nil, zmq4.DONTWAIT) // full: it is awake
	}
	p.mu.Unlock()
	<-p.done
	if first {
		p.shut()
	}
}

func (p *Publisher) shut() {
	for _, soc := range []*zmq4.Socket{p.pub, p.router, p.nudge, p.wake} {
		if soc != nil {
			soc.Close()
		}
	}
	p.o.Context.release()
}

// serve answers replay requests until Close.
func (p *Publisher) serve() {
	defer close(p.done)
	for {
		paused, closed := p.mode()
		if closed {
			return
		}
		if !paused && p.router != nil && !p.answerAll() {
			return
		}
		if !p.await(paused) {
			return
		}
	}
}

func (p *Publisher) mode() (paused, closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.buffer.paused, p.closed
}

// await sleeps until there is a request to read or a change of mode. It reports whether the sockets are still
// good.
func (p *Publisher) await(paused bool) bool {
	poller := zmq4.NewPoller()
	poller.Add(p.wake, zmq4.POLLIN)
	if p.router != nil && !paused {
		poller.Add(p.router, zmq4.POLLIN)
	}
	if _, err := poller.Poll(-1); err != nil {
		return false
	}
	for {
		if _, err := p.wake.RecvBytes(zmq4.DONTWAIT); err != nil {
			return empty(err)
		}
	}
}

// answerAll answers every request that waits, until there is none or the publisher is paused.
func (p *Publisher) answerAll() bool {
	for {
		request, err := p.next()
		if err != nil {
			return empty(err)
		}
		paused, err := p.answer(request)
		if paused {
			p.unanswered = request // Resume wakes serve, which comes back to the request
			return true
		}
		if err != nil && !errors.Is(err, zmq4.Errno(syscall.EHOSTUNREACH)) {
			return false
		}
	}
}

// next returns the request that a pause interrupted, or the next request of the socket.
func (p *Publisher) next() ([][]byte, error) {
	if request := p.unanswered; request != nil {
		p.unanswered = nil
		return request, nil
	}
	return p.router.RecvMessageBytes(zmq4.DONTWAIT)
}

// answer sends the batches asked for and the end marker. A paused publisher sends nothing and says so. A
// request of another shape gets nothing, as from vLLM.
func (p *Publisher) answer(request [][]byte) (paused bool, err error) {
	if len(request) != 3 || len(request[2]) != 8 {
		return false, nil
	}
	client := request[0]
	steps, paused := p.since(binary.BigEndian.Uint64(request[2]))
	if paused {
		return true, nil
	}
	for _, s := range steps {
		if err := p.reply(client, p.o.Topic, s.seq, s.payload); err != nil {
			return false, err
		}
	}
	return false, p.reply(client, "", endOfReplay, nil)
}

// since returns the batches from seq on, and whether the publisher is paused. Both are read under one lock: a
// batch that was published after Pause is never among the batches of a publisher that is not paused.
func (p *Publisher) since(seq uint64) (steps []step, paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, _ := slices.BinarySearchFunc(p.buffer.steps, seq,
		func(s step, seq uint64) int { return cmp.Compare(s.seq, seq) })
	return slices.Clone(p.buffer.steps[i:]), p.buffer.paused
}

func (p *Publisher) reply(client []byte, topic string, seq uint64, payload []byte) error {
	var err error
	if p.o.ReplayFrames == 3 {
		_, err = p.router.SendMessage(client, "", seqFrame(seq), payload)
	} else {
		_, err = p.router.SendMessage(client, "", topic, seqFrame(seq), payload)
	}
	return err
}

// bind makes a bound socket and returns its address with the real port and the host as given.
func bind(z *zmq4.Context, t zmq4.Type, endpoint string, hwm int) (*zmq4.Socket, string, error) {
	soc, err := z.NewSocket(t)
	if err != nil {
		return nil, "", err
	}
	err = first([]error{
		soc.SetLinger(0), soc.SetSndhwm(hwm), soc.SetIpv6(strings.Contains(endpoint, "[")), bindSoon(soc, endpoint),
	})
	if err != nil {
		soc.Close()
		return nil, "", err
	}
	bound, err := soc.GetLastEndpoint()
	if err != nil {
		soc.Close()
		return nil, "", err
	}
	return soc, sameHost(endpoint, bound), nil
}

func bindSoon(soc *zmq4.Socket, endpoint string) error {
	for tries := 0; ; tries++ {
		err := soc.Bind(endpoint)
		if err == nil || tries == 100 || zmq4.AsErrno(err) != zmq4.Errno(syscall.EADDRINUSE) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// sameHost puts the port of bound behind the host of asked: vLLM announces a wildcard as it was configured,
// too.
func sameHost(asked, bound string) string {
	if !strings.HasPrefix(asked, "tcp://") {
		return asked
	}
	return asked[:strings.LastIndexByte(asked, ':')] + bound[strings.LastIndexByte(bound, ':'):]
}
