package house_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// worked is the part of a recorded decision that docs/scoring.md explains.
type worked struct {
	Reason string  `json:"reason"`
	TTFT   float64 `json:"predicted_ttft_ms"`
	Plans  []struct {
		Prefill string             `json:"prefill"`
		Decode  string             `json:"decode"`
		Terms   map[string]float64 `json:"terms"`
		Total   float64            `json:"total"`
	} `json:"plans"`
}

// workedRow is a row of the table: a plan, its terms, its total.
var workedRow = regexp.MustCompile(`(?m)^\| \*{0,2}(\w+ > \w+|\w+ alone)\*{0,2} \|(.+)\|$`)

// The worked example of docs/scoring.md has the planner's terms of each plan.
func TestTheWorkedExampleIsWhatIsDecided(t *testing.T) {
	atRoot(t)
	var of worked
	if err := json.Unmarshal([]byte(document(t, "orchestrator/planner/testdata/worked.json")), &of); err != nil {
		t.Fatal(err)
	}
	text := document(t, "docs/scoring.md")
	columns := []string{"wait", "prefill", "transfer", "decode", "interference", "pressure", "total"}
	if head := "| plan | " + strings.Join(columns, " | ") + " |"; !strings.Contains(text, head) {
		t.Fatalf("docs/scoring.md has no table with %s", head)
	}
	rows := map[string][]string{}
	for _, m := range workedRow.FindAllStringSubmatch(text, -1) {
		rows[m[1]] = strings.Split(m[2], "|")
	}
	if len(rows) != len(of.Plans) {
		t.Errorf("docs/scoring.md has %d plans, of %d that are recorded", len(rows), len(of.Plans))
	}
	for _, p := range of.Plans {
		name := p.Prefill + " > " + p.Decode
		if p.Prefill == "" {
			name = p.Decode + " alone"
		}
		cells := rows[name]
		if len(cells) != len(columns) {
			t.Errorf("docs/scoring.md has no row for %s", name)
			continue
		}
		p.Terms["total"] = p.Total
		for i, column := range columns {
			want := strings.TrimPrefix(fmt.Sprintf("%.1f", p.Terms[column]), "0.0")
			if got := strings.Trim(cells[i], " *"); got != want {
				t.Errorf("docs/scoring.md: %s of %s is %q, by the planner %q", column, name, got, want)
			}
			delete(p.Terms, column)
		}
		for term, ms := range p.Terms {
			if ms > 0.05 {
				t.Errorf("docs/scoring.md has no column for %s, which is %.1f of %s", term, ms, name)
			}
		}
	}
	for _, said := range []string{of.Reason, fmt.Sprintf("time to the first token is %.0f ms", of.TTFT)} {
		if !strings.Contains(text, said) {
			t.Errorf("docs/scoring.md does not say %q", said)
		}
	}
}
