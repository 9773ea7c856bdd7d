package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// micros are the benchmarks that become figures.
var micros = []struct{ figure, pkg, benchmark string }{
	{"plan_16x16_us", "./orchestrator/planner", "BenchmarkPlan16x16"},
	{"plan_64x64_us", "./orchestrator/planner", "BenchmarkPlan64x64"},
	{"plan_512x512_us", "./orchestrator/planner", "BenchmarkPlan512x512"},
	{"plan_idle_512x512_us", "./orchestrator/planner", "BenchmarkPlanIdle512x512"},
	{"keys_131072_us", "./internal/kv", "BenchmarkKeys131072"},
}

// micro runs each Go benchmark as often as the other figures are measured.
func (b *bench) micro(ctx context.Context) error {
	for _, m := range micros {
		b.say("micro: %s", m.benchmark)
		cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^"+m.benchmark+"$", "-count",
			strconv.Itoa(b.o.runs), "-benchtime", "1s", m.pkg)
		out, err := cmd.CombinedOutput()
		if err != nil {
			b.say("%s: %v: %s", m.benchmark, err, strings.TrimSpace(string(out)))
			continue
		}
		values := nsPerOp(string(out), m.benchmark)
		if len(values) == 0 {
			return fmt.Errorf("%s has no such benchmark: %s", m.pkg, m.benchmark)
		}
		for _, ns := range values {
			b.add(m.figure, ns/1e3)
		}
	}
	return nil
}

// nsPerOp reads the output of go test -bench.
func nsPerOp(out, benchmark string) (values []float64) {
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[3] != "ns/op" {
			continue
		}
		name, _, _ := strings.Cut(fields[0], "-")
		if name != benchmark {
			continue
		}
		if v, err := strconv.ParseFloat(fields[2], 64); err == nil {
			values = append(values, v)
		}
	}
	return values
}
