package replay

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/lab/trace"
)

// source is the sessions of a file that fit, at the times that the play wants.
type source struct {
	cluster.Source
	file   io.Closer
	play   *Play
	limit  int // tokens of a prompt and its answer
	rnd    *rand.Rand
	at     time.Duration   // of the last drawn start
	count  int             // sessions read
	starts []trace.Arrival // of the sessions still to come, where the trace has no times
	left   int             // sessions left out
}

func (p *Play) open(fleet cluster.Config) (*source, error) {
	s := &source{play: p, limit: fleet.MaxModelLen() - 1, rnd: rand.New(rand.NewPCG(p.Seed, 0x736f7572))}
	if p.Arrivals != "" {
		var err error
		if s.starts, err = p.drawStarts(); err != nil {
			return nil, fmt.Errorf("arrivals: %w", err)
		}
	}
	if p.Sessions != nil {
		s.Source, s.file = p.Sessions(), io.NopCloser(nil)
		return s, nil
	}
	if p.Kind != "" && p.Trace == "" { // composed
		var err error
		s.Source, err = p.ofKind(nil)
		s.file = io.NopCloser(nil)
		return s, err
	}
	f, err := os.Open(p.Trace)
	if err != nil {
		return nil, err
	}
	r, err := trace.Open(f, filepath.Base(p.Trace), trace.Options{Raw: p.Raw, Seed: p.Seed})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s.Source, s.file = r, f
	if p.Kind != "" {
		s.Source, err = p.ofKind(r)
	}
	return s, err
}

// Close closes the file.
func (s *source) Close() error { return s.file.Close() }

// Next gives the next session that fits the engines, at its time. Starts that are nowhere are drawn as a
// Poisson process.
func (s *source) Next() (*trace.Session, error) {
	for {
		x, err := s.Source.Next()
		if err != nil {
			return nil, err
		}
		s.count++
		s.play.Stress.rename(x, s.count, s.rnd)
		if slices.ContainsFunc(x.Calls, func(c trace.Call) bool { return c.Input+c.Output > s.limit }) {
			s.left++
			continue
		}
		at, err := s.start(x)
		if err != nil {
			return nil, err
		}
		x.At = s.play.Stress.time(at, s.play.For)
		if s.play.For > 0 && x.At >= s.play.For {
			return nil, io.EOF
		}
		return x, nil
	}
}

// start returns when x starts: as drawn from the rates of clients, which are denser already, else as the data
// says or as drawn here, made denser.
func (s *source) start(x *trace.Session) (time.Duration, error) {
	switch {
	case s.play.Arrivals != "":
		if len(s.starts) == 0 {
			return 0, io.EOF
		}
		at := s.starts[0].At
		s.starts = s.starts[1:]
		return at, nil
	case !x.Timed:
		s.at += time.Duration(s.rnd.ExpFloat64() / s.play.Rate * 1e9)
		x.At = s.at
	}
	return time.Duration(float64(x.At) / s.play.Scale), nil
}
