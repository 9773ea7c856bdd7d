package orchestrator

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/answercache"
	"github.com/tandem-router/tandem/internal/answercache/valkey"
	"github.com/tandem-router/tandem/internal/answercache/valkey/valkeytest"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/config/certtest"
	"github.com/tandem-router/tandem/orchestrator/answers"
)

// shelf is a shared store within the test process.
type shelf struct {
	mu     sync.Mutex
	holds  map[answercache.Key]*answercache.Answer
	looks  int
	opened int
	closed int
	slow   time.Duration // duration of a lookup
}

func (s *shelf) Get(_ context.Context, k answercache.Key, _ time.Time) *answercache.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	time.Sleep(s.slow)
	s.looks++
	return s.holds[k]
}

func (s *shelf) Put(k answercache.Key, a *answercache.Answer, _ time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds == nil {
		s.holds = map[answercache.Key]*answercache.Answer{}
	}
	s.holds[k] = a
}

func (s *shelf) Up() bool { return true }

func (s *shelf) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
	return nil
}

func (s *shelf) counts() (opened, closed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened, s.closed
}

// sharing is the setup of a world with s as its shared store.
func sharing(s *shelf, change ...func(*config.Config)) setup {
	out := remembering(append(change, func(c *config.Config) {
		c.AnswerCache.Valkey.Addresses = []string{"valkey.internal:6379"}
	})...)
	out.options = func(o *Options) {
		o.openShared = func(*config.AnswerCache) (answers.Shared, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.opened++
			return s, nil
		}
	}
	return out
}

// forget empties the answer cache's memory, so that only the shared store has answers, as after a restart
// of the router.
func (w *world) forget() {
	cfg := w.o.Config()
	none := *cfg
	none.AnswerCache.MemoryBytes = 1
	for _, c := range []*config.Config{&none, cfg} {
		if err := w.o.Apply(c); err != nil {
			w.t.Error(err)
		}
	}
}

// A router serves an answer that another router stored, byte for byte. From then on its own memory has the
// answer too.
func TestRoutersGiveOutWhatOthersKept(t *testing.T) {
	for name, p := range map[string]prompt{"chat": chat(false), "stream": chat(true)} {
		t.Run(name, func(t *testing.T) {
			s := &shelf{}
			in(t, sharing(s), func(w *world) {
				first := w.fromCache(p, "MISS")
				w.exact(p, first)
				n := w.computed()
				w.forget()
				time.Sleep(3 * time.Second)
				again := w.fromCache(p, "HIT")
				if again.raw != first.raw || again.header.Get("Age") != "3" {
					t.Errorf("age %s, got %q, want age 3 and %q as the first time",
						again.header.Get("Age"), again.raw, first.raw)
				}
				for _, field := range []string{"Content-Type", "Content-Length", "Cache-Control"} {
					if got, want := again.header.Get(field), first.header.Get(field); got != want {
						t.Errorf("%s %q, want %q as the first time", field, got, want)
					}
				}
				looks := s.looks
				w.fromCache(p, "HIT")
				if s.looks != looks || w.computed() != n {
					t.Errorf("%d lookups and %d computations, want 0: the memory has the answer",
						s.looks-looks, w.computed()-n)
				}
				w.forget()
				anew := p
				anew.header = http.Header{"Cache-Control": {"no-cache"}}
				w.fromCache(anew, "MISS")
				w.forget()
				other := p
				other.header = http.Header{"Authorization": {"Bearer another tenant"}}
				w.fromCache(other, "MISS")
				w.forget()
				time.Sleep(config.Default().AnswerCache.TTL + time.Minute)
				w.fromCache(p, "MISS")
			})
			if opened, closed := s.counts(); opened != 1 || closed != 1 {
				t.Errorf("the store was opened %d times and closed %d times, want 1 and 1", opened, closed)
			}
		})
	}
}

// A request that joins another request's lookup in the store gets the result only if the result is young
// enough for it.
func TestWhoJoinsALookSaysHowOldAnAnswerMayBe(t *testing.T) {
	s := &shelf{}
	in(t, sharing(s), func(w *world) {
		p := chat(true)
		w.fromCache(p, "MISS")
		w.forget()
		time.Sleep(5 * time.Second)
		s.slow = 20 * time.Millisecond
		first := w.begin(p)
		time.Sleep(10 * time.Millisecond)
		older, younger := p, p
		older.header = http.Header{"Cache-Control": {"max-age=9"}}
		younger.header = http.Header{"Cache-Control": {"max-age=4"}}
		second, third := w.begin(older), w.begin(younger)
		for _, got := range []*heard{first.end(), second.end()} {
			if got.header.Get("X-Cache") != "HIT" || got.header.Get("Age") != "5" {
				t.Errorf("X-Cache %q, age %q, want HIT and 5", got.header.Get("X-Cache"), got.header.Get("Age"))
			}
		}
		got := third.end()
		if cache, age := got.header.Get("X-Cache"), got.header.Get("Age"); cache != "MISS" || age != "" {
			t.Errorf("X-Cache %q, age %q, want MISS without age: the client allows 4 s", cache, age)
		}
		w.exact(p, got)
	})
}

// An engine's answers are not served after its restart, even from the shared store.
func TestSharedAnswersEndWithTheirEngine(t *testing.T) {
	s := sharing(&shelf{})
	s.prefill, s.decode = 1, 1
	in(t, s, func(w *world) {
		w.fromCache(chat(false), "MISS")
		w.d[0].Close()
		time.Sleep(time.Second)
		w.d[0] = w.engine(s, "d0")
		time.Sleep(30 * time.Second)
		w.forget()
		w.fromCache(chat(false), "MISS")
	})
}

// A reload opens a new store if any setting of the store differs, and closes the former one. Otherwise it
// keeps the store. It always keeps the memory's content.
func TestSharedStoreIsReloaded(t *testing.T) {
	s := &shelf{}
	in(t, sharing(s), func(w *world) {
		w.fromCache(chat(false), "MISS")
		want := 1
		apply := func(change func(*config.AnswerCache)) {
			t.Helper()
			cfg := *w.o.Config()
			change(&cfg.AnswerCache)
			if err := w.o.Apply(&cfg); err != nil {
				t.Fatal(err)
			}
			w.fromCache(chat(false), "HIT")
			time.Sleep(time.Millisecond) // the former store is closed in the background
			if opened, closed := s.counts(); opened != want || closed != want-1 {
				t.Errorf("opened %d times and closed %d times, want %d and %d", opened, closed, want, want-1)
			}
		}
		apply(func(c *config.AnswerCache) { c.TTL *= 2 })
		apply(func(c *config.AnswerCache) { c.MemoryBytes *= 2 })
		for _, f := range reflect.VisibleFields(reflect.TypeFor[config.Valkey]()) {
			if f.Anonymous || f.Type == reflect.TypeFor[config.ClientTLS]() {
				continue // TLS fields count only with secure, and their files are read then
			}
			want++
			apply(func(c *config.AnswerCache) { alter(t, reflect.ValueOf(&c.Valkey).Elem().FieldByIndex(f.Index)) })
		}
		want++
		apply(func(c *config.AnswerCache) { c.Valkey.TLS.ServerName = "valkey" })
		cfg := *w.o.Config()
		cfg.AnswerCache.MemoryBytes, cfg.AnswerCache.Valkey.Addresses = 0, nil
		if err := w.o.Apply(&cfg); err != nil {
			t.Fatal(err)
		}
		w.fromCache(chat(false), "")
	})
	if opened, closed := s.counts(); opened != closed {
		t.Errorf("the store was opened %d times and closed %d times", opened, closed)
	}
}

// If the certificate authority's file has new content under the same name, the next reload opens the store
// again. Further reloads do not.
func TestRotatedAuthorityOfTheSharedStoreIsUsed(t *testing.T) {
	s := &shelf{}
	authority := filepath.Join(t.TempDir(), "ca.pem")
	write(t, authority, certtest.New(t, 1).Cert)
	in(t, sharing(s, func(c *config.Config) {
		c.AnswerCache.Valkey.Secure, c.AnswerCache.Valkey.TLS.CA = true, authority
	}), func(w *world) {
		for want := 1; want <= 2; want++ {
			for range 2 {
				if err := w.o.Apply(w.cfg); err != nil {
					t.Fatal(err)
				}
			}
			if opened, _ := s.counts(); opened != want {
				t.Errorf("the store was opened %d times, want %d", opened, want)
			}
			write(t, authority, certtest.New(t, 2).Cert)
		}
	})
}

// alter changes a value.
func alter(t *testing.T, v reflect.Value) {
	t.Helper()
	switch x := v.Addr().Interface().(type) {
	case *string:
		*x += "x"
	case *bool:
		*x = !*x
	case *time.Duration:
		*x *= 2
	case *[]string:
		*x = []string{"other.internal:6379"}
	case *config.Secret:
		*x = config.Secret{Value: strings.Repeat("s", 40)}
	default:
		t.Fatalf("alter cannot change a %s", v.Type())
	}
}

// behind is a world with a real server as its shared store, in real time.
func behind(t *testing.T, s *valkeytest.Server) *world {
	t.Helper()
	w := newWorld(t, remembering(func(c *config.Config) {
		c.AnswerCache.Valkey.Addresses, c.AnswerCache.Valkey.Budget = []string{s.Addr}, 100*time.Millisecond
		c.AnswerCache.Valkey.Secret = config.Secret{Value: strings.Repeat("s", 40)}
	}))
	t.Cleanup(w.close)
	return w
}

// looked returns how many lookups had this result; wrote returns the same for writes.
func (w *world) looked(result string) int {
	return w.count("tandem_answer_cache_shared_looks_total", result)
}

func (w *world) wrote(result string) int {
	return w.count("tandem_answer_cache_shared_writes_total", result)
}

// answersShared moves every metric of the shared store.
func answersShared(t *testing.T, m *moved) {
	w := behind(t, valkeytest.Start(t))
	w.ask(chat(false))
	until(t, "it is written", func() bool { return w.wrote(valkey.Written) == 1 })
	m.look(t, w.o)
}

// If the store of a new configuration cannot be opened, the former configuration and its open store stay
// in use.
func TestStoreThatDoesNotOpenIsNoReload(t *testing.T) {
	s := &shelf{}
	sets := sharing(s)
	opens := sets.options
	fails := false
	sets.options = func(o *Options) {
		opens(o)
		open := o.openShared
		o.openShared = func(c *config.AnswerCache) (answers.Shared, error) {
			if fails {
				return nil, errors.New("no store")
			}
			return open(c)
		}
	}
	in(t, sets, func(w *world) {
		w.fromCache(chat(false), "MISS")
		fails = true
		cfg := *w.cfg
		cfg.AnswerCache.Valkey.Prefix = "other:"
		if err := w.o.Apply(&cfg); err == nil {
			t.Fatal("a configuration was accepted although its store does not open")
		}
		w.forget()
		w.fromCache(chat(false), "HIT")
		if opened, closed := s.counts(); opened != 1 || closed != 0 {
			t.Errorf("the store was opened %d times and closed %d times, want 1 and 0", opened, closed)
		}
	})
}
