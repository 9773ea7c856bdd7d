package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/conformance"
)

// twinRequests is the least number of requests sent to both kinds.
const twinRequests = 500

// hearing is the longest time until a subscription works.
const hearing = 5 * time.Second

// twinSides name the two of a twin.
var twinSides = [2]string{"the real one", "the simulated one"}

// twin is a real engine and a simulated one of the same configuration.
type twin struct {
	name   string
	blocks int
	urls   [2]string
	events [2]string // endpoints
	replay [2]string
	ears   [2]*listener
}

// twins compares simulated engines with real ones: both get the captured requests, and both get the same
// work. Then their events and counters must be equal.
func twins(ctx context.Context, s *stage) error {
	var errs []error
	// The captured requests leave leases that expire by themselves, so they go to the second pair.
	asked, err := s.twinPair(ctx, "p1", "d1")
	if err != nil {
		return err
	}
	defer asked.close()
	errs = append(errs, asked.conform(ctx))
	played, err := s.twinPair(ctx, "p0", "d0")
	if err != nil {
		return err
	}
	defer played.close()
	errs = append(errs, played.play(ctx, s.seed, twinRequests))
	errs = append(errs, sameSeries(ctx, played.p), sameSeries(ctx, played.d))
	errs = append(errs, asked.awaitExpiry(ctx))
	return errors.Join(errs...)
}

// twinnedPair is a prefill and a decode server of both kinds.
type twinnedPair struct {
	p, d *twin
}

func (s *stage) twinPair(ctx context.Context, prefill, decode string) (*twinnedPair, error) {
	p, err := s.twinOf(ctx, s.engine(prefill))
	if err != nil {
		return nil, err
	}
	d, err := s.twinOf(ctx, s.engine(decode))
	if err != nil {
		p.close()
		return nil, err
	}
	return &twinnedPair{p, d}, nil
}

var simReady = regexp.MustCompile(`(http://\S+) events=(\S+) replay=(\S+)`)

// twinOf starts a simulated engine like e, and follows the events of both.
func (s *stage) twinOf(ctx context.Context, e *engine) (*twin, error) {
	s.routers++
	// Flags that change how an engine works have the same names there. An unknown flag ends the simulator at
	// once.
	args := append([]string{
		"sim", "--model", modelName, "--block-size", strconv.Itoa(blockTokens), "--blocks",
		strconv.Itoa(e.Blocks),
		"--max-model-len", strconv.Itoa(contextTokens),
		"--vocab", "2048", "--zero-latency", "--enable-scale-out", "--no-request-id-headers", "--events",
		"tcp://127.0.0.1:0",
	}, e.Flags...)
	p, err := startProcess(fmt.Sprintf("sim-%s-%d", e.Name, s.routers), s.work, nil, s.tandem, args...)
	if err != nil {
		return nil, err
	}
	s.processes = append(s.processes, p)
	t := &twin{name: e.Name, blocks: e.Blocks}
	err = eventually(ctx, 10*time.Second, func() error {
		m := simReady.FindStringSubmatch(p.logTail(100))
		if m == nil {
			return errors.New("the simulated engine does not listen: " + p.logTail(5))
		}
		t.urls = [2]string{e.url(), m[1]}
		t.events = [2]string{fmt.Sprint("tcp://127.0.0.1:", e.Events), m[2]}
		t.replay = [2]string{fmt.Sprint("tcp://127.0.0.1:", e.Replay), m[3]}
		return nil
	})
	for i := range t.ears {
		if err == nil {
			t.ears[i], err = listen(t.events[i])
		}
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *twin) close() {
	for _, l := range t.ears {
		if l != nil {
			l.close()
		}
	}
}

func (p *twinnedPair) close() {
	p.p.close()
	p.d.close()
}

// conform sends both kinds the requests of the captured real pair.
func (p *twinnedPair) conform(ctx context.Context) error {
	all, err := conformance.Captures()
	if err != nil {
		return err
	}
	var errs []error
	for i, side := range twinSides {
		begun := time.Now()
		r := conformance.Run(ctx, conformance.Target{
			URL: p.p.urls[i], Decode: p.d.urls[i], Model: modelName, Context: contextTokens,
			NoRequestIDs: true,
		}, all)
		say("twin: captures: %s: %d asked in %.0f s, %d differences, not asked since they end engines: %d",
			side,
			r.Asked, time.Since(begun).Seconds(),
			len(r.Differences), len(r.Skipped))
		for _, d := range r.Differences {
			errs = append(errs, fmt.Errorf("%s: %s", side, d))
		}
	}
	return errors.Join(errs...)
}

// play sends at least this many requests to both kinds and compares their events and counters.
func (p *twinnedPair) play(ctx context.Context, seed uint64, requests int) error {
	w := newWorkload(p.p, p.d, seed)
	before, err := p.begin(ctx, w)
	if err != nil {
		return err
	}
	begun := time.Now()
	for w.asked < requests {
		if err := w.next(ctx); err != nil {
			return errors.Join(append(w.errors(), err)...)
		}
	}
	if err := errors.Join(w.holds(ctx, p.p, 0), w.holds(ctx, p.d, 0)); err != nil {
		return err
	}
	say("twin: work: %d requests in %.0f s, %d prompts of them split, %d streamed; %d answers differ in "+
		"status, usage, end or params", w.asked,
		time.Since(begun).Seconds(), w.split, w.streams, w.count)
	errs := w.errors()
	for _, t := range []*twin{p.p, p.d} {
		if err := t.catchUp(ctx); err != nil {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, w.explain(t.sameStory(), t), t.sameReplay(), t.sameCounts(ctx, before[t]))
	}
	return errors.Join(append(errs, w.together(ctx))...)
}

func (w *workload) errors() []error {
	var errs []error
	for _, d := range w.parted {
		errs = append(errs, errors.New(d))
	}
	if more := w.count - len(w.parted); more > 0 {
		errs = append(errs, fmt.Errorf("and %d more such differences", more))
	}
	return errs
}

// explain adds the requests sent at the time to a difference of events.
func (w *workload) explain(err error, t *twin) error {
	var d *eventsDiffer
	if !errors.As(err, &d) {
		return err
	}
	var near []string
	for _, n := range w.notes {
		var batch int
		if _, e := fmt.Sscanf(n, t.name+", batch %d:", &batch); e == nil && batch >= d.batch-3 &&
			batch <= d.batch+3 {
			near = append(near, n)
		}
	}
	return fmt.Errorf("%w\n  asked about then:\n    %s", err, strings.Join(near, "\n    "))
}

// eventsDiffer is a difference of events, in a batch of the simulated engine.
type eventsDiffer struct {
	text  string
	batch int
}

func (d *eventsDiffer) Error() string { return d.text }

// begin waits until all events arrive, makes the caches equal, and notes the counters.
func (p *twinnedPair) begin(ctx context.Context, w *workload) (map[*twin][2]map[string]float64, error) {
	before := map[*twin][2]map[string]float64{}
	warm := newWorkload(p.p, p.d, 99) // as many as it takes: the same work follows
	for _, t := range []*twin{p.p, p.d} {
		for i := range t.urls {
			err := eventually(ctx, hearing, func() error {
				_, err := askTwin(ctx, t.urls[i]+completions,
					map[string]any{"model": modelName, "prompt": warm.ids(2 * blockTokens), "max_tokens": 1})
				if err == nil && t.ears[i].count() == 0 {
					err = fmt.Errorf("%s of %s: no events come", twinSides[i], t.name)
				}
				return err
			})
			if err != nil {
				return nil, err
			}
		}
		if err := w.fill(ctx, t); err != nil {
			return nil, err
		}
		var counts [2]map[string]float64
		for i, url := range t.urls {
			err := t.hush(ctx, i)
			if err == nil {
				counts[i], err = counters(ctx, url)
			}
			if err != nil {
				return nil, err
			}
		}
		before[t] = counts
	}
	return before, nil
}

// together sends disjoint prompts at once, twice: in any order, every block is stored, and found the second
// time.
func (w *workload) together(ctx context.Context) error {
	for _, at := range []*twin{w.p, w.d} {
		for i := range at.urls {
			if err := at.hush(ctx, i); err != nil {
				return err
			}
		}
		var wishes []wish
		for range 8 {
			q := w.completion(at, w.ids(2*blockTokens+w.rnd.IntN(4*blockTokens)), 1+w.rnd.IntN(20))
			wishes = append(wishes, q)
		}
		for range 2 {
			var wg sync.WaitGroup
			errs := make([]error, len(wishes))
			var mu sync.Mutex
			for i, q := range wishes {
				wg.Go(func() {
					sub := &workload{p: w.p, d: w.d}
					_, errs[i] = sub.both(ctx, q, [2]map[string]json.RawMessage{})
					mu.Lock()
					defer mu.Unlock()
					w.asked++
					for _, d := range sub.parted {
						errs[i] = errors.Join(errs[i], errors.New(d))
					}
				})
			}
			wg.Wait()
			if err := errors.Join(errs...); err != nil {
				return fmt.Errorf("eight at once: %w", err)
			}
		}
		if err := at.sameSum(ctx); err != nil {
			return fmt.Errorf("eight at once: %w", err)
		}
	}
	say("twin: eight at once: the same answers and the same blocks, whatever their order")
	return nil
}
