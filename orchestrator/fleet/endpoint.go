package fleet

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/replica"
)

// Endpoint is the way to one replica, as long as it has this name and these facts. Safe for concurrent use.
type Endpoint struct {
	Member replica.Replica // immutable

	rank string // value of X-data-parallel-rank, "" for a server of one rank
	w    *Watcher
}

// ErrPlain is the error for a request that a decode engine would answer from blocks that were never filled.
var ErrPlain = errors.New("the engine's KV connector cannot answer a request that is not split")

// Do sends a request that concerns tokens or their blocks to the replica: to its rank, if the server has
// several. All such requests must use Do. If the engine's cache may hold wrong blocks, Do salts the request.
//
// With some connectors, a decode engine may get nothing but decode legs. Then Do sends only requests that say
// so by [engine.Request.Loads]; the connector that wrote the transfer params has set it.
func (e *Endpoint) Do(ctx context.Context, q *engine.Request) (*engine.Response, error) {
	if !q.Loads && e.w.legsOnly() {
		return nil, ErrPlain
	}
	if e.rank != "" {
		q.Header = append(q.Header, engine.Field{Key: "X-Data-Parallel-Rank", Value: e.rank})
	}
	if epoch := e.w.process.epoch.Load(); epoch > 0 && q.Method == http.MethodPost {
		q.Body = salted(q.Body, uint64(epoch))
	}
	return e.Ask(ctx, q)
}

// DoAnyRank sends a request that concerns no blocks to the replica's server.
func (e *Endpoint) DoAnyRank(ctx context.Context, q *engine.Request) (*engine.Response, error) {
	return e.w.client.Do(ctx, q)
}

// Ask sends a client's question that concerns no blocks. Its answer is a sign of life.
func (e *Endpoint) Ask(ctx context.Context, q *engine.Request) (*engine.Response, error) {
	resp, err := e.DoAnyRank(ctx, q)
	if err == nil {
		e.MarkAlive()
	}
	return resp, err
}

// Post asks an engine a question, for the tokenizer.
func (e *Endpoint) Post(ctx context.Context, path string, body []byte) (int, []byte, error) {
	e.Begin()
	defer e.End()
	now := time.Now()
	e.w.pulse.owed.asked(e.w.pulse.clock.Running(now), e.Silence(now))
	answer, err := e.w.client.Do(ctx, &engine.Request{
		Method: http.MethodPost, Path: path, Body: body, Idempotent: true, // nothing is made or changed by it
	})
	if err != nil {
		return 0, nil, err
	}
	defer answer.Close()
	e.MarkAlive()
	reply, err := answer.ReadAll(maxQuestion)
	return answer.Status, reply, err
}

// maxQuestion bounds the answer to a question about tokens: ten bytes an id of the longest prompts there are.
const maxQuestion = 64 << 20

// Scrape asks the replica's server for its metrics now.
func (e *Endpoint) Scrape(ctx context.Context) (engine.Metrics, error) { return e.w.client.Scrape(ctx) }

// Server names the server to the tokenizer.
func (e *Endpoint) Server() string { return e.w.key.url }

// Up reports whether the server gives signs of life.
func (e *Endpoint) Up() bool { return e.w.Up() }

// MarkAlive notes a sign of life.
func (e *Endpoint) MarkAlive() { e.w.pulse.mark() }

// Observe notes the load in an answer of the replica.
func (e *Endpoint) Observe(load replica.Load, now time.Time) {
	e.w.pool.Observe(e.Member.ID, load, now)
}

// Uncounted notes a request to the server that no lease counts. The caller must call end when the request
// has ended; calling end more than once is harmless.
func (e *Endpoint) Uncounted() (end func()) {
	members := e.w.Members()
	count := func(n int) {
		for _, m := range members {
			e.w.pool.Uncounted(m.ID, n)
		}
	}
	count(1)
	return sync.OnceFunc(func() { count(-1) })
}

// Silence is how long the engine has given no sign of life.
func (e *Endpoint) Silence(now time.Time) time.Duration {
	return e.w.pulse.silence(now)
}

// SilenceLimit is the silence after which the engine counts as standing still. It is limit, or the usual
// silence if that is longer, as for an engine that is rarely asked.
func (e *Endpoint) SilenceLimit(limit time.Duration) time.Duration {
	return max(limit, e.w.pulse.signs.Usual())
}

// StalledFor is how long this process and the engine have stood still in total. The difference of two calls
// bounds the time that both stood still between the calls.
func (e *Endpoint) StalledFor(now time.Time) time.Duration {
	clock := e.w.pulse.clock
	return clock.StalledFor(now) + e.w.pulse.signs.StalledFor(clock.Running(now))
}

// Transfers counts what a decode server should have fetched from prefill servers.
func (e *Endpoint) Transfers() *Transfers { return e.w.counted.transfers }

// SetState sets or clears a state of the replica called id, and logs the change. An empty cause clears the
// state.
func (e *Endpoint) SetState(id replica.ID, state, cause string) { e.w.states.set(id, state, cause) }

// PutState is SetState without the log. It reports whether the state has begun or ended.
func (e *Endpoint) PutState(id replica.ID, state, cause string) (changed bool) {
	return e.w.states.put(id, state, cause, time.Now())
}

// States returns the present states of the replica called id.
func (e *Endpoint) States(id replica.ID) []State { return e.w.States(id) }

// Distrust makes everything that the engine has cached so far unreachable, in both pools. sent is the
// [Endpoint.CacheEpoch] from before the request was sent that may have read wrong blocks. If the epoch has
// grown since, these blocks are unreachable already.
func (e *Endpoint) Distrust(sent uint32, cause error) { e.w.distrust(sent, cause) }

// CacheEpoch is how often the engine's process may have cached wrong blocks. It is 0 while its cache is
// used. An answer may rest on wrong blocks if the epoch grew after its request was sent.
func (e *Endpoint) CacheEpoch() uint32 { return e.w.process.epoch.Load() }

// Asleep reports whether the replica's engine is in sleep mode.
func (e *Endpoint) Asleep() bool { return e.w.HasState(e.Member.ID, StateAsleep) }

// Begin notes that a request needs the engine from now on, until [Endpoint.End]. A drained server is not
// empty before the End.
func (e *Endpoint) Begin() { e.w.drain.running.Add(1) }

// End ends a Begin.
func (e *Endpoint) End() { e.w.drain.running.Add(-1) }

// LentUntil notes that a decode engine may read blocks of the engine until t, although no request waits for
// them.
func (e *Endpoint) LentUntil(t time.Time) { e.w.drain.lentUntil(t) }

// Hold keeps the watcher listening to the server for a request that runs on it, until [Endpoint.Release]. It
// returns false if the watcher listens no more.
func (e *Endpoint) Hold() bool {
	return e.w.facts.hold()
}

// Release ends a Hold.
func (e *Endpoint) Release() {
	if e.w.facts.release() {
		e.w.life.wake()
	}
}

// AdapterSince returns the time since which the replica's server is known to serve the adapter from its
// present path. Its weights before are unknown. ok is false if the server does not serve the adapter.
func (e *Endpoint) AdapterSince(name string) (since time.Time, ok bool) {
	return e.w.facts.adapterSince(name)
}

// LeaseCounters returns the server's counters as of the newest scrape.
func (e *Endpoint) LeaseCounters() *LeaseCounters {
	return cmp.Or(e.w.counted.leases.Load(), unknownCounters)
}

// AskLeaseCounters asks the server for its counters now.
func (e *Endpoint) AskLeaseCounters(ctx context.Context) (*LeaseCounters, error) {
	m, err := e.w.client.Scrape(ctx)
	if err != nil {
		return nil, err
	}
	return leaseCounters(&m, e.w.pulse.outages.Load()), nil
}

// Works asks the engine's server whether it works, and shares the question with other requests that ask now.
// The error is nil if it works, and also if ctx ended before an answer.
func (e *Endpoint) Works(ctx context.Context) error {
	q := e.w.pulse.ask()
	select {
	case <-ctx.Done():
		return nil
	case <-q.answered:
	}
	var said *engine.StatusError
	if errors.As(q.err, &said) && said.Status < http.StatusInternalServerError {
		return nil
	}
	return q.err
}

// Owes reports whether the engine was asked about tokens and has given no sign of life for as long as no
// answer should take.
func (e *Endpoint) Owes(at time.Time) bool {
	return e.w.pulse.owed.long(e.w.pulse.clock.Running(at), e.Silence(at))
}
