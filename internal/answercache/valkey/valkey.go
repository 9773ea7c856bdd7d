// Package valkey keeps answers in a Valkey or Redis server, which several routers share.
//
// A request waits for the server no longer than the budget. An answer that does not arrive in time counts as
// a miss. A failing server gets no requests, except one look a second, which shows when the server works
// again. A value in the server may be anything; a value that does not answer the question counts as a miss.
package valkey

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tandem-router/tandem/internal/answercache"
)

// Server says how a server is reached.
type Server struct {
	Addresses []string // host:port; several addresses belong to one cluster, or to sentinels
	Cluster   bool
	Master    string // the master that sentinels watch; "" without sentinels
	Username  string
	Password  string
	TLS       *tls.Config // nil speaks plain
	// Nil dials TCP, with TLS if it is set. Another function must handle TLS itself.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Options says how the server is reached and used.
type Options struct {
	Server
	Prefix string // of all keys
	Budget time.Duration
	Codec  *answercache.Codec
	Log    *slog.Logger
	Looked func(result string) // told of each look
	Wrote  func(result string) // and of each write
}

// These are the results of a look.
const (
	Hit     = "hit"
	Miss    = "miss"
	Late    = "late"    // the budget ran out
	Failed  = "failed"  // the server refused, or could not be reached
	Down    = "down"    // it failed before, and was not asked
	Foreign = "foreign" // the value does not answer the question
)

// These are the results of a write.
const (
	Written   = "written"
	Unwritten = "failed"
	Dropped   = "dropped" // too many writes are running, or the server is down
)

// Store is a connection to the server. Safe for concurrent use; it must be closed.
type Store struct {
	opt    Options
	client redis.UniversalClient
	looks  chan struct{} // has an element for each running look
	writes chan struct{} // and for each write
	calls  sync.WaitGroup
	ending context.Context
	end    context.CancelFunc

	mu     sync.Mutex // guards the following non-atomic fields, and the start of calls
	closed bool
	server serverState
}

// serverState is the recent state of the server.
type serverState struct {
	bad      int       // looks in a row that failed
	tryAt    time.Time // when a server that is down gets another look
	down     atomic.Bool
	refusing atomic.Bool // the newest write failed
}

// These limits say how a server is used, and when a failing server gets no requests.
const (
	mostBad    = 3           // failed looks in a row, after which the server counts as down
	rest       = time.Second // until one looks again
	mostLooks  = 256         // running looks, with those whose budget is over; further looks are late
	mostWrites = 64          // at once; more are dropped
	callTime   = time.Second // limit of a look or a write, even if no request waits for it
	mostConns  = 64
)

// The clocks of routers may differ by this much. The age of an answer from further in the future is unknown.
const mostSkew = time.Minute

// New returns a store. It connects at the first use.
func New(opt Options) *Store {
	s := &Store{opt: opt, looks: make(chan struct{}, mostLooks), writes: make(chan struct{}, mostWrites)}
	s.ending, s.end = context.WithCancel(context.Background()) // ended by Close
	s.client = NewClient(opt.Server, mostConns, callTime)
	return s
}

// NewClient returns a client of at most conns connections. The client waits for the server no longer than
// patience each time. It makes a single attempt, and must be closed.
func NewClient(s Server, conns int, patience time.Duration) redis.UniversalClient {
	quiet()
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: s.Addresses, IsClusterMode: s.Cluster, MasterName: s.Master,
		Username: s.Username, Password: s.Password, TLSConfig: s.TLS, Dialer: s.Dial,
		SentinelUsername: s.Username, SentinelPassword: s.Password,
		// There is one attempt, which the context of each call limits.
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience,
		PoolSize: conns, ConnMaxIdleTime: time.Minute, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// quiet keeps the client library from writing to standard error: this package logs what matters.
var quiet = sync.OnceFunc(func() { redis.SetLogger(silence{}) })

type silence struct{}

// Printf writes nothing.
func (silence) Printf(context.Context, string, ...any) {}

// Get returns the answer to a question; nil if there is none in time.
func (s *Store) Get(ctx context.Context, k answercache.Key, now time.Time) *answercache.Answer {
	if !s.mayLook(now) {
		s.opt.Looked(Down)
		return nil
	}
	value, err := s.ask(ctx, k)
	switch {
	case err == nil && len(value) > 0:
		return s.read(value, k, now)
	case err == nil:
		s.works()
		s.opt.Looked(Miss)
	case errors.Is(err, errBusy):
		s.opt.Looked(Late)
	case errors.Is(err, errLeft):
		s.opt.Looked(Miss)
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		s.works()
		s.opt.Looked(Foreign)
	default:
		s.failed(err, now)
	}
	return nil
}

// read returns the server's value if it answers the question.
func (s *Store) read(value []byte, k answercache.Key, now time.Time) *answercache.Answer {
	s.works()
	a, err := s.opt.Codec.Read(value, k)
	if err == nil && a.Made.After(now.Add(mostSkew)) {
		err = errFuture
	}
	if err != nil {
		s.opt.Looked(Foreign)
		s.opt.Log.Debug("a value in the shared answer cache is not taken", "key", k.String(), "error", err)
		return nil
	}
	if a.Made.After(now) {
		a.Made = now
	}
	s.opt.Looked(Hit)
	return a
}

var (
	errFuture = errors.New("the answer is of the future")
	errLate   = errors.New("no answer within the budget")
	errBusy   = errors.New("too many looks are under way")
	errLeft   = errors.New("no request waits for the lookup")
)

// look is the result of asking the server.
type look struct {
	value []byte
	err   error
}

// ask asks the server, and waits within the budget. After the budget the look continues in the background,
// because the next look can use its connection.
func (s *Store) ask(ctx context.Context, k answercache.Key) ([]byte, error) {
	came := make(chan look, 1)
	if !s.call(s.looks, func(ctx context.Context) {
		// Read one byte more than an answer can have, so that a longer value shows.
		value, err := s.client.GetRange(ctx, s.name(k), 0, int64(s.opt.Codec.Most())).Bytes()
		came <- look{value, err}
	}) {
		return nil, errBusy
	}
	late := time.NewTimer(s.opt.Budget)
	defer late.Stop()
	select {
	case l := <-came:
		return l.value, l.err
	case <-late.C:
		return nil, errLate
	case <-ctx.Done():
		return nil, errLeft
	}
}

// call runs do in the background, if one of places is free and the store is open.
func (s *Store) call(places chan struct{}, do func(ctx context.Context)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	select {
	case places <- struct{}{}:
	default:
		return false
	}
	s.calls.Go(func() {
		defer func() { <-places }()
		ctx, cancel := context.WithTimeout(s.ending, callTime)
		defer cancel()
		do(ctx)
	})
	return true
}

func (s *Store) name(k answercache.Key) string { return s.opt.Prefix + k.String() }

// failed handles a failed look.
func (s *Store) failed(err error, now time.Time) {
	result := Failed
	if errors.Is(err, errLate) || errors.Is(err, context.DeadlineExceeded) {
		result = Late
	}
	s.opt.Looked(result)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.server.bad++
	s.server.tryAt = now.Add(rest)
	if s.server.bad >= mostBad && !s.server.down.Swap(true) {
		s.opt.Log.Warn("the shared answer cache does not work; answers are kept in memory alone until it does",
			"result", result, "error", err)
	}
}

// works records that the server has answered.
func (s *Store) works() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server.bad = 0
	if s.server.down.Swap(false) {
		s.opt.Log.Info("the shared answer cache works again")
	}
}

// mayLook reports whether the server should be asked now: always while it works, and otherwise from time to
// time.
func (s *Store) mayLook(now time.Time) bool {
	if !s.server.down.Load() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.server.tryAt) {
		return false
	}
	s.server.tryAt = now.Add(rest)
	return true
}

// Up reports whether the server works as far as known.
func (s *Store) Up() bool { return !s.server.down.Load() }

// Put writes an answer in the background. An answer that cannot be written soon is dropped.
func (s *Store) Put(k answercache.Key, a *answercache.Answer, ttl time.Duration) {
	if s.server.down.Load() || !s.call(s.writes, func(ctx context.Context) { s.write(ctx, k, a, ttl) }) {
		s.opt.Wrote(Dropped)
	}
}

func (s *Store) write(ctx context.Context, k answercache.Key, a *answercache.Answer, ttl time.Duration) {
	err := s.client.Set(ctx, s.name(k), s.opt.Codec.Append(nil, k, a), ttl).Err()
	if err == nil {
		s.opt.Wrote(Written)
		if s.server.refusing.Swap(false) {
			s.opt.Log.Info("the shared answer cache takes answers again")
		}
		return
	}
	s.opt.Wrote(Unwritten)
	if s.ending.Err() == nil && !s.server.down.Load() && !s.server.refusing.Swap(true) {
		s.opt.Log.Warn("the shared answer cache takes no answers; it is still asked for those that it has",
			"error", err)
	}
}

// Close ends running calls, and closes the connections. A closed store has no answers, and accepts none.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	err := s.client.Close() // ends all waits for the server
	s.calls.Wait()
	return err
}

var _ io.Closer = (*Store)(nil)
