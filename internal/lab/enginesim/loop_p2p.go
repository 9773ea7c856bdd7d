package enginesim

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// listenP2P opens the address of the P2P tier of a rank, where other engines ask for blocks.
func (s *Server) listenP2P(r *rank) error {
	if !s.o.Core.P2P {
		return nil
	}
	host, port, err := net.SplitHostPort(s.o.P2P)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	if n > 0 {
		n += r.n // vLLM: base port and data-parallel index
	}
	ln, err := s.o.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(n)))
	if err != nil {
		return err
	}
	r.p2p = newSide(r, ln)
	return nil
}

// P2PAddr is where rank n answers other engines, "" without a P2P tier.
func (s *Server) P2PAddr(n int) string {
	if r := s.cores.ranks[n]; r.p2p != nil {
		return r.p2p.ln.Addr().String()
	}
	return ""
}

// probe asks the source of a request for blocks, and moves what it has. A source that cannot be reached costs
// the time-out of the handshake. A source that stands still costs its time.
func (r *rank) probe(ctx context.Context, o core.Order) {
	began := time.Now()
	contents, err := r.offered(ctx, &o)
	if err != nil {
		sleep(ctx, r.srv.o.HandshakeTimeout-time.Since(began))
		contents = nil
	}
	if len(contents) > 0 {
		sleep(ctx, r.srv.o.TransferLatency)
		if rate := r.srv.o.TransferRate; rate > 0 {
			sleep(ctx, time.Duration(float64(len(contents))/rate*float64(time.Second)))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.core.Fetched(r.now(), &o, contents)
	r.poke()
}

// offered is what the source says that it has.
func (r *rank) offered(ctx context.Context, o *core.Order) ([]uint64, error) {
	addr := net.JoinHostPort(o.Peer.Host, strconv.Itoa(o.Peer.Port))
	c, err := r.srv.o.Dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })()
	out := binary.BigEndian.AppendUint32(nil, uint32(1+8*len(o.Names)))
	out = append(out, opProbe)
	for _, name := range o.Names {
		out = binary.BigEndian.AppendUint64(out, uint64(name))
	}
	if _, err := c.Write(out); err != nil {
		return nil, err
	}
	in, err := readFrame(bufio.NewReader(c), nil)
	if err != nil {
		return nil, err
	}
	if len(in) == 0 || in[0] != 0 || len(in[1:])%8 != 0 || len(in[1:]) > 8*len(o.Names) {
		return nil, errors.New("no answer of a P2P tier")
	}
	var contents []uint64
	for b := in[1:]; len(b) > 0; b = b[8:] {
		contents = append(contents, binary.BigEndian.Uint64(b))
	}
	return contents, nil
}

// offer answers such a question. It needs mu.
func (r *rank) offer(dst, body []byte) []byte {
	names := make([]kv.EngineHash, len(body)/8)
	for i := range names {
		names[i] = kv.EngineHash(binary.BigEndian.Uint64(body[8*i:]))
	}
	for _, c := range r.core.Offers(r.now(), names) {
		dst = binary.BigEndian.AppendUint64(dst, c)
	}
	return dst
}
