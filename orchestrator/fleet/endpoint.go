package fleet

import (
	"context"
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

// Do sends a request that concerns tokens or their blocks to the replica: to its rank, if the server has
// several. All such requests must use Do. If the engine's cache may hold wrong blocks, Do salts the request.
func (e *Endpoint) Do(ctx context.Context, q *engine.Request) (*engine.Response, error) {
	if e.rank != "" {
		q.Header = append(q.Header, engine.Field{Key: "X-Data-Parallel-Rank", Value: e.rank})
	}
	if epoch := e.w.process.epoch.Load(); epoch > 0 && q.Method == http.MethodPost {
		q.Body = salted(q.Body, uint64(epoch))
	}
	resp, err := e.w.client.Do(ctx, q)
	if err == nil {
		e.MarkAlive()
	}
	return resp, err
}

// DoAnyRank sends a request that concerns no blocks to the replica's server.
func (e *Endpoint) DoAnyRank(ctx context.Context, q *engine.Request) (*engine.Response, error) {
	return e.w.client.Do(ctx, q)
}

// Post asks an engine a question, for the tokenizer.
func (e *Endpoint) Post(ctx context.Context, path string, body []byte) (int, []byte, error) {
	e.Begin()
	defer e.End()
	now := time.Now()
	e.w.scraped.owed.asked(e.w.fleet.opt.Clock.Running(now), e.Silence(now))
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
func (e *Endpoint) MarkAlive() { e.w.markAlive() }

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
	return e.w.scraped.signs.Silence(e.w.fleet.opt.Clock.Running(now))
}

// SilenceLimit is the silence after which the engine counts as standing still. It is limit, or the usual
// silence if that is longer, as for an engine that is rarely asked.
func (e *Endpoint) SilenceLimit(limit time.Duration) time.Duration {
	return max(limit, e.w.scraped.signs.Usual())
}

// StalledFor is how long this process and the engine have stood still in total. The difference of two calls
// bounds the time that both stood still between the calls.
func (e *Endpoint) StalledFor(now time.Time) time.Duration {
	clock := e.w.fleet.opt.Clock
	return clock.StalledFor(now) + e.w.scraped.signs.StalledFor(clock.Running(now))
}

// Transfers counts what a decode server should have fetched from prefill servers.
func (e *Endpoint) Transfers() *Transfers { return &e.w.scraped.transfers }

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
