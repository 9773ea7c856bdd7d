// Package dns finds replicas and other routers by the addresses of DNS names, such as those of headless
// Services. It asks DNS servers itself, because Go's resolver does not tell how long an answer holds.
//
// What an answer means:
//
//   - Addresses: they are the members until the TTL has passed, at least a second. Then DNS is asked again.
//   - No such name, or a name without an address: the last answer is kept. A Service whose pods are not
//     ready, a restarted DNS server and a deleted Service look alike. The router sees by itself which engines
//     are gone.
//   - An error, such as SERVFAIL, or no answer in time: the last answer is kept.
//
// A name without a good answer is asked for again after a second, then after twice as long each time, up to
// 30 s.
package dns

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/discovery"
	"github.com/tandem-router/tandem/internal/panics"
)

// Source asks DNS for the names of a configuration. Safe for concurrent use.
type Source struct {
	ask func(ctx context.Context, servers []string, name, last string) (answer, error)

	mu      sync.Mutex // guards the following
	names   map[string]*name
	servers []string
	runner  discovery.Runner // of the names
}

// name is one name that is asked for. The mutex of its source guards its state.
type name struct {
	host string
	stop context.CancelFunc // nil until it is asked for
	wake chan struct{}      // has one when it is to be asked for at once

	answer answer
	state  discovery.State
	err    error
	since  time.Time // of state, or of the first failure while nobody has answered
}

// New returns a source that asks for nothing yet.
func New(guard panics.Guard) *Source {
	return &Source{ask: ask, names: map[string]*name{}, runner: discovery.Runner{Panics: guard}}
}

// question is an entry of the configuration: where its members go, and what they are made of.
type question struct {
	pool string
	spec config.Replica
}

// host is the name that DNS is asked for.
func (q *question) host() string {
	u, err := url.Parse(q.spec.URL)
	if err != nil {
		return "" // the configuration has been validated
	}
	return strings.ToLower(u.Hostname())
}

func questions(d config.DNS) (all []question) {
	for _, r := range d.Prefill {
		all = append(all, question{config.PoolPrefill, r})
	}
	for _, r := range d.Decode {
		all = append(all, question{config.PoolDecode, r})
	}
	for _, r := range d.Routers {
		all = append(all, question{config.Peers, config.Replica{URL: r}})
	}
	return all
}

// Found implements [discovery.Source].
func (s *Source) Found(cfg *config.Config) (all []discovery.Found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range questions(cfg.Discovery.DNS) {
		f := discovery.Found{Members: config.Members{Source: "dns", Name: q.spec.URL, Pool: q.pool}}
		if n := s.names[q.host()]; n != nil {
			f.State, f.Since = n.state, n.since
			f.Replicas = members(q.spec, n.answer)
			if n.err != nil {
				f.Err = n.err.Error()
			}
		}
		all = append(all, f)
	}
	return all
}

// Configure implements [discovery.Source]. Other servers are asked at once.
func (s *Source) Configure(cfg *config.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	moved := !slices.Equal(s.servers, cfg.Discovery.DNS.Servers)
	s.servers = cfg.Discovery.DNS.Servers
	wanted := map[string]bool{}
	for _, q := range questions(cfg.Discovery.DNS) {
		host := q.host()
		wanted[host] = true
		if s.names[host] == nil {
			n := &name{host: host, wake: make(chan struct{}, 1)}
			s.names[host] = n
			s.startLocked(n)
		}
	}
	for host, n := range s.names {
		switch {
		case !wanted[host]:
			delete(s.names, host)
			if n.stop != nil {
				n.stop()
			}
		case moved && len(n.wake) == 0:
			n.wake <- struct{}{}
		}
	}
}

// Run implements [discovery.Source].
func (s *Source) Run(ctx context.Context, changed func()) {
	s.runner.Run(ctx, &s.mu, changed, func() {
		for _, n := range s.names {
			s.startLocked(n)
		}
	})
}

func (s *Source) startLocked(n *name) {
	n.stop = s.runner.Start("dns", func(ctx context.Context) { s.follow(ctx, n) })
}

// follow asks for a name again and again until ctx ends.
func (s *Source) follow(ctx context.Context, n *name) {
	for failures := 0; ctx.Err() == nil; {
		s.mu.Lock()
		servers, last := s.servers, n.answer.name
		s.mu.Unlock()
		a, err := s.ask(ctx, servers, n.host, last)
		if ctx.Err() != nil {
			return
		}
		if failures++; err == nil {
			failures = 0
		}
		s.note(n, a, err, time.Now())
		next := time.NewTimer(pause(a.ttl, failures))
		select {
		case <-ctx.Done():
		case <-next.C:
		case <-n.wake:
		}
		next.Stop()
	}
}

// note takes in what DNS said of a name.
func (s *Source) note(n *name, a answer, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := n.state
	switch {
	case err == nil:
		n.answer, n.state = a, discovery.Fresh
	case was == discovery.Fresh:
		n.state = discovery.Held
	}
	if n.state != was || n.since.IsZero() {
		n.since = now
	}
	n.err = err
	s.runner.Changed()
}
