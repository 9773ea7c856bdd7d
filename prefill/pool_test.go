package prefill

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func engine(id replica.ID) replica.Replica {
	return replica.Replica{ID: id, Role: replica.Prefill, Facts: replica.Facts{
		Models: []string{"m", "ad"}, Adapters: []string{"ad"}, BlockSize: 16, Blocks: 10_000, MaxModelLen: 100_000,
	}}
}

func load(at time.Time, running, waiting int, usage float64) replica.Load {
	return replica.Load{At: at, Source: replica.Metrics, Running: running, Waiting: waiting, Usage: usage}
}

const usualTTL = 10 * time.Second

func configured() *Pool {
	p := New(Options{})
	p.Configure(Settings{LoadTTL: usualTTL})
	return p
}

func newPool(ids ...replica.ID) *Pool {
	p := configured()
	var ms []replica.Replica
	for _, id := range ids {
		ms = append(ms, engine(id))
	}
	p.SetMembers(ms, start)
	return p
}

func (p *Pool) ask(tokens int, now time.Time) []Candidate {
	c, _ := p.Candidates(&Query{Model: "m", Tokens: tokens}, now, nil, nil)
	return c
}

func near(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if math.Abs(got-want) > share*math.Abs(want)+1e-9 {
		t.Errorf("%s = %g, want %g within %g %%", what, got, want, share*100)
	}
}

func TestQueueCountsDownWhileTheFirstRuns(t *testing.T) {
	p := newPool("p1")
	c := p.ask(8000, start)
	work := c[0].Warm
	a := p.Book(&c[0], start)
	b := p.Book(&c[0], start)
	at := func(share float64) time.Time { return start.Add(seconds(work * share)) }

	near(t, "wait behind two", p.ask(100, start)[0].Wait, 2*work, 1e-6)
	near(t, "half of the first later", p.ask(100, at(0.5))[0].Wait, 1.5*work, 1e-6)
	near(t, "the first is late", p.ask(100, at(3))[0].Wait, work, 1e-6)
	if got := p.ask(100, start)[0].Queued; got != 16_000 {
		t.Errorf("queued %d tokens, want 16,000", got)
	}
	a.Release(at(1))
	near(t, "the second has begun", p.ask(100, at(1.25))[0].Wait, 0.75*work, 1e-6)
	b.Done(-1, 0, at(2))
	if got := p.ask(100, at(2))[0]; got.Wait != 0 || got.Queued != 0 || got.Waiting != 0 {
		t.Errorf("nothing is left, but %+v", got)
	}
}

func TestWorkOfOthers(t *testing.T) {
	p := newPool("p1", "p2", "p3")
	p.Observe("p1", load(start, 1, 4, 0.2), start)
	p.Observe("p2", load(start, 0, 0, 0.4), start)
	c := p.ask(1000, start)
	typical := estimate.DefaultSpeed().Prefill(1000, 0)
	near(t, "five requests of others", c[0].Wait, 5*typical, 1e-6)
	near(t, "none", c[1].Wait, 0, 0)
	near(t, "unknown is the mean", c[2].Wait, 2.5*typical, 1e-6)
	near(t, "unknown usage", c[2].Usage, 0.3, 1e-6)
	if c[0].Unknown || !c[2].Unknown || c[2].LoadAge != -1 {
		t.Errorf("unknown: %v and %v, age %v", c[0].Unknown, c[2].Unknown, c[2].LoadAge)
	}

	l := p.Book(&c[1], start)
	later := start.Add(time.Second)
	p.Observe("p2", load(later, 1, 0, 0.4), later)
	if got := p.Status(later)[1].Others; got != 0 {
		t.Errorf("our own request counts as %d of others", got)
	}
	p.Observe("p2", replica.Load{At: later, Source: replica.ORCA, Running: -1, Waiting: 3, Usage: 0.1}, later)
	if got := p.Status(later)[1].Others; got != 0 {
		t.Errorf("one answer that reports three waiting: %d of others, want 0 until another says so too", got)
	}
	p.Observe("p2", replica.Load{At: later, Source: replica.ORCA, Running: -1, Waiting: 4, Usage: 0.1}, later)
	if got := p.Status(later)[1].Others; got != 2 {
		t.Errorf("three, then four waiting: %d of others, want 2", got)
	}
	l.Release(later)
	for _, c := range p.ask(1000, start.Add(time.Minute)) {
		if !c.Unknown {
			t.Errorf("a report of a minute ago counts as known: %+v", c)
		}
	}
}

func TestUsageCountsWhatWasSentSinceTheReport(t *testing.T) {
	p := newPool("p1")
	p.Observe("p1", load(start, 0, 0, 0.25), start)
	c := p.ask(16_000, start) // a tenth of the blocks
	l := p.Book(&c[0], start)
	near(t, "usage after booking", p.ask(1, start)[0].Usage, 0.35, 1e-6)
	later := start.Add(time.Second)
	p.Observe("p1", load(later, 1, 0, 0.33), later)
	near(t, "usage by the next report", p.ask(1, later)[0].Usage, 0.33, 1e-6)
	l.Release(later)
	near(t, "released", p.ask(1, later)[0].Usage, 0.33, 1e-6)
}

func TestMatchIsWholeBlocksAndLessThanThePrompt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPool("p1")
		tokens := rapid.IntRange(1, 500).Draw(t, "tokens")
		depth := rapid.Int32Range(0, 40).Draw(t, "depth")
		c, _ := p.Candidates(&Query{Model: "m", Tokens: tokens, Depth: []int32{depth}}, start, nil, nil)
		got := c[0].Matched
		if got >= tokens || got%16 != 0 || got > int(depth)*16 || got+16 <= min(int(depth)*16, tokens-1) {
			t.Fatalf("%d blocks of a prompt of %d tokens: matched %d", depth, tokens, got)
		}
		if cold := estimate.DefaultSpeed().Prefill(c[0].Tokens, 0); c[0].Warm > cold {
			t.Fatalf("warm %g, cold %g", c[0].Warm, cold)
		}
	})
}

func TestWhoIsNoCandidate(t *testing.T) {
	for _, tt := range []struct {
		name  string
		edit  func(p *Pool)
		q     Query
		want  string
		limit int
	}{
		{"fits", nil, Query{Model: "m", Tokens: 99_999}, "", 0},
		{"adapter", nil, Query{Model: "ad", Tokens: 5}, "", 0},
		{
			"longer than the model takes", nil,
			Query{Model: "m", Tokens: 100_000},
			"takes prompts of at most 99999 tokens, not 100000", 99_999,
		},
		{"longer by an estimate", nil, Query{Model: "m", Tokens: 100_000, Estimate: true}, "", 0},
		{"other model", nil, Query{Model: "x", Tokens: 5}, "does not serve the model", 0},
		{"avoided", nil, Query{Model: "m", Tokens: 5, Avoid: []replica.ID{"p1"}}, "failed this request before", 0},
		{
			"unhealthy", func(p *Pool) { p.SetHealthy("p1", false, "no answer to /health") },
			Query{Model: "m", Tokens: 5},
			"no answer to /health", 0,
		},
	} {
		p := newPool("p1")
		if tt.edit != nil {
			tt.edit(p)
		}
		var out []Excluded
		c, _ := p.Candidates(&tt.q, start, nil, &out)
		if tt.want == "" && (len(c) != 1 || len(out) != 0) ||
			tt.want != "" && (len(c) != 0 || len(out) != 1 || out[0].Reason != tt.want || out[0].Limit != tt.limit) {
			t.Errorf("%s: %d candidates, excluded %+v, want %q", tt.name, len(c), out, tt.want)
		}
	}
}

// TestSpeedIsLearnedUnderLoad answers a queue that is never empty, from a replica twice as slow as the
// profile.
func TestSpeedIsLearnedUnderLoad(t *testing.T) {
	truth := estimate.DefaultSpeed()
	truth.T0 = 2 * truth.T0
	truth.A = 2 * truth.A
	truth.B = 2 * truth.B
	p := newPool("p1", "p2")
	p.Configure(Settings{LoadTTL: usualTTL, Speed: estimate.Rates(1000, 0)})
	near(t, "speed that the operator says, until another one is learned",
		p.Status(start)[0].Speed.Prefill(4000, 0), 4, 1e-9)
	now := start
	type sent struct {
		l  *Lease
		at time.Time
	}
	var queue []sent
	for i := range 120 {
		tokens := 500 + 371*(i%20)
		c := p.ask(tokens, now)
		queue = append(queue, sent{p.Book(&c[0], now), now})
		if len(queue) < 5 {
			continue
		}
		first := queue[0]
		queue = queue[1:]
		now = now.Add(seconds(truth.Prefill(first.l.prompt, 0)))
		first.l.Done(0, now.Sub(first.at), now)
	}
	near(t, "learned speed", p.Status(now)[0].Speed.Prefill(4000, 0), truth.Prefill(4000, 0), 0.1)
	near(t, "speed of a member without a sample", p.Status(now)[1].Speed.Prefill(4000, 0),
		truth.Prefill(4000, 0), 0.1)
}

func TestChain(t *testing.T) {
	p := configured()
	if _, _, ok := p.Chain("m"); ok {
		t.Error("a pool without members names blocks")
	}
	p.SetMembers([]replica.Replica{{ID: "p0", Facts: replica.Facts{Models: []string{"m"}}}, engine("p1")}, start)
	c, adapter, ok := p.Chain("ad")
	if !ok || c.BlockSize() != 16 || adapter != "ad" {
		t.Errorf("Chain(ad) = blocks of %d, adapter %q, %v", c.BlockSize(), adapter, ok)
	}
	if _, _, ok := p.Chain("nobody's"); ok {
		t.Error("blocks of a model that nobody serves are named")
	}
}

func TestMembersThatLeaveAreForgotten(t *testing.T) {
	p := newPool("p1", "p2")
	chain, _, _ := p.Chain("m")
	keys := chain.Append(nil, chain.Root("", ""), make([]uint32, 64))
	c := p.ask(65, start)
	l := p.Book(&c[1], start)
	l.Speculate(keys, time.Second, start)
	depth := make([]int32, p.Holders())
	p.Match(roster.Prompt{Keys: keys}, depth)
	if depth[1] != 4 {
		t.Fatalf("depth %v after speculating on p2, want 4 there", depth)
	}
	p.SetMembers([]replica.Replica{engine("p1")}, start)
	p.SetMembers([]replica.Replica{engine("p1"), engine("p3")}, start)
	p.Match(roster.Prompt{Keys: keys}, depth)
	if depth[0] != 0 || depth[1] != 0 {
		t.Errorf("depth %v, want nothing for the newcomer", depth)
	}
	l.Release(start)
	if got := p.Status(start)[1]; got.ID != "p3" || got.Requests != 0 || got.Tokens != 0 {
		t.Errorf("newcomer %+v", got)
	}
	if got := p.Book(&c[1], start); got != nil {
		t.Error("a member that left can be booked")
	}
}

func TestEventsReachTheIndex(t *testing.T) {
	p := newPool("p1")
	chain, _, _ := p.Chain("m")
	ids := []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}
	b := &kv.Batch{Events: []kv.Event{
		{Kind: kv.Stored, Hashes: []kv.EngineHash{9}, Tokens: ids[:16], BlockSize: 16, Group: kv.NoGroup},
	}}
	if got := p.Apply("p1", b); got.Stored != 1 {
		t.Fatalf("Apply = %+v", got)
	}
	if got := p.Apply("nobody", b); got != (kv.Applied{}) {
		t.Errorf("Apply for a stranger = %+v", got)
	}
	depth := make([]int32, p.Holders())
	keys := chain.Append(nil, chain.Root("", ""), ids)
	if p.Match(roster.Prompt{Keys: keys}, depth); depth[0] != 1 {
		t.Errorf("depth %v, want 1", depth)
	}
	p.Forget("p1")
	if p.Match(roster.Prompt{Keys: keys}, depth); depth[0] != 0 {
		t.Errorf("depth %v after Forget, want 0", depth)
	}
}

// TestQueueReturnsToZero books and ends leases in any order. At every step the sums are those of a plain
// count, and nothing is left at the end.
func TestQueueReturnsToZero(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPool("p1", "p2")
		now := start
		var live []*Lease
		check := func() {
			for _, m := range p.members.All {
				count := 0
				tokens := 0
				work := time.Duration(0)
				for l := m.queue.first; l != nil; l = l.next {
					count++
					tokens = tokens + l.prompt - l.matched
					work += l.work
				}
				q := m.queue
				if q.count != count || q.tokens != tokens || q.work != work || q.fresh < 0 ||
					(q.first == nil) != (q.last == nil) || q.wait(now) < 0 {
					t.Fatalf("%s: %+v, counted %d requests, %d tokens, %v", m.R.ID, q, count, tokens, work)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"book": func(t *rapid.T) {
				c := p.ask(rapid.IntRange(1, 50_000).Draw(t, "tokens"), now)
				live = append(live, p.Book(&c[rapid.IntRange(0, 1).Draw(t, "member")], now))
			},
			"end": func(t *rapid.T) {
				if len(live) == 0 {
					t.Skip("no lease")
				}
				l := live[rapid.IntRange(0, len(live)-1).Draw(t, "lease")]
				if rapid.Bool().Draw(t, "answered") {
					l.Done(rapid.IntRange(-1, 60_000).Draw(t, "cached"),
						time.Duration(rapid.IntRange(0, 9000).Draw(t, "ms"))*time.Millisecond, now)
				} else {
					l.Release(now)
				}
			},
			"report": func(t *rapid.T) { p.Observe("p1", load(now, 1, 2, 0.5), now) },
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond)
			},
			"": func(*rapid.T) { check() },
		})
		for _, l := range live {
			l.Release(now)
		}
		check()
		for _, m := range p.members.All {
			if m.queue.count != 0 || m.queue.tokens != 0 || m.queue.work != 0 || m.queue.fresh != 0 {
				t.Fatalf("%s: %+v is left without a lease", m.R.ID, m.queue)
			}
		}
	})
}
