// Package peers lets routers over the same replicas share their bookings. Routers ask the others at
// configured addresses, or they all connect to a server.
//
// docs/decisions/0013 and 0043 have the reasons. The bookings of a router stay in the pools until the router
// reports others, is silent, or leaves the configuration.
package peers

import (
	"cmp"
	"context"
	"crypto/rand"
	"iter"
	"log/slog"
	"maps"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/keys"
	"github.com/tandem-router/tandem/internal/panics"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/prefill"
)

// Options holds the parts of peers besides their configuration. Every field but Dial is needed.
type Options struct {
	Log         *slog.Logger
	Dial        func(ctx context.Context, network, addr string) (net.Conn, error) // nil dials TCP
	Prefill     *prefill.Pool
	Decode      *decode.Pool
	Distrusts   Distrusts
	RoomChanged func()         // bookings of other routers have changed: a waiting request may find room now
	Keys        *keys.Accounts // of clients
	Panics      panics.Guard
	Registry    prometheus.Registerer
}

// Distrusts are the engine processes that may have cached wrong blocks, as the fleet knows them.
type Distrusts interface {
	Distrusted() []replica.Distrust
	HearDistrust(found []replica.Distrust)
	DistrustChanges() uint64
}

// Peers are the other routers of a configuration. Safe for concurrent use.
type Peers struct {
	opt      Options
	instance string // of this process
	began    time.Time
	failures *prometheus.CounterVec // peer, reason
	messages *prometheus.CounterVec // result

	mu      sync.Mutex // guards the following
	all     map[key]*peer
	store   *store            // nil for none
	sources map[string]source // by instance: the source that counts
	ctx     context.Context   // the context of Run; nil before and after
	wg      sync.WaitGroup    // of the peers and the store
}

// source is a source of a router's bookings: a [peer], or a [stored].
type source interface{ name() string }

// key identifies a peer across reloads.
type key struct {
	url      string
	interval time.Duration
	token    string // what it wants to be shown
}

// New returns Peers without any peer.
func New(opt Options) *Peers {
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tandem_router_peer_failures_total",
		Help: "Questions to other routers without a good answer, by peer and reason.",
	}, []string{"peer", "reason"})
	messages := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tandem_router_store_messages_total",
		Help: "Messages of bookings through the shared server, by result.",
	}, []string{"result"})
	opt.Registry.MustRegister(failures, messages)
	for _, result := range []string{sent, unsent, received, late, foreign} {
		messages.WithLabelValues(result)
	}
	return &Peers{
		opt: opt, instance: rand.Text(), began: time.Now(), failures: failures, messages: messages,
		all: map[key]*peer{}, sources: map[string]source{},
	}
}

// Keys returns the accounts of client keys, about which other routers report.
func (ps *Peers) Keys() *keys.Accounts { return ps.opt.Keys }

// clock returns the time on this process's own clock.
func (ps *Peers) clock() time.Duration { return time.Since(ps.began) }

// Run asks the peers, also those of later reloads. After the end of ctx it returns when all questions have
// ended.
func (ps *Peers) Run(ctx context.Context) {
	ps.mu.Lock()
	ps.ctx = ctx
	for _, p := range ps.all {
		ps.startLocked(p)
	}
	ps.startStoreLocked()
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

func (ps *Peers) startStoreLocked() {
	s := ps.store
	if s == nil || ps.ctx == nil || s.stop != nil {
		return
	}
	ctx, cancel := context.WithCancel(ps.ctx)
	s.stop = cancel
	ps.wg.Go(func() {
		defer close(s.ended)
		s.run(ctx) // run keeps each of its parts running
	})
}

// Wanted holds the peers, and the store, of a configuration that can be applied.
type Wanted struct {
	peers map[key]*peer
	store *store
}

// patienceOf returns how long a router that reports at each interval may be silent.
func patienceOf(interval time.Duration) time.Duration { return max(5*interval, leastPatience) }

// Wanted makes a peer for every router of cfg. [Peers.Apply] does not change peers that run already.
func (ps *Peers) Wanted(cfg *config.Config) (Wanted, error) {
	s, err := ps.storeOf(cfg)
	out := Wanted{map[key]*peer{}, s}
	if err != nil {
		return out, err
	}
	interval, token := cfg.Experimental.Routers.Interval, cfg.Admin.Token.Reveal()
	patience := patienceOf(interval)
	for _, url := range cfg.Routers.Peers {
		client, err := engine.New(engine.Options{
			URL: url, Dial: ps.opt.Dial, DialTimeout: patience, MaxIdle: 1, APIKey: token,
		})
		if err != nil {
			return out, err
		}
		k := key{url, interval, token}
		out.peers[k] = &peer{
			ps: ps, key: k, patience: patience, client: client, ended: make(chan struct{}), first: newFirst(),
			woken: make(chan struct{}, 1), has: guessed{math.MaxUint64, math.MaxUint64},
		}
	}
	return out, nil
}

// has reports whether the router at url is asked.
func (w Wanted) has(url string) bool {
	for k := range w.peers {
		if k.url == url {
			return true
		}
	}
	return false
}

// Apply replaces the peers by the wanted ones. A peer in both sets continues. A peer that is not wanted is
// removed before Apply returns.
func (ps *Peers) Apply(wanted Wanted) {
	ps.applyStore(wanted.store)
	ps.mu.Lock()
	var left []*peer
	for k, p := range ps.all {
		if wanted.peers[k] == nil {
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
	for k, p := range wanted.peers {
		if ps.all[k] != nil {
			continue
		}
		ps.all[k] = p
		if ps.ctx != nil {
			ps.startLocked(p)
		}
	}
}

// applyStore replaces the store by the wanted one. A store that stays continues. Another store is removed
// before applyStore returns.
func (ps *Peers) applyStore(wanted *store) {
	ps.mu.Lock()
	old := ps.store
	if old.same(wanted) {
		ps.mu.Unlock()
		return
	}
	ps.store = nil
	ps.mu.Unlock()
	old.leave()
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.store = wanted
	ps.startStoreLocked()
}

// Store describes the server through which routers report their bookings.
type Store struct {
	Up      bool
	Routers int           // that are heard through it
	Delay   time.Duration // how long this router's newest message took to come back
}

// Store returns the state of the server; false if there is none.
func (ps *Peers) Store() (Store, bool) {
	ps.mu.Lock()
	s := ps.store
	ps.mu.Unlock()
	if s == nil {
		return Store{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return Store{Up: s.health.up.Load(), Routers: len(s.routers), Delay: s.health.delay}, true
}

// Heard yields the peers by their addresses, and whether they have reported their bookings lately. It leaves
// out redundant peers, which report nothing new.
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

// claim makes from the only source of an instance's bookings, and returns "". If from must not count, claim
// returns the reason: the instance is this process, or another source counts already. Reports through a
// server are newer than answers to questions, and replace them.
func (ps *Peers) claim(from source, instance string) (why string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if instance == ps.instance {
		return "it is this router itself"
	}
	p, asked := from.(*peer)
	if other := ps.sources[instance]; asked && other != nil && other != from {
		return "it is the same router as " + other.name()
	}
	if asked {
		if ps.sources[p.instance] == from {
			delete(ps.sources, p.instance)
		}
		p.instance = instance
	}
	ps.sources[instance] = from
	return ""
}

func (ps *Peers) disclaim(from source, instance string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.sources[instance] == from {
		delete(ps.sources, instance)
	}
}

// askAgain resumes questions to peers whose bookings came through the server.
func (ps *Peers) askAgain() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.all {
		select {
		case p.woken <- struct{}{}:
		default:
		}
	}
}

// merge puts all bookings of a router into the pools. Waiting requests may have room afterwards.
func (ps *Peers) merge(from source, b *bookings, now time.Time) {
	ps.opt.Prefill.MergePeer(from.name(), b.Prefill, now)
	ps.opt.Decode.MergePeer(from.name(), b.Decode, now)
	ps.believe(&b.Guesses, now)
	ps.opt.RoomChanged()
}

// update puts a router's bookings on some replicas into the pools.
func (ps *Peers) update(from source, b *bookings, now time.Time) {
	ps.opt.Prefill.UpdatePeer(from.name(), b.Prefill, now)
	ps.opt.Decode.UpdatePeer(from.name(), b.Decode, now)
	ps.believe(&b.Guesses, now)
	ps.opt.RoomChanged()
}

// believe counts the guesses of another router.
func (ps *Peers) believe(gs *guesses, now time.Time) {
	ps.opt.Prefill.MergeGuesses(gs.Prefill, now)
	ps.opt.Decode.MergeGuesses(gs.Decode, now)
}
