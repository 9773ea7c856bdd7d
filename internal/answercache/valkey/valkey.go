// Package valkey keeps answers in a Valkey or Redis server, which several routers share.
//
// Nobody waits for the server longer than the budget: an answer that does not come in time is a miss. A
// failing server is left alone, except for one look a second, which finds out when it works again. A value
// in the server may be anything; a value that is not an answer to the question is a miss.
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

// Server says where a server is.
type Server struct {
	Addresses []string // host:port; of several, all are of one cluster, or sentinels
	Cluster   bool
	Master    string // that sentinels watch; "" where there are none
	Username  string
	Password  string
	TLS       *tls.Config // nil speaks plain
	// Nil dials TCP, with TLS where that is set, which another one has to see to itself.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Options says where the server is and how it is used.
type Options struct {
	Server
	Prefix string // of all keys
	Budget time.Duration
	Codec  *answercache.Codec
	Log    *slog.Logger
	Looked func(result string) // told of each look
	Wrote  func(result string) // and of each write
}

// Results of a look.
const (
	Hit     = "hit"
	Miss    = "miss"
	Late    = "late"    // the budget ran out
	Failed  = "failed"  // the server refused, or could not be reached
	Down    = "down"    // it failed before, and was not asked
	Foreign = "foreign" // the value is no answer to the question
)

// Results of a write.
const (
	Written   = "written"
	Unwritten = "failed"
	Dropped   = "dropped" // too many are under way, or the server is down
)

// Store is a way to the server. Safe for concurrent use; it must be closed.
type Store struct {
	opt    Options
	client redis.UniversalClient
	looks  chan struct{} // a place for each look under way
	writes chan struct{} // and for each write
	calls  sync.WaitGroup
	ending context.Context
	end    context.CancelFunc

	mu     sync.Mutex // guards the following but what is atomic, and beginning calls
	closed bool
	server serverState
}

// serverState is how the server did lately.
type serverState struct {
	bad      int       // looks in a row that failed
	tryAt    time.Time // when a server that is down is looked at again
	down     atomic.Bool
	refusing atomic.Bool // the newest write failed
}

// How a server is used, and how a failing server is left alone.
const (
	mostBad    = 3           // failed looks in a row, after which the server is left alone
	rest       = time.Second // until one looks again
	mostLooks  = 256         // at once, including looks whose budget has run out; further looks are late
	mostWrites = 64          // at once; more are dropped
	callTime   = time.Second // for a look or a write, whether anybody waits or not
	mostConns  = 64
)

// Routers' clocks may differ by this much: an answer from further in the future has no age that can be told.
const mostSkew = time.Minute

// New returns a store. Nothing is dialled before it is used.
func New(opt Options) *Store {
	s := &Store{opt: opt, looks: make(chan struct{}, mostLooks), writes: make(chan struct{}, mostWrites)}
	s.ending, s.end = context.WithCancel(context.Background()) // ended by Close
	s.client = NewClient(opt.Server, mostConns, callTime)
	return s
}

// NewClient returns a client of at most conns connections. The client waits for the server no longer than
// patience each time. It tries everything once, and must be closed.
func NewClient(s Server, conns int, patience time.Duration) redis.UniversalClient {
	quiet()
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: s.Addresses, IsClusterMode: s.Cluster, MasterName: s.Master,
		Username: s.Username, Password: s.Password, TLSConfig: s.TLS, Dialer: s.Dial,
		SentinelUsername: s.Username, SentinelPassword: s.Password,
		// One attempt, which the context of each call bounds.
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

// Get returns the answer to a question, nil where there is none in time.
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

// read takes what the server has for the question, if it is an answer.
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

// look is what came of asking the server.
type look struct {
	value []byte
	err   error
}

// ask asks the server, and waits within the budget. After the budget the look continues beside the caller. A
// connection that is being made, or that owes an answer, is of use to the next look.
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

// call runs do beside the caller, if one of places is free and the store is open.
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

// failed judges a look that failed.
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

// works notes that the server answered.
func (s *Store) works() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server.bad = 0
	if s.server.down.Swap(false) {
		s.opt.Log.Info("the shared answer cache works again")
	}
}

// mayLook reports whether the server is to be asked at now: always while it works, once a while otherwise.
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

// Up reports whether the server works as far as is known.
func (s *Store) Up() bool { return !s.server.down.Load() }

// Put writes an answer, beside the caller. What cannot be written soon is dropped.
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

// Close ends what is under way, and the connections. A closed store has no answers, and takes none.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	err := s.client.Close() // which ends waiting for the server
	s.calls.Wait()
	return err
}

var _ io.Closer = (*Store)(nil)
