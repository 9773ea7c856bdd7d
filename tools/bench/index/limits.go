package index

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// median returns the middle of samples.
func median(samples []float64) float64 {
	s := slices.Sorted(slices.Values(samples))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// rate reports whether a higher value is better.
func rate(name string) bool { return strings.HasSuffix(name, "_mblocks_s") }

// hardest returns the settings of the largest size.
func (m *measurement) hardest() []string { return m.settings[len(m.settings)-len(m.plan.Holders):] }

// worst returns the samples of a figure at the hardest setting: the largest size, and the number of holders
// with the worse median.
func (m *measurement) worst(name string) (worst []float64) {
	for _, at := range m.hardest() {
		s := m.samples[name][at]
		if worst == nil || rate(name) && median(s) < median(worst) || !rate(name) && median(s) > median(worst) {
			worst = s
		}
	}
	return worst
}

// headlines reports every figure under its plain name.
func (m *measurement) headlines() {
	for _, name := range m.names {
		for _, v := range m.worst(name) {
			m.report.Add(name, v)
		}
	}
}

// table prints the medians of all settings.
func (m *measurement) table(w io.Writer) {
	tw := tabwriter.NewWriter(w, 2, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "index\t%s\t\n", strings.Join(m.settings, "\t"))
	for _, name := range m.names {
		fmt.Fprintf(tw, "%s\t", name)
		for _, at := range m.settings {
			fmt.Fprintf(tw, "%.4g\t", median(m.samples[name][at]))
		}
		fmt.Fprintln(tw)
	}
	tw.Flush()
}

// limit is the best possible value of a figure on this machine.
type limit struct {
	name  string
	value float64
	why   string
}

// limits prints each headline with its limit on this machine, and reports the limits.
func (m *measurement) limits(w io.Writer) {
	fmt.Fprintf(w, "\nmemory: %.0f ns per dependent read, %.1f ns per independent read, %.1f GB/s "+
		"sequential; in huge pages %.0f ns, %.1f ns; xxhash of 72 bytes: %.1f ns\n",
		m.machine.latencyNS, m.machine.randomNS, m.machine.bytesPerNS, m.machine.hugeLatencyNS,
		m.machine.hugeRandomNS, m.machine.hashNS)
	tw := tabwriter.NewWriter(w, 2, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "figure\tis\tlimit\tof it\tlimit counts")
	for _, l := range m.machine.limitsOf(m.counts) {
		m.report.Add("limit_"+l.name, l.value)
		is := median(m.worst(l.name))
		far := is / l.value
		if rate(l.name) {
			far = l.value / is
		}
		fmt.Fprintf(tw, "%s\t%.4g\t%.4g\t%.3gx\t%s\n", l.name, is, l.value, far, l.why)
	}
	tw.Flush()
}

// limitsOf counts, for each figure, the cache misses and bytes that every index needs. A miss that waits for
// no other miss costs randomNS.
func (m machine) limitsOf(c counts) []limit {
	probes := func(ends float64) float64 { return (m.latencyNS + max(2*ends-1, 0)*m.randomNS) / 1e3 }
	removed := 2 * m.randomNS
	stored := 2*m.randomNS + m.hashNS + (4*blockTokens+8)/m.bytesPerNS
	batch := func(stored, removed float64) float64 { return c.batchStored*stored + c.batchRemoved*removed }
	rate := func(stored, removed float64) float64 {
		return min((c.batchStored+c.batchRemoved)/max(batch(stored, removed), 1), 1/stored) * 1e3
	}
	wireStored, wireRemoved := stored+c.storedBytes/m.bytesPerNS, removed+c.removedBytes/m.bytesPerNS
	return []limit{
		{
			"lookup_6250_us", probes(promptHolders),
			"two misses at each of 8 ends; all but the first overlap",
		},
		{"lookup_corpus_mean_us", probes(c.ends), fmt.Sprintf("the same with %.2f ends", c.ends)},
		{"lookup_corpus_p99_us", probes(c.ends), "the same"},
		{"ingest_mblocks_s", rate(wireStored, wireRemoved), fmt.Sprintf(
			"reads %.0f bytes per stored and %.0f per removed block, then applies", c.storedBytes, c.removedBytes,
		)},
		{
			"apply_mblocks_s", rate(stored, removed),
			"one miss by engine hash and one by key; a stored block: 72 bytes read and hashed",
		},
		{"lookup_p99_under_ingest_us", probes(c.ends), "a lookup without waiting"},
		{"event_applied_p99_ms", batch(wireStored, wireRemoved) / 1e6, fmt.Sprintf(
			"a batch of %.0f stored and %.0f removed blocks at the limit of ingest", c.batchStored, c.batchRemoved,
		)},
		{"bytes_per_membership", 16, "engine hash and key: neither can be computed from the other"},
		{"clear_reader_stall_ms", probes(c.ends) / 1e3, "a lookup without waiting"},
	}
}
