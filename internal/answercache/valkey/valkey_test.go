package valkey

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tandem-router/tandem/internal/answercache"
	"github.com/tandem-router/tandem/internal/answercache/valkey/valkeytest"
)

// until waits for what has to come about by itself.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		if holds() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("not in 30 s: %s", what)
}

// A lookup takes no longer than the budget, plus the time that a loaded machine needs to continue the
// goroutine. The sum is less than the time limit of a call to the server.
const (
	budget = 100 * time.Millisecond
	slack  = 500 * time.Millisecond
)

// counted is a store with a count of each result and its log.
type counted struct {
	*Store
	looks, writes counts
	log           lines
}

type counts struct {
	mu sync.Mutex
	by map[string]int
}

func (c *counts) add(result string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[string]int{}
	}
	c.by[result]++
}

func (c *counts) of(result string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[result]
}

// lines returns the log without the debug lines.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) has(level, text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, "level="+level) && strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func open(t *testing.T, s *valkeytest.Server, change ...func(*Options)) *counted {
	t.Helper()
	c := &counted{}
	opt := Options{
		Server: Server{Addresses: []string{s.Addr}}, Prefix: "tandem:", Budget: budget,
		Codec: answercache.NewCodec(1<<20, nil),
		Log:   slog.New(slog.NewTextHandler(&c.log, nil)), Looked: c.looks.add, Wrote: c.writes.add,
	}
	for _, f := range change {
		f(&opt)
	}
	c.Store = New(opt)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		until(t, "nothing of a closed store runs", func() bool {
			stacks := make([]byte, 1<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			return !bytes.Contains(stacks, []byte("redis/go-redis")) &&
				!bytes.Contains(stacks, []byte("(*Store).call"))
		})
	})
	return c
}

func answer(n int) (answercache.Key, *answercache.Answer) {
	q := answercache.Question{Request: []byte(strconv.Itoa(n))}
	return q.Key(), &answercache.Answer{
		Made: time.Now().Truncate(time.Millisecond), ContentType: "application/json",
		Body: fmt.Appendf(nil, "answer %d", n),
	}
}

// put writes an answer and waits until the write has ended.
func (s *Store) put(n int) {
	k, a := answer(n)
	s.Put(k, a, time.Minute)
	s.calls.Wait()
}

// get looks an answer up, and returns the time that this took.
func (s *Store) get(n int) (*answercache.Answer, time.Duration) {
	k, _ := answer(n)
	began := time.Now()
	return s.Get(context.Background(), k, began), time.Since(began)
}

func (s *Store) has(n int) bool {
	a, _ := s.get(n)
	return a != nil && string(a.Body) == fmt.Sprintf("answer %d", n)
}

// keeps writes until an answer is stored: the first writes to a server that has just returned may fail.
func (c *counted) keeps(t *testing.T, n int) {
	t.Helper()
	until(t, "an answer is written and read", func() bool { c.put(n); return c.has(n) })
}

// One router reads the answers that another router wrote, until they expire.
func TestRoutersShareAnswers(t *testing.T) {
	s := valkeytest.Start(t)
	a, b := open(t, s), open(t, s)
	if b.has(1) {
		t.Fatal("got an answer that no router wrote")
	}
	a.keeps(t, 1)
	b.keeps(t, 1)
	if b.has(2) {
		t.Error("got another answer than the written one")
	}
	k, value := answer(3)
	a.Put(k, value, 50*time.Millisecond)
	a.calls.Wait()
	until(t, "it expires", func() bool { return !b.has(3) })
	if other := open(t, s, func(o *Options) { o.Prefix = "other:" }); other.has(1) {
		t.Error("got an answer under another prefix")
	}
}

func sealed(t *testing.T, secret string, former ...string) func(*Options) {
	t.Helper()
	codec, err := NewCodec(1<<20, secret, former...)
	if err != nil {
		t.Fatal(err)
	}
	return func(o *Options) { o.Codec = codec }
}

// Stored texts are not readable, and a value that another program wrote is a miss.
func TestPoisonedValuesAreMisses(t *testing.T) {
	s := valkeytest.Start(t)
	store := open(t, s, sealed(t, strings.Repeat("s", LeastSecret)))
	store.keeps(t, 1)
	raw := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer raw.Close()
	ctx := t.Context()
	k, _ := answer(1)
	value, err := raw.Get(ctx, store.name(k)).Bytes()
	if err != nil || bytes.Contains(value, []byte("answer")) {
		t.Fatalf("%q, %v", value, err)
	}
	other, future := answer(2)
	future.Made = time.Now().Add(time.Hour)
	name := store.name(other)
	for what, put := range map[string]func() error{
		"moved":   func() error { return raw.Set(ctx, name, value, 0).Err() },
		"changed": func() error { return raw.SetRange(ctx, name, 60, "x").Err() },
		"garbage": func() error { return raw.Set(ctx, name, "garbage", 0).Err() },
		"plain": func() error {
			return raw.Set(ctx, name, answercache.NewCodec(1<<20, nil).Append(nil, other, future), 0).Err()
		},
		"huge": func() error { return raw.Set(ctx, name, strings.Repeat("tan1", 1<<20), 0).Err() },
		"of future": func() error {
			return raw.Set(ctx, name, store.opt.Codec.Append(nil, other, future), 0).Err()
		},
		"a list": func() error {
			raw.Del(ctx, name)
			return raw.LPush(ctx, name, "a list").Err()
		},
	} {
		if err := put(); err != nil {
			t.Fatal(err)
		}
		before := store.looks.of(Foreign)
		until(t, what+" is looked at", func() bool {
			if a, _ := store.get(2); a != nil {
				t.Errorf("%s: got %+v", what, a)
			}
			return store.looks.of(Foreign) > before
		})
		raw.Del(ctx, name)
	}
	if !store.Up() {
		t.Error("a server with foreign values counts as not working")
	}
}

// A new secret reads the answers of the former secret if the former secret is configured. Otherwise it
// reads none of them.
func TestSecretsAreReplaced(t *testing.T) {
	s := valkeytest.Start(t)
	first, second := strings.Repeat("1", LeastSecret), strings.Repeat("2", LeastSecret)
	before := open(t, s, sealed(t, first))
	before.keeps(t, 1)
	both, after := open(t, s, sealed(t, second, first)), open(t, s, sealed(t, second))
	until(t, "what the former secret sealed is read", func() bool { return both.has(1) })
	both.keeps(t, 2)
	until(t, "what the new secret sealed is read", func() bool { return after.has(2) })
	until(t, "secrets keep answers apart", func() bool {
		if before.has(2) || after.has(1) {
			t.Fatal("got an answer that another secret sealed")
		}
		return before.looks.of(Foreign) > 0 && after.looks.of(Foreign) > 0
	})
	if _, err := NewCodec(1<<20, "short"); err == nil {
		t.Error("a short secret was accepted")
	}
}

// A client that leaves during a lookup does not count against the server.
func TestClientsThatLeaveBlameNobody(t *testing.T) {
	s := valkeytest.Start(t)
	store := open(t, s)
	s.Freeze()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	k, _ := answer(1)
	for range 2 * mostBad {
		if a := store.Get(ctx, k, time.Now()); a != nil {
			t.Fatal("got an answer for a client that has left")
		}
	}
	if !store.Up() {
		t.Error("the server counts as not working")
	}
	s.Unfreeze()
}

// The number of concurrent calls is bounded, for any number of lookups and writes. Closing the store ends
// them soon.
func TestCallsAreBounded(t *testing.T) {
	s := valkeytest.Start(t)
	store := open(t, s)
	s.Freeze()
	defer s.Unfreeze()
	for n := range 2 * mostWrites {
		k, a := answer(n)
		store.Put(k, a, time.Minute)
	}
	if n := store.writes.of(Dropped); n != mostWrites {
		t.Errorf("%d of %d writes were dropped, the limit is %d", n, 2*mostWrites, mostWrites)
	}
	late := starved(t)
	var all sync.WaitGroup
	for n := range 2 * mostLooks {
		all.Go(func() {
			_, took := store.get(n)
			if lost := late(); took > budget+slack+lost {
				t.Errorf("a lookup took %v, the budget is %v, and the machine was busy for %v", took, budget, lost)
			}
		})
	}
	all.Wait()
	if n := len(store.Store.looks); n > mostLooks {
		t.Errorf("%d lookups are still running", n)
	}
	began := time.Now()
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	if took, lost := time.Since(began), late(); took > callTime+slack+lost {
		t.Errorf("closing took %v, and the machine was busy for %v", took, lost)
	}
	_, took := store.get(1)
	if lost := late(); took > slack+lost {
		t.Errorf("a lookup in a closed store took %v, and the machine was busy for %v", took, lost)
	}
	store.put(1)
	// the end of the test closes the store again
	store.client = redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{s.Addr}})
}
