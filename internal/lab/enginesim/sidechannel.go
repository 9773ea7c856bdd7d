package enginesim

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// The side channel replaces NIXL's handshake, reads and notifications between engines. Its protocol is our
// own, with one question and one answer at a time:
//
//	question:  length uint32 | op byte | body          answer:  length uint32 | status byte | body
//
//	op 'H'  highest rank uint32,         are you this engine, of      0 registration uint32, ranks uint32,
//	        version, zero byte,          this version, and have you     URL of the API
//	        engine id                    such a rank?                 1 no   2 it is of another version
//	op 'R'  registration uint32,         read blocks as they are now  0 contents, uint64 each
//	        block ids, uint32 each                                    1 memory registered anew since
//	op 'N'  request id                   done with it: free           0
//	op 'B'  request ids, each with a     still wanted: renew leases   0
//	        uint16 length before it
//	op 'G'  core.Registration as JSON    write into these blocks      0
//	op 'A'  core.Registration as JSON    Mooncake: write them when    0
//	                                     the prefill is done
//	op 'F'  written as JSON              Mooncake: nothing will be    0
//	op 'Q'  names, uint64 each           P2P tier: which of these     0 contents of the leading ones that
//	                                     blocks have you?             it has, uint64 each
//	op 'W'  written as JSON              they are written             0   1 no such memory
//	op 'D'  core.Registration as JSON    MoRI-IO: write into these    0
//	op 'P'  registration uint32,         MoRI-IO: be written          0   1 memory registered anew since
//	        written as JSON
//	op 'E'  transfer id as JSON          MoRI-IO: they are written    0
const (
	opHello     = 'H'
	opRead      = 'R'
	opNotify    = 'N'
	opHeartbeat = 'B'
	opRegister  = 'G'
	opWrite     = 'W'
	opAsk       = 'A'
	opRefuse    = 'F'
	opProbe     = 'Q'
	opBlocks    = 'D'
	opPut       = 'P'
	opDone      = 'E'

	statusNo    = 1
	statusOther = 2

	maxFrame = 16 << 20
)

var (
	errWrongEngine = errors.New("no such engine at this address")
	// NIXL's compatibility hash covers the version of vLLM, and the version of vLLM's NIXL connector: 14 in
	// 0.32, 15 in 0.33.
	errOtherVersion = errors.New("NIXL compatibility hash mismatch: the peer is another version of vLLM, " +
		"or pulls where this one pushes")
)

// side serves one rank's blocks to its peers.
type side struct {
	rank *rank
	ln   net.Listener

	mu     sync.Mutex // guards the following
	conns  map[net.Conn]bool
	closed bool
	wg     sync.WaitGroup
}

func newSide(r *rank, ln net.Listener) *side {
	s := &side{rank: r, ln: ln, conns: make(map[net.Conn]bool)}
	s.wg.Go(s.accept)
	return s
}

func (s *side) accept() {
	for {
		c, err := s.ln.Accept()
		if err != nil {
			return
		}
		if !s.admit(c) {
			c.Close()
			return
		}
		s.wg.Go(func() { s.answer(c) })
	}
}

func (s *side) admit(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.conns[c] = true
	}
	return !s.closed
}

func (s *side) close() {
	s.mu.Lock()
	s.closed = true
	s.ln.Close()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// cut closes peers' connections, like a restart.
func (s *side) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
}

func (s *side) answer(c net.Conn) {
	defer func() {
		c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	br := bufio.NewReader(c)
	var in, out []byte
	for {
		var err error
		if in, err = readFrame(br, in); err != nil || len(in) == 0 {
			return
		}
		out = append(out[:0], 0, 0, 0, 0, 0)
		out = s.rank.answerPeer(out, in[0], in[1:])
		binary.BigEndian.PutUint32(out, uint32(len(out)-4))
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

func readFrame(br *bufio.Reader, buf []byte) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(br, head[:]); err != nil {
		return buf[:0], err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n > maxFrame {
		return buf[:0], fmt.Errorf("frame of %d bytes", n)
	}
	buf = grow(buf[:0], n)
	_, err := io.ReadFull(br, buf)
	return buf, err
}

// peers keeps a connection to each engine that this server reads from.
type peers struct {
	version   string // this server's version and transfer mode
	dial      func(ctx context.Context, network, addr string) (net.Conn, error)
	handshake time.Duration
	paths     paths
	core      core.Config // of this server's ranks; set before the first question
	boots     atomic.Int64

	mu   sync.Mutex // guards the following
	open map[peerKey]*peer
	// Mooncake: where engines are, by id.
	sources map[string]core.Peer
}

type peerKey struct{ addr, engine string }

// peer is one connection after a handshake. If a peer has answered before and is gone, a question fails at
// once. If it never answered, the question fails after the handshake time-out.
type peer struct {
	key peerKey
	// turn is held by the question in progress, and guards the following fields. It is a channel, not a
	// mutex, because a frozen peer holds it for long. With fake time, the clock advances only while
	// goroutines wait for channels.
	turn  chan struct{}
	nc    net.Conn
	br    *bufio.Reader
	in    []byte
	out   []byte
	url   string // of its API, from the handshake
	asked int    // the newest registration named by a read
	// The peer's registration from the first handshake after asked changed: only its memory can be read.
	registration uint32
	met          meeting
}

// meeting is what a server knows about a peer from handshakes.
type meeting struct {
	known   bool  // at least one handshake succeeded
	boot    int64 // number of this server's process when the other fields were set
	claimed int   // tensor-parallel size at the first registration of the peer's memory; 0: none
	ranks   int   // the peer's real number of ranks
}

func newPeers(o Options) *peers {
	return &peers{
		version: o.compatible(), dial: o.Dial, handshake: o.HandshakeTimeout, open: make(map[peerKey]*peer),
		sources: make(map[string]core.Peer),
	}
}

func (ps *peers) get(key peerKey) *peer {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.open[key]
	if p == nil {
		p = &peer{key: key, turn: make(chan struct{}, 1)}
		ps.open[key] = p
	}
	return p
}

func (ps *peers) close() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.open {
		p.turn <- struct{}{}
		p.drop()
		<-p.turn
	}
}

// ask sends one question to the engine that key names and passes the answer to read. Without a connection, it
// shakes hands first.
//
// NIXL gets no answer from an absent peer and waits for the time-out. A peer that has answered before fails
// at once.
func (ps *peers) ask(
	ctx context.Context, key remote, op byte, body func([]byte) []byte, read func(answer []byte) error,
) error {
	if err := ps.blocked(ctx, key); err != nil {
		return err
	}
	began := time.Now()
	p := ps.get(key.peerKey)
	known, err := ps.askInTurn(ctx, p, key.claimed, op, body, read)
	if err != nil && !known && !errors.Is(err, errOtherVersion) && !errors.Is(err, errRanks) {
		sleep(ctx, ps.handshake-time.Since(began))
	}
	return err
}

// askInTurn also returns whether the peer has ever shaken hands. Questions to one peer wait for each other.
func (ps *peers) askInTurn(
	ctx context.Context, p *peer, claimed int, op byte, body func([]byte) []byte, read func([]byte) error,
) (known bool, err error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return true, ctx.Err()
	}
	if boot := ps.boots.Load(); p.met.boot != boot {
		p.drop()
		p.met, p.registration = meeting{boot: boot}, 0
	}
	if p.nc == nil {
		if err := ps.shake(ctx, p, claimed); err != nil {
			p.drop()
			return p.met.known, fmt.Errorf("handshake with %s at %s: %w", p.key.engine, p.key.addr, err)
		}
		p.met.known = true
	}
	if err := p.exchange(ctx, op, body, read); err != nil {
		p.drop()
		return true, err
	}
	return true, nil
}

func (p *peer) drop() {
	if p.nc != nil {
		p.nc.Close()
	}
	p.nc, p.br = nil, nil
}

func (p *peer) exchange(
	ctx context.Context, op byte, body func([]byte) []byte, read func([]byte) error,
) error {
	nc := p.nc
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	p.out = append(p.out[:0], 0, 0, 0, 0, op)
	if op == opRead || op == opPut {
		p.out = binary.BigEndian.AppendUint32(p.out, p.registration)
	}
	if body != nil {
		p.out = body(p.out)
	}
	binary.BigEndian.PutUint32(p.out, uint32(len(p.out)-4))
	if _, err := p.nc.Write(p.out); err != nil {
		return err
	}
	var err error
	if p.in, err = readFrame(p.br, p.in); err != nil {
		return err
	}
	switch {
	case len(p.in) == 0:
		return errWrongEngine
	case p.in[0] == statusOther:
		return errOtherVersion
	case p.in[0] != 0:
		return errWrongEngine
	}
	if read == nil {
		return nil
	}
	return read(p.in[1:])
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
