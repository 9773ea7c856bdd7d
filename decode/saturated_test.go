package decode

import (
	"strings"
	"testing"
	"time"
)

// expects books requests of 100 blocks each, whose blocks take two seconds to come and have been asked for.
func expects(t *testing.T, p *Pool, n int) (leases []*Lease) {
	t.Helper()
	for range n {
		q := &Query{Model: "m", Tokens: 94 * 16, MaxTokens: 160, Split: true, Local: true}
		c, _, _ := p.Candidates(q, start, nil, nil)
		if len(c) != 1 || c[0].Saturated {
			t.Fatalf("%d requests of 100 of 1000 blocks wait for their blocks: %+v", len(leases), c)
		}
		l := p.Book(&c[0], q, Schedule{AdmitAt: start, SendAt: start, LandAt: start, Transfer: 2 * time.Second}, start)
		l.MarkSent(start)
		leases = append(leases, l)
	}
	return leases
}

// Half of a replica's room is for those who wait for their blocks. Who may compute the prompt there does so
// in the other half, and who may not waits at the router until some of the blocks are there.
func TestThoseWhoWaitForBlocksTakeHalfOfTheRoom(t *testing.T) {
	p := pool(0)
	leases := expects(t, p, 6)
	ask := func(q *Query) ([]Candidate, []Excluded) {
		q.Model = "m"
		q.Tokens, q.MaxTokens = 94*16, 160
		var out []Excluded
		c, _, _ := p.Candidates(q, start, nil, &out)
		return c, out
	}
	if c, _ := ask(&Query{Split: true, Local: true}); len(c) != 1 || !c[0].Saturated {
		t.Errorf("600 of 1000 blocks wait: %+v, want a candidate that gets no other blocks", c)
	}
	if c, _ := ask(&Query{Local: true}); len(c) != 1 || c[0].Saturated {
		t.Errorf("nobody can compute the prompt elsewhere: %+v, want a candidate", c)
	}
	c, out := ask(&Query{Split: true})
	if len(c) != 0 || len(out) != 1 {
		t.Fatalf("it may not be computed there: candidates %+v, excluded %+v", c, out)
	}
	// 12 s for 600 blocks: 500 are left in 2 s, and 100 more fit every 2 s.
	if e := out[0]; !strings.Contains(e.Reason, "12.0 s, who take half of its room") ||
		e.Room.Round(time.Millisecond) != 2*time.Second || e.Every.Round(time.Millisecond) != 2*time.Second {
		t.Errorf("excluded %+v", e)
	}
	// By the time the prompt is computed, half of the blocks have come.
	if c, _ := ask(&Query{Split: true, Ready: 6 * time.Second}); len(c) != 1 || c[0].Saturated {
		t.Errorf("ready in 6 s: %+v, want a candidate", c)
	}
	leases[0].FirstToken(start)
	if c, _ := ask(&Query{Split: true}); len(c) != 1 || c[0].Saturated {
		t.Errorf("the blocks of one have come: %+v, want a candidate", c)
	}
}

// Where a prompt has no room to be computed now, either, its request waits at the router, too.
func TestNobodyFollowsBlocksIntoAFullReplica(t *testing.T) {
	p := pool(0.38)
	expects(t, p, 6)
	q := &Query{Model: "m", Tokens: 94 * 16, MaxTokens: 160, Split: true, Local: true}
	var out []Excluded
	if c, _, _ := p.Candidates(q, start, nil, &out); len(c) != 0 {
		t.Errorf("%+v, want no candidate", c)
	}
	if len(out) != 1 || !strings.Contains(out[0].Reason, "has room for 20 blocks, not 100") {
		t.Errorf("excluded %+v", out)
	}
}

// A request that takes most of a replica is alone in waiting for its blocks.
func TestALargeRequestIsNotKeptOutByItself(t *testing.T) {
	p := pool(0)
	q := &Query{Model: "m", Tokens: 900 * 16, MaxTokens: 160, Split: true}
	c, _, _ := p.Candidates(q, start, nil, nil)
	if len(c) != 1 || c[0].Saturated {
		t.Fatalf("%+v, want a candidate", c)
	}
	p.Book(&c[0], q, Schedule{AdmitAt: start, SendAt: start, LandAt: start, Transfer: 2 * time.Second}, start)
	small := &Query{Model: "m", Tokens: 16, MaxTokens: 16, Split: true, Local: true}
	if c, _, _ := p.Candidates(small, start, nil, nil); len(c) != 1 || !c[0].Saturated {
		t.Errorf("behind it: %+v, want a candidate that gets no other blocks", c)
	}
}

// Those of other routers count like ours.
func TestBlocksForOtherRoutersSaturate(t *testing.T) {
	p := pool(0)
	p.MergePeer("r2", []PeerLoad{{
		ID: "d1", Sequences: 8, Arriving: 6, Held: 800, Promised: 800, Moving: 12 * time.Second,
	}}, start)
	q := &Query{Model: "m", Tokens: 94 * 16, MaxTokens: 160, Split: true, Local: true}
	if c, _, _ := p.Candidates(q, start, nil, nil); len(c) != 1 || !c[0].Saturated {
		t.Errorf("%+v, want a candidate that gets no other blocks", c)
	}
}
