package tiers

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// The load is what the guide says. A stage begins after the last answer of the stage before, and with the
// same prompts. Only so many requests are under way.
func TestLoadOfTheGuide(t *testing.T) {
	l := newGuideLoad(1, guideStages())
	now, n := time.Duration(0), 0
	heads, prompts := map[uint64]bool{}, map[uint64]bool{}
	first := map[uint64]bool{} // heads of the stages' first prompts
	for {
		s, err := l.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, cluster.ErrNotYet) {
			now += 10 * time.Millisecond
			l.Ended(now)
			continue
		}
		ids := s.AppendBlocks(nil, 0)
		if s.Calls[0].Input != 7576 || s.Calls[0].Output != 1000 || l.open > guideInFlight {
			t.Fatalf("%d under way: %+v", l.open, s.Calls[0])
		}
		if now = max(now, s.At); l.next == 1 {
			first[ids[0]] = true
		}
		heads[ids[0]], prompts[ids[len(ids)-1]] = true, true
		n++
	}
	total := 0
	for _, s := range guideStages() {
		total += s.rate * s.seconds
	}
	if n != 17_084 || n != total || len(heads) != 150 || len(prompts) != 750 || len(first) != 1 ||
		len(l.began()) != 17 || l.open != 0 {
		t.Errorf("%d requests, %d groups, %d prompts, %d stages, %v", n, len(heads), len(prompts),
			len(l.began()), first)
	}
}

// In a small version of the guide, the policy that knows what the replicas hold computes least.
func TestPoliciesOfTheGuide(t *testing.T) {
	r := Guide()
	r.fleet = func(a Arm) cluster.Config {
		c := guideFleet(a)
		c.Nodes[cluster.Decode] = c.Nodes[cluster.Decode][:2]
		for i := range c.Nodes[cluster.Decode] {
			c.Nodes[cluster.Decode][i].Engine.Blocks /= 4
		}
		return c
	}
	r.load = func(seed uint64) staged {
		l := newGuideLoad(seed, []guideStage{{1, 50}, {2, 25}, {3, 20}})
		l.order = l.rnd.Perm(10 * guidePrompts)
		return l
	}
	rows, err := Run(t.Context(), Options{Record: r, Seeds: 1})
	if err != nil || len(rows) != 5 {
		t.Fatal(len(rows), err)
	}
	for i, row := range rows {
		if row.Refused > 0 || len(row.Firsts) != 3 || row.TTFT <= 0 || row.Last <= 0 {
			t.Errorf("%+v", row)
		}
		if blind := i == 2 || i == 3; blind && (row.Hit > rows[0].Hit || row.TTFT < 2*rows[0].TTFT) {
			t.Errorf("%s: %+v\n%s: %+v", rows[0].Arm, rows[0], row.Arm, row)
		}
	}
	var table bytes.Buffer
	if err := Print(&table, rows); err != nil || !strings.Contains(table.String(), "(45.3) |") {
		t.Errorf("%v\n%s", err, table.String())
	}
}
