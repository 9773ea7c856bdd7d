package claims

import (
	"io"
	"math/rand/v2"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/lab/trace"
)

// Loops are clients that each send one request after the other, like a benchmark with this number of
// concurrent requests. The prompts share nothing.
type Loops struct {
	Clients   int
	Calls     int // of each client
	Input     int // tokens of every prompt
	MinOutput int // tokens of an answer: uniformly random
	MaxOutput int // between these two
	Stagger   time.Duration
}

// source makes the clients. The same seed makes the same clients.
func (w Loops) source(seed uint64) cluster.Source {
	return &loops{Loops: w, rnd: rand.New(rand.NewPCG(seed, 0x6c6f6f70))}
}

type loops struct {
	Loops
	rnd  *rand.Rand
	next int
}

// Next gives the next client.
func (l *loops) Next() (*trace.Session, error) {
	if l.next == l.Clients {
		return nil, io.EOF
	}
	s := &trace.Session{At: time.Duration(l.next) * l.Stagger, Timed: true}
	l.next++
	for i := range l.Calls {
		s.Calls = append(s.Calls,
			trace.Call{After: i - 1, Input: l.Input, Output: l.MinOutput + l.rnd.IntN(l.MaxOutput-l.MinOutput+1)})
	}
	return s, nil
}
