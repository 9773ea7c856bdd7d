// Package answers is the answer cache of the router. It gives a stored answer to a request that asks the same
// again. Requests that ask the same at the same time share one computation.
//
// A computation runs on a goroutine of its own, as a request of its own whose client is a flight. So the
// computation continues after the first client has left, as long as another client listens.
//
// [Answers] makes a [Cache] for each configuration. [Cache.Respond] answers one request. The room knows the
// request only as [Asked], and the engines only as [Fleet].
package answers

import (
	"crypto/tls"
	"log/slog"
	"reflect"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/internal/answercache"
	"github.com/tandem-router/tandem/internal/answercache/valkey"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// Options is what the router lends to its answer cache. Every field but OpenShared must be set.
type Options struct {
	Log    *slog.Logger
	Fleet  Fleet
	Counts observe.AnswerMetrics
	Events prometheus.Counter // events of streams that clients have received

	OpenShared func(*config.AnswerCache) (Shared, error) // replaces the Valkey server in tests
}

// Answers makes the cache of each configuration and waits for what the caches have started. Safe for
// concurrent use.
type Answers struct {
	opt     Options
	running sync.WaitGroup // computations, and caches that are being closed
}

// New returns an Answers without a cache.
func New(opt Options) *Answers { return &Answers{opt: opt} }

// BeginMetrics creates the series of all labels that this room writes.
func BeginMetrics(m observe.AnswerMetrics) {
	observe.Begin(m.Requests, hit, joined, miss, bypass)
	observe.Begin(m.Bypassed, byClient, hasQuery, mixedModels, unknownModel, openai.NotSame, openai.SeveralAsked,
		openai.ToolsAsked, openai.MediaAsked, openai.StoreAsked, openai.UnknownMember)
	observe.Begin(m.Unkept, tooLong, notFinished, wasResumed, notTrusted, unknownFrom)
}

// Prepare returns the cache that a configuration wants, or nil for none. old is the cache in force, or nil.
// The new cache keeps the memory of old, so a reload loses nothing. Prepare changes nothing that is in force:
// see [Answers.Apply].
func (r *Answers) Prepare(want *config.AnswerCache, old *Cache) (*Cache, error) {
	if want.MemoryBytes == 0 {
		return nil, nil
	}
	trust, err := want.Valkey.ServerTLS()
	if err != nil {
		return nil, err
	}
	c := &Cache{opt: &r.opt, running: &r.running, made: want, trust: trust, flights: &answercache.Flights{}}
	if old != nil {
		if sameShared(old.made, want) && config.SameTLS(old.trust, trust) {
			return old, nil
		}
		c.store.memory, c.flights = old.store.memory, old.flights
	} else {
		c.store.memory = answercache.NewMemory(int64(want.MemoryBytes))
	}
	if len(want.Valkey.Addresses) > 0 {
		c.store.shared, err = r.open(want, trust)
	}
	return c, err
}

// Apply puts a prepared cache in force in place of old. Either may be nil.
func (r *Answers) Apply(next, old *Cache, want *config.AnswerCache) {
	if next != nil {
		next.store.memory.Resize(int64(want.MemoryBytes))
	}
	r.Discard(old, next)
}

// Discard closes a cache in the background unless it is the one in force. Either may be nil.
func (r *Answers) Discard(c, inForce *Cache) {
	if c != nil && c != inForce && c.store.shared != nil {
		r.running.Go(c.Close)
	}
}

// Wait returns when every computation has ended and every discarded cache is closed.
func (r *Answers) Wait() { r.running.Wait() }

// sameShared reports whether two configurations share answers in the same way.
func sameShared(a, b *config.AnswerCache) bool {
	return a.AnswerBytes == b.AnswerBytes && reflect.DeepEqual(a.Valkey, b.Valkey)
}

// open opens the store that routers share. It dials nothing yet.
func (r *Answers) open(cfg *config.AnswerCache, trust *tls.Config) (Shared, error) {
	if r.opt.OpenShared != nil {
		return r.opt.OpenShared(cfg)
	}
	v := &cfg.Valkey
	var former []string
	if v.FormerSecret.IsSet() {
		former = append(former, v.FormerSecret.Reveal())
	}
	codec, err := valkey.NewCodec(int(cfg.AnswerBytes), v.Secret.Reveal(), former...)
	if err != nil {
		return nil, err
	}
	m := &r.opt.Counts
	return valkey.New(valkey.Options{
		Server: valkey.Server{
			Addresses: v.Addresses, Cluster: v.Mode == config.ValkeyCluster, Master: v.Master, Username: v.Username,
			Password: v.Password.Reveal(), TLS: trust,
		},
		Prefix: v.Prefix, Budget: v.Budget, Codec: codec, Log: r.opt.Log,
		Looked: func(result string) { m.Looks.WithLabelValues(result).Inc() },
		Wrote:  func(result string) { m.Writes.WithLabelValues(result).Inc() },
	}), nil
}
