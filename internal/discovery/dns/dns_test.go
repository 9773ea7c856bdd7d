package dns

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/discovery"
	"github.com/tandem-router/tandem/internal/panics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// contextThat returns a context that ends when a condition holds.
func contextThat(t *testing.T, is func() bool) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for !is() && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	return ctx, cancel
}

// script is a DNS server in fake time: its current answer, and the times of its queries.
type script struct {
	began time.Time

	mu    sync.Mutex // guards the following
	a     answer
	err   error
	asked []time.Duration
	names []string
}

func (s *script) ask(_ context.Context, _ []string, name, _ string) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.names = append(s.asked, time.Since(s.began)), append(s.names, name)
	return s.a, s.err
}

func (s *script) say(ttl time.Duration, addrs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.a, s.err = answer{ttl: ttl}, nil
	for _, a := range addrs {
		s.a.targets = append(s.a.targets, target{addr: netip.MustParseAddr(a)})
	}
}

func (s *script) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.a, s.err = answer{}, err
}

// running runs a source with a script in fake time.
func running(t *testing.T, story func(t *testing.T, s *script, src *Source)) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{began: time.Now()}
		src := New(panics.Guard{Log: slog.New(slog.DiscardHandler)})
		src.ask = s.ask
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			src.Run(ctx, func() {})
			close(ended)
		}()
		story(t, s, src)
		cancel()
		<-ended
	})
}

func asking(urls ...string) *config.Config {
	c := config.Default()
	for _, u := range urls {
		c.Discovery.DNS.Decode = append(c.Discovery.DNS.Decode, config.Replica{URL: u})
	}
	return c
}

func is(t *testing.T, got discovery.Found, state discovery.State, err string, urls ...string) {
	t.Helper()
	var all []string
	for _, r := range got.Replicas {
		all = append(all, r.URL)
	}
	if got.State != state || got.Err != err || !slices.Equal(all, urls) {
		t.Errorf("%v %q %v, want %v %q %v", got.State, got.Err, all, state, err, urls)
	}
}

// DNS is asked when an answer has expired, and not earlier. After a failure it is asked again soon, and
// then less often.
func TestTheTTLIsHonoured(t *testing.T) {
	running(t, func(t *testing.T, s *script, src *Source) {
		s.say(5*time.Second, "10.0.0.1")
		src.Configure(asking("http://d:8000"))
		time.Sleep(12 * time.Second) // 0, 5, 10
		s.say(0, "10.0.0.1")
		time.Sleep(4500 * time.Millisecond) // 15, 16
		s.fail(errNothing)
		time.Sleep(80 * time.Second) // 17, 18, 20, 24, 32, 48, 78
		s.say(time.Hour, "10.0.0.1")
		time.Sleep(3700 * time.Second) // 108, 3708
		synctest.Wait()
		var want []time.Duration
		for _, at := range []int{0, 5, 10, 15, 16, 17, 18, 20, 24, 32, 48, 78, 108, 3708} {
			want = append(want, time.Duration(at)*time.Second)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if !slices.Equal(s.asked, want) {
			t.Errorf("asked at %v, want %v", s.asked, want)
		}
	})
}

// A failed query, and an answer without addresses, keep the last answer. A smaller answer is used.
func TestTheLastAnswerStays(t *testing.T) {
	running(t, func(t *testing.T, s *script, src *Source) {
		cfg := asking("http://d:8000")
		is(t, src.Found(cfg)[0], discovery.Waiting, "")
		s.fail(errNothing)
		src.Configure(cfg)
		synctest.Wait()
		is(t, src.Found(cfg)[0], discovery.Waiting, errNothing.Error())
		s.say(time.Second, "10.0.0.1", "fd00::1")
		time.Sleep(time.Second)
		synctest.Wait()
		is(t, src.Found(cfg)[0], discovery.Fresh, "", "http://10.0.0.1:8000", "http://[fd00::1]:8000")
		for _, err := range []error{errors.New("SERVFAIL"), errNothing} {
			s.fail(err)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			is(t, src.Found(cfg)[0], discovery.Held, err.Error(), "http://10.0.0.1:8000", "http://[fd00::1]:8000")
		}
		if since := src.Found(cfg)[0].Since.Sub(s.began); since != 2*time.Second {
			t.Errorf("held since %v, want 2s", since)
		}
		s.say(time.Second, "10.0.0.1")
		time.Sleep(time.Minute)
		synctest.Wait()
		is(t, src.Found(cfg)[0], discovery.Fresh, "", "http://10.0.0.1:8000")
	})
}

// A reload keeps the answers for names that remain in the file, even if other settings of these names
// change, and asks for new names at once. Changed servers are asked at once. A removed name is not asked
// for any more.
func TestReload(t *testing.T) {
	running(t, func(t *testing.T, s *script, src *Source) {
		s.say(time.Hour, "10.0.0.1")
		src.Configure(asking("http://d:8000"))
		synctest.Wait()
		next := asking("http://d:9000", "http://e:8000")
		next.Discovery.DNS.Decode[0].Events.Endpoint = "tcp://*:5557"
		got := src.Found(next)
		is(t, got[0], discovery.Fresh, "", "http://10.0.0.1:9000")
		if at := got[0].Replicas[0].Events.Endpoint; at != "tcp://10.0.0.1:5557" {
			t.Errorf("events at %s", at)
		}
		is(t, got[1], discovery.Waiting, "")
		src.Configure(next)
		synctest.Wait()
		next.Discovery.DNS.Servers = []string{"10.0.0.10:53"}
		src.Configure(next)
		synctest.Wait()
		last := asking("http://e:8000")
		last.Discovery.DNS.Servers = next.Discovery.DNS.Servers
		src.Configure(last)
		time.Sleep(90 * time.Minute)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		slices.Sort(s.names)
		if want := []string{"d", "d", "e", "e", "e"}; !slices.Equal(s.names, want) {
			t.Errorf("asked for %v, want %v", s.names, want)
		}
	})
}
