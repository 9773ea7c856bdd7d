// Package peers asks other routers over the same replicas what they have booked there, and tells them what
// this one has.
//
// docs/decisions/0013 says why. What a peer has told stands in the pools until it tells something else, falls
// silent, or leaves the configuration.
package peers

import (
	"cmp"
	"context"
	"crypto/rand"
	"iter"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tandem/decode"
	"tandem/internal/config"
	"tandem/internal/engine"
	"tandem/internal/panics"
	"tandem/prefill"
)

// Options is what peers are made of besides their configuration. All of it is needed, but for Dial.
type Options struct {
	Log         *slog.Logger
	Dial        func(ctx context.Context, network, addr string) (net.Conn, error) // nil dials TCP
	Prefill     *prefill.Pool
	Decode      *decode.Pool
	RoomChanged func() // what is booked elsewhere has changed, so that a request that waits may have room now
	Panics      panics.Guard
	Registry    prometheus.Registerer
}

// Peers are the other routers of a configuration. Safe for concurrent use.
type Peers struct {
	opt      Options
	instance string                 // of this process
	failures *prometheus.CounterVec // peer, reason

	mu      sync.Mutex // guards the following
	all     map[key]*peer
	sources map[string]*peer // by instance: the peer whose answers count for it
	ctx     context.Context  // of Run; nil before and after
	wg      sync.WaitGroup   // of the peers
}

// key is what makes a peer the same across a reload.
type key struct {
	url      string
	interval time.Duration
	token    string // what it wants to be shown
}

// New returns peers of which there are none yet.
func New(opt Options) *Peers {
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tandem_router_peer_failures_total",
		Help: "Questions to other routers without a good answer, by peer and reason.",
	}, []string{"peer", "reason"})
	opt.Registry.MustRegister(failures)
	return &Peers{
		opt: opt, instance: rand.Text(), failures: failures, all: map[key]*peer{}, sources: map[string]*peer{},
	}
}

// Run asks the peers, those of later reloads too, and waits until nobody is asked any more when ctx ends.
func (ps *Peers) Run(ctx context.Context) {
	ps.mu.Lock()
	ps.ctx = ctx
	for _, p := range ps.all {
		ps.startLocked(p)
	}
	ps.mu.Unlock()
	<-ctx.Done()
	ps.mu.Lock()
	ps.ctx = nil
	ps.mu.Unlock()
	ps.wg.Wait()
}

func (ps *Peers) startLocked(p *peer) {
	ctx, cancel := context.WithCancel(ps.ctx)
	p.stop = cancel
	ps.wg.Go(func() {
		defer close(p.ended)
		ps.opt.Panics.KeepRunning(ctx, "peer", func() { p.run(ctx) })
	})
}

// Wanted are the peers of a configuration that can be applied.
type Wanted map[key]*peer

// Wanted makes a peer for every router of cfg. Those that are asked already are left alone by [Peers.Apply].
func (ps *Peers) Wanted(cfg *config.Config) (Wanted, error) {
	out := Wanted{}
	interval, token := cfg.Experimental.Routers.Interval, cfg.Admin.Token.Reveal()
	patience := max(5*interval, leastPatience)
	for _, url := range cfg.Routers.Peers {
		client, err := engine.New(engine.Options{
			URL: url, Dial: ps.opt.Dial, DialTimeout: patience, MaxIdle: 1, APIKey: token,
		})
		if err != nil {
			return nil, err
		}
		k := key{url, interval, token}
		out[k] = &peer{ps: ps, key: k, patience: patience, client: client, ended: make(chan struct{})}
	}
	return out, nil
}

// has reports whether the router at url is asked, however often.
func (w Wanted) has(url string) bool {
	for k := range w {
		if k.url == url {
			return true
		}
	}
	return false
}

// Apply makes the peers those that are wanted. One that stays goes on; one that leaves is forgotten before
// Apply returns.
func (ps *Peers) Apply(wanted Wanted) {
	ps.mu.Lock()
	var left []*peer
	for k, p := range ps.all {
		if wanted[k] == nil {
			delete(ps.all, k)
			left = append(left, p)
		}
	}
	ps.mu.Unlock()
	for _, p := range left {
		p.leave()
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range left {
		if !wanted.has(p.key.url) {
			ps.failures.DeletePartialMatch(prometheus.Labels{"peer": p.key.url})
		}
	}
	for k, p := range wanted {
		if ps.all[k] != nil {
			continue
		}
		ps.all[k] = p
		if ps.ctx != nil {
			ps.startLocked(p)
		}
	}
}

// Heard walks the peers by their addresses, with whether they have told their bookings lately. It leaves out
// those that tell nothing new.
func (ps *Peers) Heard() iter.Seq2[string, bool] {
	ps.mu.Lock()
	all := slices.SortedFunc(maps.Values(ps.all),
		func(a, b *peer) int { return cmp.Compare(a.key.url, b.key.url) })
	ps.mu.Unlock()
	return func(yield func(string, bool) bool) {
		for _, p := range all {
			if s := p.current(); s != redundant && !yield(p.key.url, s == heard) {
				return
			}
		}
	}
}

// claim makes p the source of what an instance has booked, and returns "". If nobody may count it again it
// returns the reason: it is this process itself, or another peer tells for it already.
func (ps *Peers) claim(p *peer, instance string) (why string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if instance == ps.instance {
		return "it is this router itself"
	}
	if other := ps.sources[instance]; other != nil && other != p {
		return "it is the same router as " + other.key.url
	}
	if ps.sources[p.instance] == p {
		delete(ps.sources, p.instance)
	}
	p.instance, ps.sources[instance] = instance, p
	return ""
}

func (ps *Peers) disclaim(p *peer) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.sources[p.instance] == p {
		delete(ps.sources, p.instance)
	}
}

// merge puts what p has told into the pools. Requests that wait may have room now.
func (ps *Peers) merge(p *peer, b *bookings, now time.Time) {
	ps.opt.Prefill.MergePeer(p.key.url, b.Prefill, now)
	ps.opt.Decode.MergePeer(p.key.url, b.Decode, now)
	ps.opt.RoomChanged()
}
