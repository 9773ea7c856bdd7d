package replay

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/capture"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/lab/trace"
)

// composedSpan is how long a composed kind lasts where nobody says so.
const composedSpan = 10 * time.Minute

// OfKind is p with traffic of a kind in the place of a trace, and a load of 1. Its files lie in p.Traces.
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
			return p, fmt.Errorf("kind %s: no %s in %q, and not all files ship with Tandem "+
				"(examples/traces/README.md says where they are from)", name, filepath.Base(file), p.Traces)
		}
	}
	return p, nil
}

// ofKind makes the sessions of p's kind, out of its recording.
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

// assumedToken is what a token of an answer takes where a trace is written: calls of a closed loop come when
// the one before has ended, which a file of times has to know.
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

// full makes ids as many as a prompt has full blocks, with names of their own for those that are not known.
func full(ids []uint64, n int, unique uint64) []uint64 {
	for len(ids) < n {
		ids = append(ids, unique<<16|uint64(len(ids))|1<<63)
	}
	return ids[:n]
}
