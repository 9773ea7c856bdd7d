package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/conformance"
)

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

// sameReplay asks both engines for replays from several sequence numbers, and compares the frames.
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

// counted are prefixes of the metrics that a workload changes, without times.
var counted = []string{
	"vllm:prefix_cache_", "vllm:external_prefix_cache_", "vllm:prompt_tokens", "vllm:generation_tokens",
	"vllm:num_preemptions", "vllm:request_success",
	"vllm:nixl_num_failed", "vllm:nixl_num_kv", "vllm:nixl_num_notifications",
	"vllm:nixl_xfer_time_seconds_count", "vllm:request_prompt_tokens", "vllm:request_generation_tokens",
	"vllm:request_params_", "vllm:request_max_num_generation_tokens",
	"vllm:request_prefill_kv_computed_tokens", "vllm:request_num_preemptions",
}

// counters are the series of an engine that both kinds must count equally.
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

// sameCounts compares the growth of the counters of both.
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
			errs = append(errs, fmt.Errorf("%s: %s grew by %v, simulated by %v", t.name, name, grown[0][name],
				s))
		}
	}
	say("twin: counters of %s: %d series, %d differ", t.name, len(grown[0]), len(errs))
	return errors.Join(errs...)
}

// sameSum compares the stored blocks in any order.
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
