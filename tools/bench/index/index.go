// Package index measures internal/kv and the way of an event into it, at sizes of a large fleet: see
// docs/benchmarks.md for what each figure is.
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

// Plan says what is measured and how long. The zero value is no plan; see [Full] and [Quick].
type Plan struct {
	Resident []int  // blocks in the index, counted once per holder
	Holders  []int  // 64 at most share a word of the index; each at least 8
	Runs     int    // how often each figure is taken
	Trace    string // a conversation trace to use instead of the built-in one

	Prompt      int           // blocks of the long prompts
	Prompts     int           // long prompts per million resident blocks, at least 2
	Lookups     int           // of long prompts in a run
	Scrub       int           // bytes read between two lookups of long prompts, to have them find cold caches
	Turns       int           // of the trace, looked up in a run
	Changes     int           // blocks stored and removed in a run
	Load        time.Duration // length of a run under load
	ChangeRate  int           // blocks stored and removed a second under load
	LookupRate  int           // lookups a second under load
	Clearing    int           // blocks of a holder that leaves
	ClearRuns   int           // how often one leaves
	MachineSize int           // bytes of the array that stands for memory
}

// Full is what make bench takes.
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

// memoryLimit leaves, of 3 GB, something for what is not Go's heap.
const memoryLimit = 2750 << 20

// Report takes what is measured. Its functions are called from the goroutine in Measure.
type Report struct {
	Add func(name string, value float64) // a sample of a figure
	Say func(format string, args ...any) // progress
}

// Measure carries out the plan and reports the samples of every setting, named with its size and holders
// ("lookup_6250_us_10m_64h"), of the hardest under the plain names, of the machine, and of the limits that
// follow from it. The tables go to w. Memory is limited, softly, to what a full plan may take.
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
	names    []string                        // figures as they first came
	settings []string                        // labels in order
	at       string                          // label of the setting under way
	counts   counts                          // of the last setting
}

// counts is what limits are computed from.
type counts struct {
	ends         float64 // different depths in the answer to a lookup of the trace, on average
	storedBytes  float64 // of a payload, for each block it stores
	removedBytes float64 // for each block it removes
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

// setting takes all figures at one size and number of holders.
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
