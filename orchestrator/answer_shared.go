package orchestrator

import (
	"context"
	"crypto/tls"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/tandem-router/tandem/internal/answercache"
	"github.com/tandem-router/tandem/internal/answercache/valkey"
	"github.com/tandem-router/tandem/internal/config"
)

// shared is a store of answers behind the memory. Get takes no longer than the store's budget, and Put does
// not wait. A closed one has nothing and takes nothing.
type shared interface {
	Get(ctx context.Context, k answercache.Key, now time.Time) *answercache.Answer
	Put(k answercache.Key, a *answercache.Answer, ttl time.Duration)
	Up() bool
	Close() error
}

// prepareAnswers makes the answer cache that a configuration wants, nil for none: of the parts of the one
// that is there, if they are wanted still, so that a reload keeps what it holds. Nothing of it is in force
// before [Orchestrator.enforceAnswers].
func (o *Orchestrator) prepareAnswers(cfg *config.Config) (*answers, error) {
	want, old := &cfg.AnswerCache, o.snap.Load()
	if want.MemoryBytes == 0 {
		return nil, nil
	}
	trust, err := want.Valkey.ServerTLS()
	if err != nil {
		return nil, err
	}
	c := &answers{o: o, flights: &answercache.Flights{}, trust: trust}
	if old != nil && old.answers != nil {
		if sameShared(&old.cfg.AnswerCache, want) && config.SameTLS(old.answers.trust, trust) {
			return old.answers, nil
		}
		c.memory, c.flights = old.answers.memory, old.answers.flights
	} else {
		c.memory = answercache.NewMemory(int64(want.MemoryBytes))
	}
	if len(want.Valkey.Addresses) > 0 {
		c.shared, err = o.openStore(want, trust)
	}
	return c, err
}

// enforceAnswers puts a prepared cache in force. old is the snapshot before, nil where there was none.
func (o *Orchestrator) enforceAnswers(c *answers, old *snapshot, cfg *config.Config) {
	if c != nil {
		c.memory.Resize(int64(cfg.AnswerCache.MemoryBytes))
	}
	if old != nil {
		o.discardAnswers(old.answers, &snapshot{answers: c})
	}
}

// discardAnswers closes a cache that is not that of the snapshot which is in force, beside the caller.
func (o *Orchestrator) discardAnswers(c *answers, inForce *snapshot) {
	if c != nil && c.shared != nil && (inForce == nil || inForce.answers != c) {
		o.computing.Go(c.close)
	}
}

// close ends what the cache has open. Requests that use it still find nothing there.
func (c *answers) close() {
	if c.shared == nil {
		return
	}
	if err := c.shared.Close(); err != nil {
		c.o.log.Warn("closing the shared answer cache", "error", err)
	}
}

// sameShared reports whether two configurations share answers in the same way.
func sameShared(a, b *config.AnswerCache) bool {
	return a.AnswerBytes == b.AnswerBytes && reflect.DeepEqual(a.Valkey, b.Valkey)
}

// openStore opens the store. Nothing is dialled yet.
func (o *Orchestrator) openStore(cfg *config.AnswerCache, trust *tls.Config) (shared, error) {
	if o.opt.openShared != nil {
		return o.opt.openShared(cfg)
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
	m := &o.m.Answers
	return valkey.New(valkey.Options{
		Server: valkey.Server{
			Addresses: v.Addresses, Cluster: v.Mode == config.ValkeyCluster, Master: v.Master, Username: v.Username,
			Password: v.Password.Reveal(), TLS: trust,
		},
		Prefix: v.Prefix, Budget: v.Budget, Codec: codec, Log: o.log,
		Looked: func(result string) { m.Looks.WithLabelValues(result).Inc() },
		Wrote:  func(result string) { m.Writes.WithLabelValues(result).Inc() },
	}), nil
}

// giveShared brings a flight the answer that other routers have kept, if they have one.
func (c *answers) giveShared(ctx context.Context, a *cacheRequest, f *answercache.Flight) bool {
	now := time.Now()
	if c.shared == nil || a.wish.anew {
		return false
	}
	kept := c.shared.Get(ctx, a.key, now)
	if kept == nil || len(kept.Body) == 0 || !a.may(kept, now) {
		return false
	}
	c.memory.Put(a.key, kept, kept.Made.Add(a.cfg.TTL))
	a.note(cacheHit)
	f.Begin(keptHead(kept, now))
	err := f.Append(ctx, kept.Body)
	if kept.Stream {
		c.o.m.Requests.Events.Add(float64(kept.Events))
	}
	f.Done(nil, err)
	return true
}

// keptHead is how a kept answer begins, as [client.whole] and [client.begin] would.
func keptHead(kept *answercache.Answer, now time.Time) answercache.Head {
	h := http.Header{"Age": {strconv.Itoa(int(kept.Age(now).Seconds()))}}
	if kept.Stream {
		h["Content-Type"] = eventStream
		h["Cache-Control"] = noCache
		h["X-Accel-Buffering"] = noBuffering
	} else {
		if kept.ContentType != "" {
			h["Content-Type"] = []string{kept.ContentType}
		}
		h["Content-Length"] = []string{strconv.Itoa(len(kept.Body))}
	}
	return answercache.Head{Status: http.StatusOK, Header: h, Stream: kept.Stream, Made: kept.Made}
}
