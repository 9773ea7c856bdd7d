package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// mutes is the number of requests sent while one of two prefill engines hands nothing over, and muteWorkers
// the number at a time.
const (
	mutes       = 96
	muteWorkers = 12
)

// mute plays with a prefill engine without a connector: the engine is healthy and quick, but its answers have
// no transfer parameters. Clients must see no error, the router must report the cause, and the other prefill
// engine must take the splits.
func mute(ctx context.Context, s *stage) error {
	m := &engine{Name: "m0", Role: producer, Blocks: prefillBlocks, Flags: inChunks, Mute: true}
	if err := s.startEngine(m); err != nil {
		return err
	}
	all := s.engines
	defer func() { s.engines = all }()
	s.engines = slices.DeleteFunc(append(slices.Clone(all), m),
		func(e *engine) bool { return e.Name == "p1" })
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
		name: "a prefill engine without a connector", requests: mutes, workers: muteWorkers,
		seed:  s.seed + 9000,
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

// allExact requires all results to be equal to the reference's.
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

// muteIsOut requires that the router has ejected the engine from prefilling and shows the reason to
// operators.
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
		if strings.Contains(line, "=WARN") && strings.Contains(line, name) && strings.Contains(line,
			"eject") {
			say("%s is out: %s", name, cause)
			return nil
		}
	}
	return fmt.Errorf("%s is out (%s), but the log has no warning", name, cause)
}

// cause is the reason why a leg of the replica is ejected or half open.
func (seen replicaSeen) cause(leg string) string {
	for _, state := range seen.States {
		if state.State == "ejected_"+leg || state.State == "half_open_"+leg {
			return state.Cause
		}
	}
	return ""
}

// othersSplit requires that other replicas prefilled split requests, in the first half of the requests and in
// the second.
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
		return fmt.Errorf("split requests in each half of %d requests: %v", len(records), halves)
	}
	return nil
}
