package decode

import (
	"strings"
	"testing"
	"time"

	"tandem/scoring"
)

// expects books requests of 100 blocks each, whose blocks take two seconds to come and have been asked for.
func expects(t *testing.T, p *Pool, n int) (leases []*Lease) {
	t.Helper()
	for range n {
		q := &Query{Model: "m", Tokens: 94 * 16, MaxTokens: 160, Split: true, Local: true}
		c, _, _ := p.Candidates(q, start, nil, nil)
		if len(c) != 1 || c[0].Saturated {
			t.Fatalf("%d requests of 100 of 1000 blocks wait: %+v", len(leases), c)
		}
		l := p.Book(&c[0], q,
			Schedule{AdmitAt: start, SendAt: start, LandAt: start, Transfer: 2 * time.Second}, start)
		l.MarkSent(start)
		leases = append(leases, l)
	}
	return leases
}

// Half of a replica's room is for those who wait for their blocks, while others' prompts can be computed
// there in the other half.
func TestThoseWhoWaitForBlocksTakeHalfOfTheRoom(t *testing.T) {
	p := pool(0)
	leases := expects(t, p, 6)
	for _, tt := range []struct {
		name      string
		query     Query
		saturated bool
	}{
		{"600 of 1000 blocks wait for 12 s", Query{Split: true, Local: true}, true},
		{"nobody computes prompts there", Query{Split: true}, false},
		{"nobody computes prompts elsewhere", Query{Local: true}, false},
		{"half of them have come when it is ready", Query{Split: true, Local: true, Ready: 6 * time.Second}, false},
		{"to compute it takes longer", Query{Split: true, Local: true, Tokens: 12_000}, false},
	} {
		q := &tt.query
		q.Model, q.MaxTokens = "m", 160
		if q.Tokens == 0 {
			q.Tokens = 16
		} else {
			p.Configure(Settings{LoadTTL: usualTTL, ExpectedOutput: 160, Speed: scoring.Speed{A: 1e-2, D0: 10e-3}})
		}
		if c, _, _ := p.Candidates(q, start, nil, nil); len(c) != 1 || c[0].Saturated != tt.saturated {
			t.Errorf("%s: %+v, want a candidate, saturated: %v", tt.name, c, tt.saturated)
		}
	}
	leases[0].FirstToken(start)
	q := &Query{Model: "m", Tokens: 16, MaxTokens: 160, Split: true, Local: true}
	if c, _, _ := p.Candidates(q, start, nil, nil); len(c) != 1 || c[0].Saturated {
		t.Errorf("the blocks of one have come: %+v, want a candidate", c)
	}
}

// Blocks that come sooner than an answer ends keep nobody out, however many they are.
func TestBlocksThatComeSoonSaturateNobody(t *testing.T) {
	p := pool(0)
	p.Configure(Settings{LoadTTL: usualTTL, ExpectedOutput: 3000})
	expects(t, p, 3)
	q := &Query{Model: "m", Tokens: 16, MaxTokens: 16, Split: true, Local: true}
	if c, _, _ := p.Candidates(q, start, nil, nil); len(c) != 1 || c[0].Saturated {
		t.Errorf("6 s of blocks, and answers take more: %+v", c)
	}
}

// Answers that are not streamed are taken to have begun when their blocks should be there, and to wait no
// longer.
func TestWhoseBlocksAreDueWaitsNoLonger(t *testing.T) {
	p := pool(0)
	for range 6 {
		q := &Query{Model: "m", Tokens: 94 * 16, MaxTokens: 160}
		c, _, _ := p.Candidates(q, start, nil, nil)
		p.Book(&c[0], q, Schedule{
			AdmitAt: start, SendAt: start, LandAt: start.Add(2 * time.Second), Transfer: 2 * time.Second,
			UnseenArrival: 2 * time.Second,
		}, start).MarkSent(start)
	}
	q := &Query{Model: "m", Tokens: 16, MaxTokens: 16, Split: true, Local: true}
	for after, want := range map[time.Duration]bool{0: true, 3 * time.Second: false} {
		now := start.Add(after)
		p.Observe("d1", load(now, 6, 0.1), now)
		if c, _, _ := p.Candidates(q, now, nil, nil); len(c) != 1 || c[0].Saturated != want {
			t.Errorf("after %v: %+v, want it saturated: %v", after, c, want)
		}
	}
}

// Where a prompt has no room to be computed now, its request waits at the router.
func TestNobodyFollowsBlocksIntoAFullReplica(t *testing.T) {
	p := pool(0.38)
	expects(t, p, 6)
	q := &Query{Model: "m", Tokens: 94 * 16, MaxTokens: 160, Split: true, Local: true}
	var out []Excluded
	if c, _, _ := p.Candidates(q, start, nil, &out); len(c) != 0 {
		t.Errorf("%+v, want no candidate", c)
	}
	if len(out) != 1 || !strings.Contains(out[0].Reason, "has room for 20 blocks, not 100") || out[0].Room <= 0 {
		t.Errorf("excluded %+v", out)
	}
}

// A request that takes most of a replica is alone in waiting for its blocks.
func TestALargeRequestIsNotKeptOutByItself(t *testing.T) {
	p := pool(0)
	q := &Query{Model: "m", Tokens: 900 * 16, MaxTokens: 160, Split: true, Local: true}
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
	for _, tt := range []struct {
		name      string
		load      PeerLoad
		saturated bool
	}{
		{"600 blocks of 800 are to come", PeerLoad{Sequences: 8, Arriving: 6, Held: 800}, true},
		{"400 of them", PeerLoad{Sequences: 8, Arriving: 4, Held: 800}, false},
		{"300, and 300 of those who wait for their prefill", PeerLoad{
			Sequences: 3, Arriving: 3, Held: 300, Queued: 3, Reserved: 300, ReservedIn: time.Second,
		}, true},
		{"400, by a router that counts wrongly", PeerLoad{Sequences: 1, Arriving: 100, Held: 400}, false},
	} {
		p := pool(0)
		tt.load.ID, tt.load.Moving = "d1", 12*time.Second
		p.MergePeer("r2", []PeerLoad{tt.load}, start)
		q := &Query{Model: "m", Tokens: 16, MaxTokens: 16, Split: true, Local: true}
		if c, _, _ := p.Candidates(q, start, nil, nil); len(c) != 1 || c[0].Saturated != tt.saturated {
			t.Errorf("%s: %+v, want a candidate, saturated: %v", tt.name, c, tt.saturated)
		}
	}
}
