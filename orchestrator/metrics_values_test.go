package orchestrator

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// valuesOnPage returns the possible values of labels from the table in docs/metrics.md, by the names in
// its first column.
func valuesOnPage(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## Values of labels\n")
	if !found {
		t.Fatal("docs/metrics.md does not say what labels can be")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	values, quoted := map[string][]string{}, regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, name := range quoted.FindAllStringSubmatch(cells[1], -1) {
			for _, value := range quoted.FindAllStringSubmatch(cells[2], -1) {
				values[name[1]] = append(values[name[1]], value[1])
			}
		}
	}
	return values
}

func sameValues(t *testing.T, what string, page, code []string) {
	t.Helper()
	for _, v := range code {
		if !slices.Contains(page, v) {
			t.Errorf("docs/metrics.md lacks the value of %s: %q", what, v)
		}
	}
	for _, v := range page {
		if !slices.Contains(code, v) {
			t.Errorf("docs/metrics.md has a value of %s that does not exist: %q", what, v)
		}
	}
}

// Label values are part of the contract too: whoever writes an alert needs every value.
func TestLabelValuesOnThePageAreThoseOfTheCode(t *testing.T) {
	page := valuesOnPage(t)
	sameValues(t, "a kind of failure", page["kind of failure"], failureNames())
	sameValues(t, "phase of tandem_phase_seconds", page["tandem_phase_seconds{phase}"], observe.PhaseNames[:])
	sameValues(t, "a state of a replica", page["tandem_replica_state{state}"], fleet.StateNames())

	var legs, kinds []string
	for l := outlier.Prefill; l.String() != "?"; l++ {
		legs = append(legs, l.String())
	}
	for k := outlier.Refused; k.String() != "?"; k++ {
		kinds = append(kinds, k.String())
	}
	sameValues(t, "leg of an ejection", page["tandem_ejections_total{leg}"], legs)
	sameValues(t, "leg of an attempt", page["tandem_attempt_failures_total{leg}"], append(legs, "pair"))
	sameValues(t, "kind of an attempt", page["tandem_attempt_failures_total{kind}"], kinds)
	sameValues(t, "leg of a prediction", page["tandem_leg_prediction_ratio{leg}"],
		[]string{observe.LegPrefill, observe.LegDecode, observe.LegLocal})
	sameValues(t, "by what lengths are expected", page["tandem_output_prediction_ratio{by}"],
		[]string{observe.ByHint, observe.ByLearned})
}

// The runbook names each kind of failure beside its status.
func TestTheRunbookHasEachKindOfFailure(t *testing.T) {
	page, err := os.ReadFile("../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Status codes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	named := map[string]string{} // the statuses by the name of a kind
	quoted := regexp.MustCompile("`([a-z_]+)[0-9]*`")
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, name := range quoted.FindAllStringSubmatch(cells[2], -1) {
			named[name[1]] += cells[1]
		}
	}
	for kind := range failureKinds {
		row := &failureTable[kind]
		if status := strconv.Itoa(row.status); row.status != 0 && !strings.Contains(named[row.name], status) {
			t.Errorf("docs/runbook.md does not name %q beside the status %s", row.name, status)
		}
	}
	for name := range named {
		if !slices.Contains(failureNames(), name) {
			t.Errorf("docs/runbook.md names %q, but there is no such kind of failure", name)
		}
	}
}

// Series that exist from the start have label values that docs/metrics.md names.
func TestSeriesBeginWithValuesOfThePage(t *testing.T) {
	page, registry := valuesOnPage(t), prometheus.NewRegistry()
	m := newMetrics(registry)
	m.Ejections.Begin(&replica.Replica{ID: "p", Role: replica.Prefill})
	m.Ejections.Begin(&replica.Replica{ID: "d", Role: replica.Decode})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	looked := 0
	for _, f := range families {
		for _, s := range f.Metric {
			for _, l := range s.Label {
				looked += begunAs(t, page, f.GetName(), l.GetName(), l.GetValue())
			}
		}
	}
	if looked < 20 {
		t.Errorf("checked only %d values", looked)
	}
}

func begunAs(t *testing.T, page map[string][]string, family, label, value string) int {
	t.Helper()
	if label == "pool" || label == "replica" {
		return 0
	}
	at := family + "{" + label + "}"
	known := page[at]
	if family == "tandem_refused_total" {
		known = page["kind of failure"]
	}
	if !slices.Contains(known, value) {
		t.Errorf("a series of %s starts with %q, which docs/metrics.md does not name", at, value)
	}
	return 1
}

// failureNames returns the names of all kinds of failure.
func failureNames() (names []string) {
	for kind := range failureKinds {
		if name := failureTable[kind].name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
