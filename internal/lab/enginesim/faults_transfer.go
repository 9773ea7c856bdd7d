package enginesim

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
)

var errPathCut = errors.New("no answer from the peer")

// paths holds the faults between this engine and the peers that it reads from: the rules of cut_path,
// hold_path and wrong_load. Safe for concurrent use.
type paths struct {
	on atomic.Bool // there is a rule; if false, the hot path skips the rules

	mu    sync.Mutex // guards the following
	rules []Fault
	moved chan struct{} // closed when rules are removed; nil: no goroutine waits
}

func (p *paths) add(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, f)
	p.on.Store(true)
}

// mend removes the rules with this From, or all rules for "".
func (p *paths) mend(from string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = slices.DeleteFunc(p.rules, func(f Fault) bool { return from == "" || f.From == from })
	p.on.Store(len(p.rules) > 0)
	if p.moved != nil {
		close(p.moved)
		p.moved = nil
	}
}

// find returns the first rule of a kind that matches the peer. at is the peer's URL, "" if unknown.
func (p *paths) find(kind string, peer peerKey, at string) (Fault, bool) {
	if !p.on.Load() {
		return Fault{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.rules {
		if f.Kind == kind && peer.named(f.From, at) {
			return f, true
		}
	}
	return Fault{}, false
}

// byURL reports whether a rule names one engine by its URL.
func (p *paths) byURL() bool {
	if !p.on.Load() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.rules, func(f Fault) bool {
		u, err := url.Parse(f.From)
		return err == nil && u.Port() != "" && u.Hostname() != ""
	})
}

// named reports whether from names the peer. "" names every peer. Otherwise from is an engine id, a side
// channel's address, a URL, or a host, which names all engines on it.
func (k peerKey) named(from, at string) bool {
	if from == "" || from == k.engine || from == k.addr {
		return true
	}
	host, _, err := net.SplitHostPort(k.addr)
	if err != nil {
		return false
	}
	u, err := url.Parse(from)
	if err != nil || u.Hostname() == "" {
		return from == host
	}
	if u.Port() == "" {
		return u.Hostname() == host
	}
	own, err := url.Parse(at)
	return err == nil && own.Port() == u.Port() && (own.Hostname() == u.Hostname() || host == u.Hostname())
}

// blocked waits as long as the path's faults say and returns the failure. It returns nil if the path works.
func (ps *peers) blocked(ctx context.Context, peer remote) error {
	at := ""
	if ps.paths.byURL() {
		at = ps.urlOf(ctx, peer)
	}
	if err := ps.paths.held(ctx, peer.peerKey, at); err != nil {
		return err
	}
	f, cut := ps.paths.find("cut_path", peer.peerKey, at)
	if !cut {
		return nil
	}
	sleep(ctx, cmp.Or(f.For, ps.handshake))
	return errPathCut
}

// held waits while hold_path holds messages to the peer. If packets vanish, TCP waits a quarter of an hour,
// and vLLM 0.32 sets no time-out on a transfer.
func (p *paths) held(ctx context.Context, peer peerKey, at string) error {
	for {
		if _, held := p.find("hold_path", peer, at); !held {
			return nil
		}
		select {
		case <-p.mended():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// mended returns a channel that is closed when rules are removed the next time.
func (p *paths) mended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.moved == nil {
		p.moved = make(chan struct{})
	}
	return p.moved
}

// urlOf returns the URL of the peer's API, which the peer tells in the handshake; "" if there is no
// handshake.
func (ps *peers) urlOf(ctx context.Context, key remote) string {
	p := ps.get(key.peerKey)
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return ""
	}
	if p.nc == nil && p.url == "" {
		if ps.shake(ctx, p, key.claimed) != nil {
			p.drop()
			return ""
		}
		p.met.known = true
	}
	return p.url
}

// garble changes contents if a wrong_load rule matches the peer.
func (ps *peers) garble(ctx context.Context, peer remote, contents []uint64) {
	at := ""
	if ps.paths.byURL() {
		at = ps.urlOf(ctx, peer)
	}
	if _, wrong := ps.paths.find("wrong_load", peer.peerKey, at); !wrong {
		return
	}
	for i, c := range contents {
		contents[i] = ^c
	}
}

// setNoLoad makes the engine behave as without a KV connector, or normally again.
func (r *rank) setNoLoad(off bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.core.SetNoLoad(off)
}

// mendPath ends the path faults of a peer, or of all peers.
func (s *Server) mendPath(from string) {
	s.cores.peers.paths.mend(from)
	if from == "" {
		s.eachRank(func(r *rank) { r.setNoLoad(s.o.Core.NoLoad) })
	}
}
