package observe

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Series is a family of metrics that remembers its children. The family itself would check, hash and lock at
// each look-up, a dozen times a request. Code that deletes children of the family must call [Series.reset].
// Safe for concurrent use.
type Series[C any] struct {
	child func(labels ...string) C

	mu    sync.Mutex // one writer at a time
	known atomic.Pointer[map[labels]C]
}

// labels are the values of a child's labels, in order. Families with more are asked each time.
type labels [4]string

type (
	// Counters is a family of counters.
	Counters = Series[prometheus.Counter]
	// Histograms is a family of histograms.
	Histograms = Series[prometheus.Observer]
)

// NewSeries makes a Series of the family whose children child returns.
func NewSeries[C any](child func(...string) C) *Series[C] {
	s := &Series[C]{child: child}
	s.known.Store(&map[labels]C{})
	return s
}

// WithLabelValues returns the child with these values of its labels.
func (s *Series[C]) WithLabelValues(values ...string) C {
	var key labels
	if len(values) > len(key) {
		return s.child(slices.Clone(values)...)
	}
	copy(key[:], values)
	if c, ok := (*s.known.Load())[key]; ok {
		return c
	}
	return s.learn(key, slices.Clone(values))
}

// mostKnown limits the remembered children, because labels name replicas, which join and leave.
const mostKnown = 1024

func (s *Series[C]) learn(key labels, values []string) C {
	s.mu.Lock() // otherwise a child that is deleted meanwhile would be kept
	defer s.mu.Unlock()
	c := s.child(values...)
	if len(*s.known.Load()) >= mostKnown { // a large fleet has more pairs; the family is asked for the others
		return c
	}
	next := maps.Clone(*s.known.Load())
	next[key] = c
	s.known.Store(&next)
	return c
}

// reset removes all remembered children.
func (s *Series[C]) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.Store(&map[labels]C{})
}
