package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

// target is the bound of a figure: an upper bound, or a lower bound if atLeast is set.
type target struct {
	value   float64
	atLeast bool
}

// targets are the bounds on a machine whose 2 cores run engines, front and clients.
var targets = map[string]target{
	"front_rps":            {5500, true},
	"front_streams_per_s":  {2200, true},
	"front_added_p50_us":   {300, false},
	"front_event_cpu_us":   {10, false},
	"front_split_share":    {0.99, true},
	"handoff_gap_us":       {150, false},
	"idle_64_rss_mib":      {100, false},
	"idle_64_cpu_percent":  {5, false},
	"plan_16x16_us":        {50, false},
	"plan_64x64_us":        {150, false},
	"plan_512x512_us":      {500, false},
	"plan_idle_512x512_us": {500, false},
	"keys_131072_us":       {250, false},

	// Tandem's figures divided by vllm-router's.
	"peer_rps_ratio":       {1.3, true},
	"peer_streams_ratio":   {2, true},
	"peer_added_p50_ratio": {0.8, false},

	// At 10 M blocks, 64 and 256 holders.
	"lookup_6250_us":             {60, false},
	"lookup_6250_allocs":         {0, false},
	"lookup_corpus_mean_us":      {2, false},
	"lookup_corpus_p99_us":       {6, false},
	"ingest_mblocks_s":           {3, true},
	"apply_mblocks_s":            {8, true},
	"lookup_p99_under_ingest_us": {50, false},
	"event_applied_p99_ms":       {1, false},
	"bytes_per_membership":       {60, false},
	"clear_reader_stall_ms":      {1, false},
}

// figure is one line of bench.json.
type figure struct {
	Name    string    `json:"name"`
	Value   float64   `json:"value"` // median
	Unit    string    `json:"unit"`
	Runs    int       `json:"runs"`
	Samples []float64 `json:"samples"`
}

// units are the units of figures, by the end of their names.
var units = []struct{ suffix, unit string }{
	{"_vs_reference", "x"},
	{"_ratio", "x"},
	{"_share", "share"},
	{"_us", "us"},
	{"_ms", "ms"},
	{"_computed", ""},
	{"_failed", ""},
	{"_mib", "MiB"},
	{"_percent", "%"},
	{"_rps", "1/s"},
	{"_per_s", "1/s"},
	{"_mblocks_s", "M/s"},
	{"_gb_s", "GB/s"},
	{"_ns", "ns"},
	{"_per_membership", "B"},
	{"_membership_shared", "B"},
	{"_membership_short", "B"},
	{"_membership_churned", "B"},
}

// setting matches the end of a name of an index figure at one size and number of holders.
var setting = regexp.MustCompile(`_[0-9]+[km]_[0-9]+h$`)

func unit(name string) string {
	name = setting.ReplaceAllString(name, "")
	for _, u := range units {
		if strings.HasSuffix(name, u.suffix) {
			return u.unit
		}
	}
	return ""
}

func median(samples []float64) float64 {
	s := slices.Sorted(slices.Values(samples))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// ratio adds the latest sample of one figure divided by the latest sample of another.
func (b *bench) ratio(name, of string) {
	x, y := b.samples[name], b.samples[of]
	if len(x) > 0 && len(y) > 0 && y[len(y)-1] != 0 {
		b.add(name+"_vs_reference", x[len(x)-1]/y[len(y)-1])
	}
}

// latest prints the last sample of each figure that has one.
func (b *bench) latest(names ...string) string {
	var parts []string
	for _, name := range names {
		if s := b.samples[name]; len(s) > 0 {
			parts = append(parts, fmt.Sprintf("%s %.4g", name, s[len(s)-1]))
		}
	}
	return strings.Join(parts, ", ")
}

func (b *bench) figures() []figure {
	all := make([]figure, 0, len(b.order))
	for _, name := range b.order {
		s := b.samples[name]
		all = append(all, figure{Name: name, Value: median(s), Unit: unit(name), Runs: len(s), Samples: s})
	}
	return all
}

// write puts the figures into a file. Figures in the file that were not measured this time stay.
func (b *bench) write(path string) error {
	all, err := readFigures(path)
	if err != nil {
		return err
	}
	for _, f := range b.figures() {
		if at := slices.IndexFunc(all, func(old figure) bool { return old.Name == f.Name }); at >= 0 {
			all[at] = f
		} else {
			all = append(all, f)
		}
	}
	out, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(out, '\n'), 0o644)
}

// readFigures reads the figures of a file. A missing file has none.
func readFigures(path string) ([]figure, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []figure
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it", path, err)
	}
	return all, nil
}

// table prints each figure with its target and its spread. It omits single settings of the index, which
// prints its own table.
func (b *bench) table(w io.Writer) {
	tw := tabwriter.NewWriter(w, 2, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "figure\tmedian\tunit\tmin\tmax\truns\ttarget\t\t")
	for _, f := range b.figures() {
		if setting.MatchString(f.Name) {
			continue
		}
		fmt.Fprintf(tw, "%s\t%.4g\t%s\t%.4g\t%.4g\t%d\t%s\t\n",
			f.Name, f.Value, f.Unit, slices.Min(f.Samples), slices.Max(f.Samples), f.Runs, against(f))
	}
	tw.Flush()
}

func against(f figure) string {
	t, ok := targets[f.Name]
	if !ok {
		return "\t"
	}
	sign, met := "<=", f.Value <= t.value
	if t.atLeast {
		sign, met = ">=", f.Value >= t.value
	}
	word := "missed"
	if met {
		word = "met"
	}
	return fmt.Sprintf("%s %g\t%s", sign, t.value, word)
}
