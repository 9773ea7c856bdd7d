// Package kubernetes finds replicas among the pods of a Kubernetes namespace.
//
// The API server tells of pods through a list and a watch, which client-go's reflector keeps alive: it lists
// again after 410 Gone, opens a watch again that has ended, and reads a rotated token. members.go turns pods
// into replicas without any effect. What the API server has said stays in force while it does not answer. An
// empty list is an answer: it empties the pools.
package kubernetes

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/discovery"
	"github.com/tandem-router/tandem/internal/panics"
)

// Source follows the pods of a configuration. Safe for concurrent use.
type Source struct {
	namespace string // of the pod that the router runs in; "" outside of a cluster

	mu      sync.Mutex // guards the following
	runner  discovery.Runner
	follows *following // of the configuration in force; nil for none
}

// following is the state of the pods of one configuration. The mutex of its source guards its state.
type following struct {
	section config.Kubernetes
	spec    *spec
	stop    context.CancelFunc // nil before it runs

	all   []found // nil until the pods have been listed
	state discovery.State
	err   error
	since time.Time // of state, or of the first failure while nobody has answered
}

// namespaceFile has the namespace of the pod that the router runs in.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// New returns a source that asks for nothing yet.
func New(guard panics.Guard) *Source {
	own, _ := os.ReadFile(namespaceFile) // missing outside of a cluster
	return &Source{namespace: strings.TrimSpace(string(own)), runner: discovery.Runner{Panics: guard}}
}

// Found implements [discovery.Source].
func (s *Source) Found(cfg *config.Config) (all []discovery.Found) {
	k := &cfg.Discovery.Kubernetes
	if !k.Enabled() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.follows; f != nil && f.section == *k {
		return f.answers()
	}
	if spec, err := specOf(k, s.namespace); err == nil { // the configuration has been validated
		return (&following{spec: spec}).answers()
	}
	return nil
}

// answers are the newest answers for both pools.
func (f *following) answers() (all []discovery.Found) {
	is := discovery.Found{State: f.state, Since: f.since}
	if f.err != nil {
		is.Err = f.err.Error()
	}
	for _, of := range f.all {
		is.Members, is.Left = of.Members, of.left
		all = append(all, is)
	}
	if f.all != nil {
		return all
	}
	prefill, decode := f.spec.sides()
	for _, of := range []*side{prefill, decode} {
		if of.asked() {
			is.Members = of.question()
			all = append(all, is)
		}
	}
	return all
}

// Configure implements [discovery.Source].
func (s *Source) Configure(cfg *config.Config) {
	k := cfg.Discovery.Kubernetes
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.follows != nil && s.follows.section == k {
		return
	}
	if s.follows != nil && s.follows.stop != nil {
		s.follows.stop()
	}
	s.follows = nil
	if !k.Enabled() {
		return
	}
	if spec, err := specOf(&k, s.namespace); err == nil { // the configuration has been validated
		s.follows = &following{section: k, spec: spec}
		s.startLocked(s.follows)
	}
}

// Run implements [discovery.Source].
func (s *Source) Run(ctx context.Context, changed func()) {
	s.runner.Run(ctx, &s.mu, changed, func() {
		if s.follows != nil {
			s.startLocked(s.follows)
		}
	})
}

func (s *Source) startLocked(f *following) {
	f.stop = s.runner.Start("kubernetes", func(ctx context.Context) { s.follow(ctx, f) })
}

// follow asks the API server until ctx ends.
func (s *Source) follow(ctx context.Context, f *following) {
	w := &watcher{
		spec: f.spec, panics: s.runner.Panics,
		heard: func(err error) {
			if ctx.Err() == nil {
				s.note(f, err, time.Now())
			}
		},
		found: func(all []found) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if f.all == nil {
				f.state, f.since = discovery.Fresh, time.Now()
			}
			f.all = all
			s.runner.Changed()
		},
	}
	for ctx.Err() == nil {
		client, err := clientFor(&f.section, f.spec.namespace)
		if err == nil {
			w.run(ctx, client)
			return
		}
		w.heard(err) // a file that cannot be read, or no cluster
		select {
		case <-ctx.Done():
		case <-time.After(mostPause):
		}
	}
}

// note takes in whether the API server has answered. Pods are known with the first list only.
func (s *Source) note(f *following, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, before := f.state, f.err
	switch {
	case err == nil && f.all != nil:
		f.state = discovery.Fresh
	case err != nil && was == discovery.Fresh:
		f.state = discovery.Held
	}
	if f.state != was || err != nil && f.since.IsZero() { // an open watch without pods is no answer
		f.since = now
	}
	f.err = err
	if f.state != was || fmt.Sprint(err) != fmt.Sprint(before) {
		s.runner.Changed()
	}
}
