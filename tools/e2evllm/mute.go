package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// mutes is how many requests are sent while one of two prefill engines hands nothing over, and how many at
// a time.
const (
	mutes       = 96
	muteWorkers = 12
)

// mute plays with a prefill engine that was started without a connector: it is healthy and quick, and its
// answers have nothing that could be handed over. No client notices, the router says what it is, and
// splitting goes on by the other.
func mute(ctx context.Context, s *stage) error {
	m := &engine{Name: "m0", Role: producer, Blocks: prefillBlocks, Flags: inChunks, Mute: true}
	if err := s.startEngine(m); err != nil {
		return err
	}
	all := s.engines
	defer func() { s.engines = all }()
	s.engines = slices.DeleteFunc(append(slices.Clone(all), m), func(e *engine) bool { return e.Name == "p1" })
	err := awaitHealthy(ctx, s.engines)
	if err == nil {
		err = s.playMute(ctx, m)
	}
	return errors.Join(err, m.kill())
}

func (s *stage) playMute(ctx context.Context, m *engine) error {
	file, err := s.configure("mute", "local: auto", evenSpeeds, "timeouts: {queue: 2m, probe: 5s}")
	if err != nil {
		return err
	}
	r, err := s.serve(ctx, file)
	if err != nil {
		return err
	}
	results := s.compareAll(ctx, r, phase{
		name: "a prefill engine without a connector", requests: mutes, workers: muteWorkers, seed: s.seed + 9000,
		kinds: everyKind,
	})
	records, err := readRecords(ctx, r)
	if err != nil {
		return err
	}
	err = errors.Join(allExact(results), muteIsOut(ctx, r, m.Name), othersSplit(records, m.Name))
	_, errIdle := s.awaitIdle(ctx, idleLimit)
	return errors.Join(err, errIdle, s.audit(ctx, audited), r.end())
}

// allExact wants no result to differ.
func allExact(results []result) error {
	different := 0
	for _, res := range results {
		if res.diff != "" {
			different++
		}
	}
	if different > 0 || len(results) == 0 {
		return fmt.Errorf("%d of %d answers differ or were refused", different, len(results))
	}
	return nil
}

// muteIsOut wants the router to have taken the engine out of prefilling, and to say why, where people look.
func muteIsOut(ctx context.Context, r *router, name string) error {
	ejected, err := r.series(ctx, "tandem_ejections_total", label("replica", name), label("leg", "prefill"))
	seen, errSeen := readReplicas(ctx, r)
	if err := errors.Join(err, errSeen); err != nil {
		return err
	}
	cause := seen[name].cause("prefill")
	if ejected == 0 || cause == "" {
		return fmt.Errorf("%s hands nothing over, was ejected %v times, and its states are %+v",
			name, ejected, seen[name].States)
	}
	for line := range strings.Lines(r.process.logTail(10000)) {
		if strings.Contains(line, "=WARN") && strings.Contains(line, name) && strings.Contains(line, "eject") {
			say("%s is out: %s", name, cause)
			return nil
		}
	}
	return fmt.Errorf("%s is out (%s), and no line of the log warns of it", name, cause)
}

// cause is why the replica is kept out of a leg, or only tried.
func (seen replicaSeen) cause(leg string) string {
	for _, state := range seen.States {
		if state.State == "ejected_"+leg || state.State == "half_open_"+leg {
			return state.Cause
		}
	}
	return ""
}

// othersSplit wants requests to have been split by others than the replica, in the first half and in the
// second.
func othersSplit(records []record, name string) error {
	slices.SortFunc(records, func(a, b record) int { return a.Time.Compare(b.Time) })
	var halves [2]int
	for i, rec := range records {
		if rec.Mode == "split" && rec.Outcome == "ok" && rec.Prefill == name {
			return fmt.Errorf("%s was split by %s, which hands nothing over", rec.ID, name)
		}
		if rec.Mode == "split" && rec.Outcome == "ok" {
			halves[2*i/max(len(records), 1)]++
		}
	}
	say("split without %s: %v of the halves of %d requests", name, halves, len(records))
	if halves[0] == 0 || halves[1] == 0 {
		return fmt.Errorf("of each half of %d requests %v were split", len(records), halves)
	}
	return nil
}
