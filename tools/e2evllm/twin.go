package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tandem/internal/enginesim/conformance"
)

// twinRequests are asked of both kinds at least.
const twinRequests = 500

// hearing is how long it may take until a subscription is heard of.
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

// twins holds simulated engines to real ones: both are asked what was captured, and both are played the same
// work, after which they have to have told and counted the same.
func twins(ctx context.Context, s *stage) error {
	var errs []error
	// The captured requests leave leases that run out by themselves, so that they go to the second pair.
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

// twinOf starts a simulated engine like e, and listens to both.
func (s *stage) twinOf(ctx context.Context, e *engine) (*twin, error) {
	s.routers++
	// What changes how an engine works has the same name there; another flag ends the simulator at once.
	args := append([]string{
		"sim", "--model", modelName, "--block-size", strconv.Itoa(blockTokens), "--blocks", strconv.Itoa(e.Blocks),
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

// conform asks both kinds what a real pair was asked when it was captured.
func (p *twinnedPair) conform(ctx context.Context) error {
	all, err := conformance.Captures()
	if err != nil {
		return err
	}
	var errs []error
	for i, side := range twinSides {
		begun := time.Now()
		r := conformance.Run(ctx, conformance.Target{
			URL: p.p.urls[i], Decode: p.d.urls[i], Model: modelName, Context: contextTokens, NoRequestIDs: true,
		}, all)
		say("twin: captures: %s: %d asked in %.0f s, %d differences, not asked since they end engines: %d", side,
			r.Asked, time.Since(begun).Seconds(),
			len(r.Differences), len(r.Skipped))
		for _, d := range r.Differences {
			errs = append(errs, fmt.Errorf("%s: %s", side, d))
		}
	}
	return errors.Join(errs...)
}

// play plays that many requests at least to both kinds and compares what they told.
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

// explain adds to a difference of events what was asked about then.
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

// begin waits until everybody hears everybody, makes the caches alike, and notes the counters.
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

// hush waits until the events of what was asked before have come, and forgets them.
func (t *twin) hush(ctx context.Context, i int) error {
	n := -1
	err := eventually(ctx, 10*time.Second, func() error {
		if before := n; before != t.ears[i].count() {
			n = t.ears[i].count()
			return errors.New("events still come")
		}
		return nil
	})
	t.ears[i].mu.Lock()
	t.ears[i].messages = nil
	t.ears[i].mu.Unlock()
	return err
}

// catchUp waits until everything has been heard that can be replayed.
func (t *twin) catchUp(ctx context.Context) error {
	for i, l := range t.ears {
		err := eventually(ctx, 10*time.Second, func() error {
			messages, err := l.heard()
			if err != nil || len(messages) == 0 {
				return errors.Join(err, errors.New("no events have come"))
			}
			last := binary.BigEndian.Uint64(messages[len(messages)-1][1])
			replies, err := replayed(t.replay[i], last+1)
			if err == nil && len(replies) > 1 {
				err = fmt.Errorf("%d batches were published and have not come", len(replies)-1)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s of %s: %w", twinSides[i], t.name, err)
		}
	}
	return nil
}

// sameStory compares the events of the two.
func (t *twin) sameStory() error {
	var told [2]*story
	for i, l := range t.ears {
		told[i] = newStory()
		messages, err := l.heard()
		for _, frames := range messages {
			err = errors.Join(err, told[i].tell(frames))
		}
		if err != nil {
			return fmt.Errorf("%s of %s: %w", twinSides[i], t.name, err)
		}
	}
	r, s := told[0].lines, told[1].lines
	say("twin: events of %s: %d batches, %d blocks named, %d lines",
		t.name, len(t.ears[0].messages), len(told[0].names), len(r))
	if d := firstDifference(s, r); d != "" {
		return &eventsDiffer{t.name + ": the events differ: " + d, batchOf(s, r)}
	}
	if len(told[0].names) < t.blocks {
		return fmt.Errorf("%s: only %d blocks were named: nothing was evicted", t.name, len(told[0].names))
	}
	return nil
}

// sameReplay asks both for what they have published, from several places on, and compares the frames.
func (t *twin) sameReplay() error {
	var form [2]string
	for i, l := range t.ears {
		messages, _ := l.heard()
		live := map[uint64][]byte{}
		for _, frames := range messages {
			live[binary.BigEndian.Uint64(frames[1])] = frames[2]
		}
		first, n := slices.Min(slices.Collect(maps.Keys(live))), uint64(len(live))
		for _, from := range []uint64{first, first + n - 2, first + n + 5} {
			replies, err := replayed(t.replay[i], from)
			if err != nil {
				return fmt.Errorf("%s of %s: replay: %w", twinSides[i], t.name, err)
			}
			form[i] += framing(replies, live, first) + "\n"
		}
		reply, err := firstReply(t.replay[i], first+n-2)
		if err != nil {
			return fmt.Errorf("%s of %s: replay by REQ: %w", twinSides[i], t.name, err)
		}
		form[i] += framing(reply, live, first)
	}
	if d := firstDifference(strings.Split(form[1], "\n"), strings.Split(form[0], "\n")); d != "" {
		return fmt.Errorf("%s: the replays differ: %s", t.name, d)
	}
	if strings.Contains(form[0], "live false") || !strings.Contains(form[0], "live true") {
		return fmt.Errorf("%s: what is replayed is not what was live", t.name)
	}
	return nil
}

// counted are beginnings of names of what a workload leaves in /metrics, times excepted.
var counted = []string{
	"vllm:prefix_cache_", "vllm:external_prefix_cache_", "vllm:prompt_tokens", "vllm:generation_tokens",
	"vllm:num_preemptions", "vllm:request_success",
	"vllm:nixl_num_failed", "vllm:nixl_num_kv", "vllm:nixl_num_notifications",
	"vllm:nixl_xfer_time_seconds_count", "vllm:request_prompt_tokens", "vllm:request_generation_tokens",
	"vllm:request_params_", "vllm:request_max_num_generation_tokens",
	"vllm:request_prefill_kv_computed_tokens", "vllm:request_num_preemptions",
}

// counters are the series of an engine that both kinds count alike.
func counters(ctx context.Context, url string) (map[string]float64, error) {
	text, err := get(ctx, url+"/metrics")
	if err != nil {
		return nil, err
	}
	all := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || strings.Contains(line, "_created") ||
			!slices.ContainsFunc(counted, func(begin string) bool { return strings.HasPrefix(line, begin) }) {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		all[line[:at]] = v
	}
	return all, nil
}

// sameCounts compares by how much the counters of the two have grown.
func (t *twin) sameCounts(ctx context.Context, before [2]map[string]float64) error {
	var grown [2]map[string]float64
	for i, url := range t.urls {
		after, err := counters(ctx, url)
		if err != nil {
			return err
		}
		grown[i] = map[string]float64{}
		for name, v := range after {
			grown[i][name] = v - before[i][name]
		}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(grown[0])) {
		if s, ok := grown[1][name]; !ok || s != grown[0][name] {
			errs = append(errs, fmt.Errorf("%s: %s grew by %v, simulated by %v", t.name, name, grown[0][name], s))
		}
	}
	say("twin: counters of %s: %d series, %d differ", t.name, len(grown[0]), len(errs))
	return errors.Join(errs...)
}

// together asks for disjoint prompts at once, twice: whatever the order, everything is stored, and found the
// second time.
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

// sameSum compares what was stored, whatever the order.
func (t *twin) sameSum(ctx context.Context) error {
	var stored [2][]string
	return eventually(ctx, 5*time.Second, func() error {
		for i, l := range t.ears {
			messages, err := l.heard()
			if err != nil {
				return err
			}
			if stored[i], err = contents(messages); err != nil {
				return err
			}
		}
		if d := firstDifference(stored[1], stored[0]); d != "" {
			return fmt.Errorf("%s: the stored blocks differ: %s", t.name, d)
		}
		if len(stored[0]) == 0 {
			return fmt.Errorf("%s: nothing was stored", t.name)
		}
		return nil
	})
}

// sameSeries compares the names in /metrics.
func sameSeries(ctx context.Context, t *twin) error {
	var names [2]map[string]bool
	for i, url := range t.urls {
		text, err := get(ctx, url+"/metrics")
		if err != nil {
			return err
		}
		names[i] = conformance.Names(string(text))
	}
	var errs []error
	for _, n := range slices.Sorted(maps.Keys(names[0])) {
		if !names[1][n] {
			errs = append(errs, fmt.Errorf("%s: the simulated engine has no %s in /metrics", t.name, n))
		}
	}
	for _, n := range slices.Sorted(maps.Keys(names[1])) {
		if !names[0][n] {
			errs = append(errs, fmt.Errorf("%s: the real engine has no %s in /metrics", t.name, n))
		}
	}
	say("twin: /metrics of %s: %d series, %d differ", t.name, len(names[0]), len(errs))
	return errors.Join(errs...)
}

// awaitExpiry waits until the leases are over that nobody could read.
func (p *twinnedPair) awaitExpiry(ctx context.Context) error {
	w := &workload{}
	return eventually(ctx, 35*time.Second,
		func() error { return errors.Join(w.holds(ctx, p.p, 0), w.holds(ctx, p.d, 0)) })
}

func (t *twin) usage(ctx context.Context, i int) (float64, error) {
	text, err := get(ctx, t.urls[i]+"/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "vllm:kv_cache_usage_perc{") {
			return strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		}
	}
	return 0, errors.New("no vllm:kv_cache_usage_perc")
}
