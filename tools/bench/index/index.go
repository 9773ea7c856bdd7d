// Package index measures internal/kv and how fast events get into it, at sizes of a large fleet.
// docs/benchmarks.md explains each figure.
//
// The resident blocks come from the conversation trace (corpus.go). The trace is repeated (story.go) for
// engines that keep as many blocks as they have room for (engine.go, fleet.go) and publish their events as
// vLLM does. resident.go fills an index from these events. lookup.go, ingest.go, load.go and
// bytes.go measure. machine.go measures the machine, and limits.go what the machine allows.
package index

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"time"
)

// Plan says what is measured, and how often or how long. The zero value cannot be used; see [Full] and
// [Quick].
type Plan struct {
	Resident []int  // blocks in the index, counted once per holder
	Holders  []int  // numbers of holders, each at least 8; one word of the index has up to 64 holders
	Runs     int    // measurements of each figure
	Trace    string // a conversation trace to use instead of the built-in one

	Prompt      int           // blocks of the long prompts
	Prompts     int           // long prompts per million resident blocks, at least 2
	Lookups     int           // of long prompts in a run
	Scrub       int           // bytes read between two lookups of long prompts, so that CPU caches are cold
	Turns       int           // of the trace, looked up in a run
	Changes     int           // blocks stored and removed in a run
	Load        time.Duration // length of a run under load
	ChangeRate  int           // blocks stored and removed a second under load
	LookupRate  int           // lookups a second under load
	Clearing    int           // blocks of a holder that is removed
	ClearRuns   int           // how often a holder is removed
	MachineSize int           // bytes of the array by which memory speed is measured
}

// Full is the plan of make bench.
func Full(runs int) Plan {
	return Plan{
		Resident: []int{1_000_000, 10_000_000}, Holders: []int{64, 256}, Runs: runs,
		Prompt: 6250, Prompts: 24, Lookups: 200, Scrub: 8 << 20, Turns: 2000, Changes: 1_000_000,
		Load: time.Second, ChangeRate: 1_000_000, LookupRate: 20_000, Clearing: 1_000_000, ClearRuns: min(runs, 3),
		MachineSize: 1 << 30,
	}
}

// Quick is small enough for a test. Its figures mean nothing.
func Quick() Plan {
	return Plan{
		Resident: []int{40_000, 80_000}, Holders: []int{8, 72}, Runs: 1,
		Prompt: 64, Prompts: 2, Lookups: 4, Scrub: 1 << 10, Turns: 20, Changes: 4000,
		Load: 5 * time.Millisecond, ChangeRate: 1_000_000, LookupRate: 20_000, Clearing: 2000, ClearRuns: 1,
		MachineSize: 1 << 20,
	}
}

// memoryLimit is below 3 GB, to leave memory for everything outside of Go's heap.
const memoryLimit = 2750 << 20

// Report receives the results. Measure calls its functions from its own goroutine.
type Report struct {
	Add func(name string, value float64) // a sample of a figure
	Say func(format string, args ...any) // progress
}

// Measure carries out the plan. It reports the samples of every setting, named with size and holders
// ("lookup_6250_us_10m_64h"). Plain names have the samples of the hardest setting. It also reports the speed
// of the machine and the limits that follow from it. Tables go to w. Measure sets Go's soft memory limit to
// memoryLimit.
func Measure(ctx context.Context, p Plan, r Report, w io.Writer) error {
	turns, err := corpus(p.Trace)
	if err != nil {
		return err
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(memoryLimit))
	m := &measurement{plan: p, report: r, story: &story{turns}, samples: map[string]map[string][]float64{}}
	m.machine = measureMachine(p.MachineSize)
	for range min(p.Runs, 3) - 1 {
		m.machine = m.machine.best(measureMachine(p.MachineSize))
	}
	m.machine.add(r)
	for _, resident := range p.Resident {
		for _, holders := range p.Holders {
			if err := m.setting(ctx, resident, holders); err != nil {
				return fmt.Errorf("%s: %w", label(resident, holders), err)
			}
		}
	}
	m.headlines()
	m.table(w)
	m.limits(w)
	return nil
}

// measurement is one call of Measure.
type measurement struct {
	plan    Plan
	report  Report
	story   *story
	machine machine

	samples  map[string]map[string][]float64 // by figure and label
	names    []string                        // figures in the order of their first samples
	settings []string                        // labels in order
	at       string                          // label of the current setting
	counts   counts                          // of the last setting
}

// counts are the numbers from which limits are computed.
type counts struct {
	ends         float64 // different depths in the result of a lookup of the trace, on average
	storedBytes  float64 // payload bytes per stored block
	removedBytes float64 // payload bytes per removed block
	batchStored  float64 // blocks that the mean batch stores
	batchRemoved float64
}

func label(resident, holders int) string {
	if resident < 1_000_000 {
		return fmt.Sprintf("%dk_%dh", resident/1000, holders)
	}
	return fmt.Sprintf("%dm_%dh", resident/1_000_000, holders)
}

func (m *measurement) add(name string, v float64) {
	if m.samples[name] == nil {
		m.samples[name] = map[string][]float64{}
		m.names = append(m.names, name)
	}
	m.samples[name][m.at] = append(m.samples[name][m.at], v)
	m.report.Add(name+"_"+m.at, v)
}

func (m *measurement) say(format string, args ...any) {
	m.report.Say("index %s: "+format, append([]any{m.at}, args...)...)
}

// setting measures all figures at one size and number of holders.
func (m *measurement) setting(ctx context.Context, size, holders int) error {
	m.at = label(size, holders)
	m.settings = append(m.settings, m.at)
	if err := m.bytes(ctx, size, holders); err != nil {
		return err
	}
	r, err := m.fill(ctx, size, holders)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		run  func(*resident) error
	}{
		{"long prompts", m.longPrompts},
		{"the trace's prompts", m.tracePrompts},
		{"ingest", m.ingest},
		{"apply", m.apply},
		{"under load", m.load},
		{"a holder leaves", m.stall},
	} {
		if err := ctx.Err(); err != nil {
			return err
		}
		m.say("%s", step.name)
		if err := step.run(r); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	m.heapOf(r)
	return nil
}
