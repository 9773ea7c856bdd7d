package decode

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
)

// splits books n split requests of 100 blocks each. Their decode legs are sent, and their transfers take two
// seconds.
func splits(t *testing.T, p *Pool, n int, unseen time.Duration) (leases []*Lease) {
	t.Helper()
	for range n {
		q := &Query{Model: "m", Tokens: 94 * 16, MaxTokens: 160}
		c, _, _ := p.Candidates(q, start, nil, nil)
		if len(c) != 1 {
			t.Fatalf("no candidate after %d requests", len(leases))
		}
		l := p.Book(&c[0], q, Schedule{
			AdmitAt: start, SendAt: start, LandAt: start.Add(2 * time.Second), Transfer: 2 * time.Second,
			UnseenArrival: unseen,
		}, start)
		l.MarkSent(start)
		leases = append(leases, l)
	}
	return leases
}

// small is a prompt of one block that may be split or local.
func small() *Query { return &Query{Model: "m", Tokens: 16, MaxTokens: 160, Split: true, Local: true} }

// isSaturated fails the test if d1 is no candidate for q, or its saturation is not as wanted.
func isSaturated(t *testing.T, p *Pool, q *Query, now time.Time, want bool, when string) {
	t.Helper()
	c, _, _ := p.Candidates(q, now, nil, nil)
	if len(c) != 1 || c[0].Saturated != want {
		t.Errorf("%s: %+v, want a candidate, saturated: %v", when, c, want)
	}
}

// Requests whose blocks are on their way hold half of the room at most, where others could be computed there.
func TestRequestsThatWaitForBlocksHoldHalfOfTheRoom(t *testing.T) {
	p := pool(0)
	for range 6 {
		isSaturated(t, p, small(), start, false, "half of the room and less")
		splits(t, p, 1, 0)
	}
	for _, tt := range []struct {
		name string
		edit func(q *Query)
		want bool
	}{
		{"600 of 1000 blocks wait for 12 s", func(*Query) {}, true},
		{"nobody computes prompts there", func(q *Query) { q.Local = false }, false},
		{"nobody computes prompts elsewhere", func(q *Query) { q.Split = false }, false},
		{"half of them have come when it is ready", func(q *Query) { q.Ready = 6 * time.Second }, false},
	} {
		q := small()
		tt.edit(q)
		isSaturated(t, p, q, start, tt.want, tt.name)
	}
}

// A transfer that ends makes room for the next one.
func TestBlocksThatHaveComeSaturateNoLonger(t *testing.T) {
	p := pool(0)
	leases := splits(t, p, 6, 0)
	isSaturated(t, p, small(), start, true, "600 of 1000 blocks wait")
	leases[0].FirstToken(start)
	isSaturated(t, p, small(), start, false, "the blocks of one have come")
}

// A prompt that takes longer to compute than its blocks take to come is not kept from a saturated replica.
func TestALongPromptIsHandedOver(t *testing.T) {
	p := pool(0)
	p.Configure(Settings{LoadTTL: usualTTL, ExpectedOutput: 160, Speed: estimate.Speed{A: 1e-2, D0: 10e-3}})
	splits(t, p, 6, 0)
	isSaturated(t, p, small(), start, true, "0.2 s to compute")
	q := small()
	q.Tokens = 250 * 16
	isSaturated(t, p, q, start, false, "40 s to compute, and 12 s of transfers are ahead")
}

// Blocks that arrive sooner than an answer ends keep no request out, however many they are.
func TestBlocksThatComeSoonSaturateNobody(t *testing.T) {
	p := pool(0)
	splits(t, p, 6, 0)
	p.Configure(Settings{LoadTTL: usualTTL, ExpectedOutput: 3000})
	isSaturated(t, p, small(), start, false, "12 s of transfers, and answers take longer")
}

// An answer that is not streamed is taken to have begun when its blocks should have come, and waits no
// longer.
func TestWhoseBlocksAreDueWaitsNoLonger(t *testing.T) {
	p := pool(0)
	splits(t, p, 6, 2*time.Second)
	for _, tt := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {3 * time.Second, false}} {
		now := start.Add(tt.after)
		p.Observe("d1", load(now, 6, 0.1), now)
		isSaturated(t, p, small(), now, tt.want, "after "+tt.after.String())
	}
}

// A request that may not follow others' blocks, and has no room to be computed now, waits at the router.
func TestNobodyFollowsBlocksIntoAFullReplica(t *testing.T) {
	p := pool(0.38)
	splits(t, p, 6, 0)
	q := small()
	q.Tokens = 94 * 16
	var out []Excluded
	if c, _, _ := p.Candidates(q, start, nil, &out); len(c) != 0 {
		t.Errorf("%+v, want no candidate", c)
	}
	if len(out) != 1 || !strings.Contains(out[0].Reason, "has room for 20 blocks, not 100") || out[0].Room <= 0 {
		t.Errorf("excluded %+v", out)
	}
}

// A request that takes most of a replica is not kept out by its own size, and keeps others out.
func TestALargeRequestIsNotKeptOutByItself(t *testing.T) {
	p := pool(0)
	q := small()
	q.Tokens = 900 * 16
	c, _, _ := p.Candidates(q, start, nil, nil)
	if len(c) != 1 || c[0].Saturated {
		t.Fatalf("%+v, want a candidate", c)
	}
	p.Book(&c[0], q, Schedule{AdmitAt: start, SendAt: start, LandAt: start, Transfer: 2 * time.Second}, start)
	isSaturated(t, p, small(), start, true, "behind it")
}

// Leases of other routers count like ours.
func TestBlocksForOtherRoutersSaturate(t *testing.T) {
	for _, tt := range []struct {
		name string
		load PeerLoad
		want bool
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
		isSaturated(t, p, small(), start, tt.want, tt.name)
	}
}
