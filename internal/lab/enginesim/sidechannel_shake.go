package enginesim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// errRanks is a handshake that fails because of the engines' tensor-parallel ranks.
var errRanks = errors.New("NIXL handshake refused")

// shake connects to a peer that has claimed ranks according to the params. A known peer is not checked again.
//
// vLLM 0.32 has three traps here. It does not ask the peer for its number of ranks, but believes the params.
// It registers a peer's memory before the check, and keeps this registration, so later params with the right
// number are refused. And the thread that answers handshakes dies of a question for a rank that does not
// exist.
func (ps *peers) shake(ctx context.Context, p *peer, claimed int) error {
	highest := 0
	if !p.met.known {
		var err error
		if highest, err = ps.core.AsksFor(claimed); err != nil {
			return fmt.Errorf("%w: %w", errRanks, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, ps.handshake)
	defer cancel()
	nc, err := ps.dial(ctx, "tcp", p.key.addr)
	if err != nil {
		return err
	}
	p.nc, p.br = nc, bufio.NewReader(nc)
	hello := func(b []byte) []byte {
		b = binary.BigEndian.AppendUint32(b, uint32(highest))
		return append(append(append(b, ps.version...), 0), p.key.engine...)
	}
	if err := p.exchange(ctx, opHello, hello, p.meet); err != nil || p.met.known {
		return err
	}
	if p.met.claimed == 0 {
		p.met.claimed = claimed
	}
	if p.met.claimed != claimed {
		return fmt.Errorf("%w: AssertionError: assert remote_info.remote_tp_size == remote_tp_size: %d, %d",
			errRanks, p.met.claimed, claimed)
	}
	if err := ps.core.CanRead(claimed, p.met.ranks); err != nil {
		return fmt.Errorf("%w: %w", errRanks, err)
	}
	return nil
}

// expect makes the next question begin with a handshake if registration is newer than all earlier ones: the
// peer has registered its memory again, for example after a sleep.
func (ps *peers) expect(ctx context.Context, key peerKey, registration int) {
	p := ps.get(key)
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return
	}
	if registration > p.asked {
		p.drop()
		p.asked, p.registration = registration, 0
	}
}

// meet reads the answer to a hello.
func (p *peer) meet(answer []byte) error {
	if len(answer) < 8 {
		return errWrongEngine
	}
	p.met.ranks = int(binary.BigEndian.Uint32(answer[4:]))
	if p.url = string(answer[8:]); p.registration == 0 {
		p.registration = binary.BigEndian.Uint32(answer)
	}
	return nil
}

// welcome answers a hello. It needs mu. A deaf rank answers none.
func (r *rank) welcome(dst, body []byte) ([]byte, bool) {
	if len(body) < 4 {
		return dst, false
	}
	cfg := r.core.Config()
	r.deaf = r.deaf || int(binary.BigEndian.Uint32(body)) >= cfg.TensorParallel
	version, id, _ := bytes.Cut(body[4:], []byte{0})
	if r.deaf || cfg.MoRIIO == 0 && string(id) != r.core.EngineID() { // MoRI-IO does not ask for a name
		return dst, false
	}
	if string(version) != r.srv.o.compatible() {
		dst[4] = statusOther
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.core.Registration()))
	return append(binary.BigEndian.AppendUint32(dst, uint32(cfg.TensorParallel)), r.srv.url...), true
}

// forget marks the end of this server's process: the next process knows no peer.
func (ps *peers) forget() { ps.boots.Add(1) }

// misread changes contents that were read from the wrong ranks. Only models with Mamba layers allow such
// reads.
func (ps *peers) misread(key peerKey, contents []uint64) {
	p := ps.get(key)
	p.turn <- struct{}{}
	wrong := p.met.claimed != p.met.ranks
	<-p.turn
	if wrong {
		core.Misread(contents)
	}
}
