package replay

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/capture"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/lab/trace"
)

// composedSpan is the default length of a composed kind.
const composedSpan = 10 * time.Minute

// OfKind returns p with traffic of a kind instead of a trace, and with a load of 1. The kind's files are in
// p.Traces.
func (p Play) OfKind(name string) (Play, error) {
	k, err := trace.FindKind(name)
	if err != nil {
		return p, err
	}
	p.Kind, p.Rate = name, k.Rate
	p.Trace, p.Arrivals = "", ""
	if k.Recorded.File == "" {
		p.For = cmp.Or(p.For, composedSpan)
		return p, nil
	}
	p.Trace = filepath.Join(p.Traces, k.Recorded.File)
	files := []string{p.Trace}
	if k.Recorded.Arrivals != "" {
		p.Arrivals = filepath.Join(p.Traces, k.Recorded.Arrivals)
		files = append(files, p.Arrivals)
	}
	for _, file := range files {
		if _, err := os.Stat(file); err != nil {
			return p, fmt.Errorf("kind %s: there is no %s in %q; not all files ship with Tandem "+
				"(examples/traces/README.md says where they are from)", name, filepath.Base(file), p.Traces)
		}
	}
	return p, nil
}

// ofKind makes the sessions of p's kind from its recording.
func (p *Play) ofKind(recording cluster.Source) (cluster.Source, error) {
	k, err := trace.FindKind(p.Kind)
	if err != nil {
		return nil, err
	}
	if k.Recorded.File == "" {
		return k.Composed.Compose(p.Seed), nil
	}
	k.Recorded.From += p.Skip
	return k.Sessions(recording, p.Seed), nil
}

// assumedToken is the assumed time per output token when a trace is written. In a closed loop a call arrives
// when the previous call has ended, and the file needs a time for that.
const assumedToken = 30 * time.Millisecond

// Write writes the requests of a play as a trace in our own format, and returns how many there are.
func (p Play) Write(w io.Writer) (n int, err error) {
	p = p.withDefaults()
	fleet, err := p.Fleet()
	if err != nil {
		return 0, err
	}
	source, err := p.open(fleet)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	all, size, err := written(source)
	if err != nil {
		return 0, err
	}
	note := fmt.Sprintf("%s, load %g, seed %d; calls of closed loops come %v for each token of the one before",
		cmp.Or(p.Kind, filepath.Base(p.Trace)), p.Scale, p.Seed, assumedToken)
	out, err := capture.NewWriter(w, size, note)
	if err != nil {
		return 0, err
	}
	for _, x := range all {
		if err := out.Write(x); err != nil {
			return 0, fmt.Errorf("request: %w", err)
		}
	}
	return len(all), out.Flush()
}

// written lists the calls of all sessions by time, and the tokens of their blocks.
func written(source cluster.Source) (all []capture.Request, size int, err error) {
	for number := uint64(1); ; number++ {
		s, err := source.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, err
		}
		size = s.BlockSize
		ends := make([]time.Duration, len(s.Calls))
		for i := range s.Calls {
			call := &s.Calls[i]
			at := s.At + call.Think
			if call.After >= 0 {
				at = ends[call.After] + call.Think
			}
			ends[i] = at + time.Duration(call.Output)*assumedToken
			x := capture.Request{
				T: at.Seconds(), Model: call.Model, Input: call.Input, Output: call.Output, Asked: call.Asked,
			}
			if len(s.Calls) > 1 {
				x.Session = fmt.Sprint(number)
			}
			if size > 0 {
				x.Blocks = full(s.AppendBlocks(nil, i), call.Input/size, number<<24|uint64(i))
			}
			all = append(all, x)
		}
	}
	slices.SortStableFunc(all, func(a, b capture.Request) int { return cmp.Compare(a.T, b.T) })
	return all, size, nil
}

// full extends ids to all full blocks of a prompt. Blocks without an id get a new unique id.
func full(ids []uint64, n int, unique uint64) []uint64 {
	for len(ids) < n {
		ids = append(ids, unique<<16|uint64(len(ids))|1<<63)
	}
	return ids[:n]
}

// source gives the fitting sessions of a file, at the times of the play.
type source struct {
	cluster.Source
	file   io.Closer
	play   *Play
	limit  int // most tokens of a prompt and its answer
	rnd    *rand.Rand
	at     time.Duration   // the last random start
	count  int             // sessions that were read
	starts []trace.Arrival // starts of the coming sessions, if the trace has no times
	left   int             // sessions that were left out
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

// Next gives the next session that fits the engines, at its time. Missing start times are drawn as a Poisson
// process.
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

// start returns the start of x. It is drawn from the rates of clients, which are scaled already. Otherwise it
// is the recorded start, or a random start, scaled by p.Scale.
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

// drawStarts draws the starts of sessions by the rates of the clients in p's file. The mean rate is p.Rate
// times p.Scale per second. Each client keeps its share of the rate and its variation over time.
func (p *Play) drawStarts() (starts []trace.Arrival, err error) {
	f, err := os.Open(p.Arrivals)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	span := p.For
	if span == 0 {
		span = time.Hour
	}
	span = (span + trace.WindowLength - 1).Truncate(trace.WindowLength)
	windows, err := trace.Arrivals(f, filepath.Base(p.Arrivals), 0, span)
	if err != nil {
		return nil, err
	}
	rate := 0.0 // of all windows of all clients, each ten minutes long
	for i := range windows {
		rate += windows[i].Rate * trace.WindowLength.Seconds() / span.Seconds()
	}
	if rate <= 0 {
		return nil, fmt.Errorf("%s: no client sends a request in the first %v", p.Arrivals, span)
	}
	return trace.Draw(windows, p.Scale*p.Rate/rate, rand.New(rand.NewPCG(p.Seed, 0x6172726976))), nil
}
