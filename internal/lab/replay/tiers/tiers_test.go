package tiers

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/lab/replay/policies"
	"github.com/tandem-router/tandem/internal/lab/trace"
)

// The load is what the record says: so many requests and prompts, and a working set of 1.32 times the memory
// of the prefill GPUs.
func TestLoadOfTheRecord(t *testing.T) {
	l := newLoad(1)
	heads, prompts := map[uint64]bool{}, map[uint64]bool{}
	n := 0
	for ; ; n++ {
		s, err := l.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		ids := s.AppendBlocks(nil, 0)
		if len(ids)*blockSize != 16_256 || s.Calls[0].Input != 16_256 || s.Calls[0].Output != 256 {
			t.Fatalf("%d blocks, %+v", len(ids), s.Calls[0])
		}
		heads[ids[0]], prompts[ids[len(ids)-1]] = true, true
	}
	set := float64(len(heads)*shared + len(prompts)*own)
	if got := set / (prefillReplicas * prefillTokens); n != 10_800 || math.Abs(got-1.32) > 0.005 {
		t.Errorf("%d requests, %d groups, %d prompts: %.3f of the memory", n, len(heads), len(prompts), got)
	}
}

// A prompt of 8,192 token ids, alone in the fleet, has its first token when the guide says, and the guide's
// load has its time from token to token.
func TestCostsOfTheGuide(t *testing.T) {
	c := fleet(true)
	c.Host.Token = 0
	router, err := policies.New("llm-d-tiers", c, 1)
	if err != nil {
		t.Fatal(err)
	}
	cl, err := cluster.New(c, router, &lone{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	r, err := cl.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := 8192 / r.Records[0].TTFT.Seconds(); math.Abs(got/33_821-1) > 0.01 {
		t.Errorf("%.0f tokens a second", got)
	}
	d := decodeCost()
	if got := d.Host + d.D0 + 41*d.D1 + 41*5125*d.D2; math.Abs(got-7.4e-3) > 1e-9 || d.D0 <= 0 {
		t.Errorf("%.5f s a token, %+v", got, d)
	}
}

// lone is one request of a step.
type lone struct{ over bool }

func (l *lone) Next() (*trace.Session, error) {
	if l.over {
		return nil, io.EOF
	}
	l.over = true
	return trace.Single(0, 0, 8192, 2, nil), nil
}

// In a small version of the record, host memory saves computation, and a router that knows what is there
// saves more.
func TestHostMemorySavesWork(t *testing.T) {
	var rows [3]Row
	for i, arm := range arms()[:3] {
		c := fleet(arm.Tier)
		c.Poll = arm.Poll
		for p := range c.Nodes[cluster.Prefill] {
			c.Nodes[cluster.Prefill][p].Engine.Blocks = 4000
		}
		l := newLoad(1)
		l.at = l.at[:1800] // the stages of 5 to 15 a second
		l.order = l.order[:600]
		for i := range l.order {
			l.order[i] %= 150 * prompts
		}
		router, err := policies.New(arm.Policy, c, 1)
		if err != nil {
			t.Fatal(err)
		}
		cl, err := cluster.New(c, router, l, 1)
		if err != nil {
			t.Fatal(err)
		}
		r, err := cl.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rows[i].Arm, rows[i].published = arm.Name, arm.Published
		rows[i].sum(r, l.began())
	}
	if rows[0].Restored != 0 || rows[1].Restored == 0 || rows[2].Restored == 0 || rows[0].Hit > rows[1].Hit ||
		rows[1].Hit > rows[2].Hit || rows[2].Latency >= rows[0].Latency {
		t.Errorf("%+v", rows)
	}
	var table bytes.Buffer
	if err := Print(&table, rows[:]); err != nil || !strings.Contains(table.String(), "(9.1)") {
		t.Errorf("%v\n%s", err, table.String())
	}
}
