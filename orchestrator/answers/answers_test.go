package answers

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/internal/answercache"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// oneEngine is a fleet of one decode replica, which serves "m".
type oneEngine struct{ at *fleet.Endpoint }

func newOneEngine() oneEngine {
	at := &fleet.Endpoint{Member: replica.Replica{ID: "d0"}}
	at.Member.Facts.Models, at.Member.Facts.Root = []string{"m"}, "/models/m"
	return oneEngine{at}
}

func (f oneEngine) Endpoints() map[replica.ID]*fleet.Endpoint {
	return map[replica.ID]*fleet.Endpoint{"d0": f.at}
}

func (f oneEngine) Endpoint(replica.ID) *fleet.Endpoint { return f.at }
func (f oneEngine) DistrustChanges() uint64             { return 0 }

// shelf is a shared store that has one answer for every question, or none.
type shelf struct {
	mu     sync.Mutex
	has    *answercache.Answer
	looks  int
	closed int
}

func (s *shelf) Get(context.Context, answercache.Key, time.Time) *answercache.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	return s.has
}

func (s *shelf) Put(answercache.Key, *answercache.Answer, time.Duration) {}
func (s *shelf) Up() bool                                                { return true }

func (s *shelf) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
	return nil
}

// listener is a client that may have gone.
type listener struct {
	*httptest.ResponseRecorder
	begun bool
	gone  error
}

func (c *listener) Begun() bool { return c.begun }

func (c *listener) BeginAs(head answercache.Head) {
	c.begun = true
	maps.Copy(c.Header(), head.Header)
	c.WriteHeader(head.Status)
}

func (c *listener) Send(part []byte, _ bool, _ int) error {
	if c.gone == nil {
		_, _ = c.Write(part)
	}
	return c.gone
}

// question may be repeated, and every answer to it is complete.
type question struct{}

func (question) Repeatable(openai.Repeat) ([]byte, string) { return []byte("q"), "" }
func (question) Finished([]byte) bool                      { return true }

func newAnswers(s *shelf) *Answers {
	m := observe.NewMetrics(prometheus.NewRegistry())
	return New(Options{
		Log: slog.New(slog.DiscardHandler), Fleet: newOneEngine(), Counts: m.Answers, Events: m.Requests.Events,
		OpenShared: func(*config.AnswerCache) (Shared, error) { return s, nil },
	})
}

func settings() *config.AnswerCache {
	c := &config.AnswerCache{MemoryBytes: 1 << 20, TTL: time.Hour, AnswerBytes: 1 << 16, OutliveEngines: true}
	c.Valkey.Addresses = []string{"valkey.internal:6379"}
	return c
}

// ask brings a request to the cache, with "computed" as the answer of an engine.
func ask(
	ctx context.Context, c *Cache, cfg *config.AnswerCache, to *listener, control string,
) (Outcome, error) {
	return c.Respond(ctx, &Asked{
		Config: cfg, Path: "/v1/completions", Header: http.Header{"Cache-Control": {control}}, Model: "m",
		What: question{}, To: to,
		Answer: func(context.Context) error { return to.Send([]byte("alone"), false, 0) },
		Apart: func(_ context.Context, rec *Recorder) Computation {
			rec.Streams = func() bool { return false }
			return func() (Outcome, error) {
				rec.WriteHeader(http.StatusOK)
				_, err := io.WriteString(rec, "computed")
				return Outcome{Mode: "local"}, err
			}
		},
	})
}

// A stored answer, a computed one and a request that is not for the cache each say how they came about.
func TestRespond(t *testing.T) {
	stored := &answercache.Answer{Body: []byte("stored"), ContentType: "text/plain"}
	for name, c := range map[string]struct {
		has        *answercache.Answer
		age        time.Duration
		control    string
		body, mode string
		header     string
	}{
		"stored":                      {stored, time.Minute, "", "stored", "cached", "HIT"},
		"stored too long ago":         {stored, time.Minute, "max-age=59", "computed", "local", "MISS"},
		"stored, and a new one asked": {stored, 0, "no-cache", "computed", "local", "MISS"},
		"not stored":                  {nil, 0, "", "computed", "local", "MISS"},
		"not for the cache":           {stored, 0, "no-store", "alone", "", "BYPASS"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &shelf{has: c.has}
				if c.has != nil {
					made := *c.has
					made.Made = time.Now().Add(-c.age)
					s.has = &made
				}
				r, cfg := newAnswers(s), settings()
				cache, err := r.Prepare(cfg, nil)
				if err != nil {
					t.Fatal(err)
				}
				to := &listener{ResponseRecorder: httptest.NewRecorder()}
				out, err := ask(t.Context(), cache, cfg, to, c.control)
				r.Wait()
				if err != nil || to.Body.String() != c.body || out.Mode != c.mode ||
					to.Header().Get("X-Cache") != c.header {
					t.Errorf("%q, mode %q, X-Cache %q, %v; want %+v", to.Body, out.Mode, to.Header().Get("X-Cache"), err, c)
				}
			})
		})
	}
}

// An answer from the shared store is in memory from then on.
func TestSharedAnswerIsKeptInMemory(t *testing.T) {
	s := &shelf{has: &answercache.Answer{Body: []byte("stored"), Made: time.Now()}}
	r, cfg := newAnswers(s), settings()
	cache, err := r.Prepare(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		to := &listener{ResponseRecorder: httptest.NewRecorder()}
		if _, err := ask(t.Context(), cache, cfg, to, ""); err != nil || to.Body.String() != "stored" {
			t.Errorf("%q, %v", to.Body, err)
		}
	}
	if s.looks != 1 {
		t.Errorf("%d looks into the shared store, want 1", s.looks)
	}
}

// A client that takes no more, and a request that has ended, are told apart.
func TestClientsThatLeave(t *testing.T) {
	r, cfg := newAnswers(&shelf{}), settings()
	cache, err := r.Prepare(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("the connection is closed")
	_, err = ask(t.Context(), cache, cfg, &listener{ResponseRecorder: httptest.NewRecorder(), gone: gone}, "")
	if unwritten, ok := errors.AsType[*WriteError](err); !ok || !errors.Is(unwritten, gone) {
		t.Errorf("a client that takes no more: %v", err)
	}
	r.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	to := &listener{ResponseRecorder: httptest.NewRecorder()}
	_, err = cache.Respond(ctx, &Asked{
		Config: cfg, Path: "/v1/completions", Model: "m", What: question{}, To: to,
		Apart: func(ctx context.Context, _ *Recorder) Computation {
			return func() (Outcome, error) {
				<-ctx.Done() // as soon as nobody listens
				return Outcome{}, context.Cause(ctx)
			}
		},
	})
	if !errors.Is(err, ErrLeft) {
		t.Errorf("a request that has ended: %v", err)
	}
	r.Wait()
}

// A reload that changes nothing about the shared store keeps it. Another store takes its place otherwise, the
// memory stays, and what is not in force any more is closed once.
func TestReloadKeepsWhatItCan(t *testing.T) {
	s := &shelf{}
	r, cfg := newAnswers(s), settings()
	first, err := r.Prepare(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	same := settings()
	same.TTL, same.MemoryBytes = time.Minute, 2<<20
	if again, err := r.Prepare(same, first); err != nil || again != first {
		t.Errorf("another cache, %v", err)
	}
	other := settings()
	other.Valkey.Prefix = "other"
	second, err := r.Prepare(other, first)
	if err != nil || second == first || second.store.memory != first.store.memory {
		t.Fatalf("the same cache or another memory, %v", err)
	}
	r.Apply(second, first, other)
	r.Discard(second, second)
	r.Wait()
	if s.closed != 1 {
		t.Errorf("%d stores are closed, want 1", s.closed)
	}
	if none, err := r.Prepare(&config.AnswerCache{}, second); none != nil || err != nil {
		t.Errorf("%v, %v: want no cache", none, err)
	}
	r.Apply(nil, second, other)
	r.Wait()
	if s.closed != 2 {
		t.Errorf("%d stores are closed, want 2", s.closed)
	}
}
