package decode

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const usualTTL = 10 * time.Second

// configured has no members. Answers are expected to have 256 tokens.
func configured() *Pool {
	p := New(Options{})
	p.Configure(Settings{LoadTTL: usualTTL, ExpectedOutput: 256})
	return p
}

// pool has one member d1 of 1000 blocks of 16 tokens, which has just reported the given usage. Answers are
// expected to have 160 tokens, 10 blocks.
func pool(usage float64) *Pool {
	p := configured()
	p.Configure(Settings{LoadTTL: usualTTL, ExpectedOutput: 160})
	p.SetMembers([]replica.Replica{engine("d1", 1000)}, start)
	p.Observe("d1", load(start, 0, usage), start)
	return p
}

func engine(id replica.ID, blocks int) replica.Replica {
	return replica.Replica{ID: id, Role: replica.Decode, Facts: replica.Facts{
		Models: []string{"m"}, BlockSize: 16, Blocks: blocks, MaxModelLen: 100_000,
	}}
}

func load(at time.Time, running int, usage float64) replica.Load {
	return replica.Load{At: at, Source: replica.Metrics, Running: running, Waiting: 0, Usage: usage}
}

// book books a prompt of this number of blocks with at most 160 new tokens, admitted at the given time.
func book(t interface{ Fatalf(string, ...any) }, p *Pool, blocks int, admitAt, now time.Time) *Lease {
	q := &Query{Model: "m", Tokens: blocks * 16, MaxTokens: 160}
	c, _, _ := p.Candidates(q, now, nil, nil)
	if len(c) == 0 {
		return nil
	}
	l := p.Book(&c[0], q, Schedule{AdmitAt: admitAt}, now)
	if l == nil {
		t.Fatalf("a candidate could not be booked")
	}
	return l
}

// generating sets the speed at which a sequence has generated tokens in the given time since its sending.
func generating(p *Pool, tokens int, since time.Duration) {
	p.Configure(Settings{
		LoadTTL: usualTTL, Speed: estimate.Rates(0, (float64(tokens)+0.5)/since.Seconds()), ExpectedOutput: 160,
	})
}

func free(p *Pool, now time.Time) int { return p.Status(now)[0].Free }

func TestFreeIsTheEnginesAccountLessWhatItCannotKnow(t *testing.T) {
	p := pool(0.5)
	if got := free(p, start); got != 500 {
		t.Fatalf("reported half full: %d free, want 500", got)
	}
	grow := p.learned.lengths.OfModel("m", false).Rest(0, 160)
	need := 100 + blocksOf(grow, 16)
	l := book(t, p, 100, start, start)
	if got := free(p, start); got != 500-need {
		t.Fatalf("after booking: %d free, want %d", got, 500-need)
	}

	at := start.Add(time.Second)
	p.Observe("d1", load(at, 0, 0.5), at) // still in prefill: the engine has not heard of it
	if got := free(p, at); got != 500-need {
		t.Errorf("report before it was sent: %d free, want %d", got, 500-need)
	}

	l.MarkSent(at)
	at = at.Add(100 * time.Millisecond)
	p.Observe("d1", load(at, 0, 0.5), at) // too soon after sending
	if got := free(p, at); got != 500-need {
		t.Errorf("report right after it was sent: %d free, want %d", got, 500-need)
	}

	at = at.Add(time.Second)
	generating(p, 0, 1100*time.Millisecond)
	p.Observe("d1", load(at, 1, 0.6), at)
	if got, want := free(p, at), 400-blocksOf(grow, 16); got != want {
		t.Errorf("report with it: %d free, want %d (only growth is ours to count)", got, want)
	}

	l.FirstToken(at.Add(-1100 * time.Millisecond)) // as soon as it was sent
	at = at.Add(time.Millisecond)
	generating(p, 150, 1101*time.Millisecond)
	p.Observe("d1", load(at, 1, 0.61), at)
	// A running answer shows that longer answers exist.
	if got, want := free(p, at), 390; got > want || got < want-3 {
		t.Errorf("nearly done: %d free, want %d or little less", got, want)
	}
	at = at.Add(200 * time.Millisecond)
	l.Release(at)
	if got, want := free(p, at), 390+109; got < want-3 || got > want+1 {
		t.Errorf("released: %d free, want about %d before the next report", got, want)
	}
	at = at.Add(time.Second)
	p.Observe("d1", load(at, 0, 0.5), at)
	if got := free(p, at); got != 500 {
		t.Errorf("report without it: %d free, want 500", got)
	}
}

// A report in an answer is made when the engine has the blocks back. The blocks are not counted twice when
// the lease ends just after the report.
func TestBlocksComeBackOnce(t *testing.T) {
	p := pool(0.5)
	l := book(t, p, 100, start, start)
	l.MarkSent(start)
	at := start.Add(time.Second)
	p.Observe("d1", load(at, 1, 0.6), at)
	at = at.Add(time.Second)
	p.Observe("d1", load(at, 0, 0.5), at)
	l.Release(at.Add(time.Millisecond))
	if got := free(p, at.Add(time.Millisecond)); got != 500 {
		t.Errorf("%d free, and the engine has 500", got)
	}
}

// A router on a busy machine may learn of an end long after the engine has the blocks back and reports so.
// The number of requests in the report shows this.
func TestBlocksThatAReportHasBackAreNotCountedAgain(t *testing.T) {
	p := pool(0)
	first, second := book(t, p, 100, start, start), book(t, p, 200, start, start)
	first.MarkSent(start)
	second.MarkSent(start.Add(time.Millisecond))
	at := start.Add(time.Second)
	p.Observe("d1", load(at, 2, 0.3), at)
	at = at.Add(time.Second)
	p.Observe("d1", load(at, 1, 0.2), at)
	at = at.Add(time.Second)
	first.Release(at)
	if got, most := free(p, at), 800; got > most || got < most-second.entry.Growth() {
		t.Errorf("%d free, and the engine has %d", got, most)
	}
	second.Release(at)
	if got := free(p, at); got != 1000 {
		t.Errorf("%d free when nobody is left, want 1000", got)
	}
}

// Blocks of an ended request do not come free while another request reads them.
func TestSharedBlocksDoNotComeBack(t *testing.T) {
	keys := func(own kv.Key) []kv.Key {
		all := make([]kv.Key, 100)
		for i := range all {
			if all[i] = kv.Key(i + 1); i >= 80 {
				all[i] += own
			}
		}
		return all
	}
	p := pool(0)
	bookKeys := func(k []kv.Key) *Lease {
		q := &Query{Model: "m", Tokens: 1600, MaxTokens: 160, Keys: k}
		c, _, _ := p.Candidates(q, start, nil, nil)
		l := p.Book(&c[0], q, Schedule{AdmitAt: start}, start)
		l.MarkSent(start)
		return l
	}
	first := bookKeys(keys(1000))
	second := bookKeys(keys(2000))
	third := bookKeys(keys(3000))
	at := start.Add(time.Second)
	p.Observe("d1", load(at, 3, 0.14), at)
	at = at.Add(time.Second)
	generating(p, 0, 2*time.Second)
	for i, step := range []struct {
		ends *Lease
		used int
	}{{first, 120}, {second, 100}, {third, 0}} {
		step.ends.Release(at)
		growth := 0
		for _, l := range []*Lease{first, second, third}[i+1:] {
			growth += l.entry.Growth()
		}
		if got, most := free(p, at), 1000-step.used; got > most || got < most-growth {
			t.Errorf("%d ended: %d free, and the engine has %d", i+1, got, most)
		}
	}
}

// A paused engine reports its old usage for as long as it pauses, whatever was sent to it. The number of its
// requests shows this.
func TestAReportMayLackWhatWasSentLongAgo(t *testing.T) {
	p := pool(0)
	first, second := book(t, p, 100, start, start), book(t, p, 200, start, start)
	second.MarkSent(start)
	first.MarkSent(start.Add(time.Millisecond))
	promised := 1000 - free(p, start)
	at := start.Add(5 * time.Second)
	p.Observe("d1", load(at, 0, 0), at)
	if got := free(p, at); got != 1000-promised {
		t.Errorf("it has heard of none: %d free, want %d", got, 1000-promised)
	}
	at = at.Add(time.Second)
	p.Observe("d1", load(at, 1, 0.2), at)
	if got, most := free(p, at), 1000-200-first.entry.Whole(); got > most || got < most-second.entry.Growth()-1 {
		t.Errorf("it has heard of the older: %d free, want about %d", got, most)
	}
	at = at.Add(time.Second)
	p.Observe("d1", load(at, 2, 0.3), at)
	if got, most := free(p, at), 700; got > most || got < most-first.entry.Growth()-second.entry.Growth() {
		t.Errorf("it has heard of both: %d free, want about %d", got, most)
	}
}

// A report that comes with an answer does not say which requests it counts: a request without a sign of life
// may be missing in it.
func TestAReportOfAnAnswerMayLackWhatIsUnderWay(t *testing.T) {
	p := pool(0)
	first := book(t, p, 100, start, start)
	first.MarkSent(start)
	at := start.Add(time.Second)
	p.Observe("d1", load(at, 1, 0.1), at)
	second := book(t, p, 200, at, at)
	second.MarkSent(at)
	promised := free(p, at)
	at = at.Add(time.Second)
	orca := replica.Load{At: at, Source: replica.ORCA, Running: -1, Loading: -1, Usage: 0.1}
	p.Observe("d1", orca, at)
	if got := free(p, at); got > promised {
		t.Errorf("with a report that lacks it: %d free, want at most %d", got, promised)
	}
	second.FirstToken(at)
	first.FirstToken(at)
	orca.At, orca.Usage = at.Add(time.Second), 0.32
	p.Observe("d1", orca, orca.At)
	if got := free(p, orca.At); got > 680 || got < 680-first.entry.Growth()-second.entry.Growth() {
		t.Errorf("once it has answered: %d free, want about 680", got)
	}
}

// Each answer brings a report, and each used report takes a look at every lease. Beside thousands of leases,
// reports in answers are used only as often as this cost allows. A report that was asked for is always used.
func TestReportsOfThousandsOfAnswers(t *testing.T) {
	for _, c := range []struct {
		leases int
		most   time.Duration // for which a report is not counted from
	}{{512, 0}, {512 + 1000, 20 * time.Millisecond}} {
		p := configured()
		p.SetMembers([]replica.Replica{engine("d1", 10_000_000)}, start)
		p.Observe("d1", load(start, 0, 0), start)
		for range c.leases {
			l := book(t, p, 10, start, start)
			l.MarkSent(start)
			l.FirstToken(start)
		}
		m := p.members.All[0]
		now, counted := start.Add(time.Second), 0
		for range 100 {
			now = now.Add(time.Millisecond)
			p.Observe("d1", replica.Load{At: now, Source: replica.ORCA, Running: -1, Loading: -1, Usage: 0.1}, now)
			if m.account.ReportedAt().Equal(now) {
				counted++
			}
			if age := now.Sub(m.account.ReportedAt()); age > c.most {
				t.Fatalf("%d leases: the account is %v old", c.leases, age)
			}
		}
		if want := 100 / max(1, int(c.most/time.Millisecond)); counted != want {
			t.Errorf("%d leases: %d of 100 reports are counted from, want %d", c.leases, counted, want)
		}
		now = now.Add(time.Microsecond)
		p.Observe("d1", load(now, c.leases, 0.2), now)
		if !m.account.ReportedAt().Equal(now) {
			t.Errorf("%d leases: what the engine was asked for is not counted from", c.leases)
		}
	}
}

// A request that waits in an engine for room holds none there.
func TestWhoWaitsInAnEngineHoldsNothing(t *testing.T) {
	p := pool(0)
	first, second := book(t, p, 100, start, start), book(t, p, 200, start, start)
	first.MarkSent(start)
	second.MarkSent(start.Add(time.Millisecond))
	at := start.Add(time.Second)
	report := load(at, 1, 0.1)
	report.Waiting = 1
	p.Observe("d1", report, at)
	if got, most := free(p, at), 900-second.entry.Whole(); got > most || got < most-first.entry.Growth()-1 {
		t.Errorf("%d free, want about %d", got, most)
	}
	report.At = at.Add(time.Second)
	report.Loading = 1
	report.Usage = 0.3
	p.Observe("d1", report, report.At)
	if got := free(p, report.At); got > 700 || got < 700-first.entry.Growth()-second.entry.Growth() {
		t.Errorf("once its blocks are on their way: %d free, want about 700", got)
	}
}

// Blocks count as on their way from the booking until the first token or the end of the lease. If the first
// token is not observable, they count until their predicted arrival.
func TestBlocksOnTheirWay(t *testing.T) {
	p := pool(0)
	at := func(now time.Time) (moving time.Duration, active float64) {
		c, _, _ := p.Candidates(&Query{Model: "m", Tokens: 160, MaxTokens: 160}, now, nil, nil)
		return seconds(c[0].Inbound), c[0].Local.Active
	}
	q := &Query{Model: "m", Tokens: 1600, MaxTokens: 160}
	lease := func(schedule Schedule) *Lease {
		c, _, _ := p.Candidates(q, start, nil, nil)
		return p.Book(&c[0], q, schedule, start)
	}
	split := Schedule{AdmitAt: start, UnseenArrival: 3 * time.Second, Transfer: time.Second}
	first := lease(split)
	second := lease(split)
	third := lease(split)
	local := lease(Schedule{AdmitAt: start, Local: true})
	for _, l := range []*Lease{first, second, third, local} {
		l.MarkSent(start)
	}
	for _, step := range []struct {
		name   string
		does   func(now time.Time)
		moving time.Duration
		active float64
	}{
		{"booked", func(time.Time) {}, 3 * time.Second, 1},
		{"the first has a token", func(now time.Time) { first.FirstToken(now) }, 2 * time.Second, 2},
		{"the second ends", func(now time.Time) { second.Release(now) }, time.Second, 2},
		{
			"a report within the time", func(now time.Time) { p.Observe("d1", load(now, 3, 0.1), now) }, time.Second,
			2,
		},
		{
			"a report beyond it",
			func(now time.Time) { now = now.Add(4 * time.Second); p.Observe("d1", load(now, 3, 0.1), now) }, 0, 3,
		},
		{"all end", func(now time.Time) { first.Release(now); third.Release(now); local.Release(now) }, 0, 0},
	} {
		now := start.Add(2500 * time.Millisecond)
		step.does(now)
		if moving, active := at(now); moving != step.moving || active != step.active {
			t.Errorf("%s: blocks on their way for %v, %v requests decode; want %v and %v",
				step.name, moving, active, step.moving, step.active)
		}
	}
}

func TestWhoIsNoCandidate(t *testing.T) {
	for _, tt := range []struct {
		name  string
		edit  func(p *Pool)
		q     Query
		want  string // the reason, "" for a candidate
		limit int
		room  bool
	}{
		{"fits", nil, Query{Tokens: 900 * 16}, "", 0, false},
		{"fits only when empty, which it is", nil, Query{Tokens: 16_000 - 8}, "", 0, false},
		{
			"too large for good", nil,
			Query{Tokens: 16_001},
			"takes prompts of at most 15999 tokens, not 16001",
			15_999, false,
		},
		{"too large by an estimate", nil, Query{Tokens: 16_001, Estimate: true}, "", 0, false},
		{
			"no room now", func(p *Pool) {
				p.Configure(Settings{LoadTTL: usualTTL, ExpectedOutput: 160_000})
				p.Observe("d1", load(start, 3, 0.95), start)
			},
			Query{Tokens: 900 * 16, MaxTokens: 16},
			"has room for 50 blocks, not 901", 0, true,
		},
		{"other model", nil, Query{Model: "other", Tokens: 16}, "does not serve the model", 0, false},
		{"avoided", nil, Query{Tokens: 16, Avoid: []replica.ID{"d1"}}, "failed this request before", 0, false},
		{
			"unhealthy", func(p *Pool) { p.SetHealthy("d1", false, "connection refused") },
			Query{Tokens: 16},
			"connection refused", 0, false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := pool(0)
			if tt.edit != nil {
				tt.edit(p)
			}
			if tt.q.Model == "" {
				tt.q.Model = "m"
			}
			var out []Excluded
			c, _, o := p.Candidates(&tt.q, start, nil, &out)
			if tt.want == "" {
				if len(c) != 1 || len(out) != 0 {
					t.Fatalf("%d candidates, excluded %+v, want one candidate", len(c), out)
				}
				return
			}
			if len(c) != 0 || len(out) != 1 || out[0].Reason != tt.want || out[0].Limit != tt.limit ||
				(out[0].Room > 0) != tt.room {
				t.Fatalf("excluded %+v, want %q with limit %d, room later %v", out, tt.want, tt.limit, tt.room)
			}
			if (o.Small > 0) != (tt.limit > 0) || (o.Full > 0) != tt.room {
				t.Errorf("rejected %+v", o)
			}
		})
	}
}

// An estimate may book as much as a replica of its model can give without being empty, and as much as its
// context holds.
func TestWhatAnEstimateMayBook(t *testing.T) {
	long := engine("long", 1000)
	short := engine("short", 1000)
	other := engine("other", 100_000)
	short.Facts.MaxModelLen = 4096
	other.Facts.Models = []string{"n"}
	unknown := engine("unknown", 0)
	unknown.Facts.MaxModelLen = 0
	for _, tt := range []struct {
		name    string
		members []replica.Replica
		want    int
	}{
		{"half of the blocks", []replica.Replica{long}, 8000},
		{"the context", []replica.Replica{short}, 4095},
		{"the largest of the model's", []replica.Replica{short, long, other}, 8000},
		{"nobody says", []replica.Replica{unknown}, math.MaxInt},
		{"nobody serves it", []replica.Replica{other}, math.MaxInt},
	} {
		p := configured()
		p.SetMembers(tt.members, start)
		if got := p.Bookable("m"); min(got, math.MaxInt/4) != min(tt.want, math.MaxInt/4) {
			t.Errorf("%s: %d tokens, want %d", tt.name, got, tt.want)
		}
	}
}

func TestUnknownCapacityIsPermissiveAndSaysSo(t *testing.T) {
	p := configured()
	r := engine("d1", 0)
	r.Facts.BlockSize = 0
	p.SetMembers([]replica.Replica{r}, start)
	c, _, _ := p.Candidates(&Query{Model: "m", Tokens: 50_000}, start, nil, nil)
	if len(c) != 1 || c[0].Free != -1 || !c[0].Unknown {
		t.Fatalf("candidates %+v, want one with unknown room and load", c)
	}
}

func TestUnknownUsageIsThePoolsMeanNotIdle(t *testing.T) {
	p := configured()
	p.SetMembers([]replica.Replica{engine("d1", 1000), engine("d2", 1000), engine("d3", 1000)}, start)
	p.Observe("d1", load(start, 10, 0.2), start)
	p.Observe("d2", load(start, 20, 0.8), start)
	c, _, _ := p.Candidates(&Query{Model: "m", Tokens: 16, MaxTokens: 1}, start, nil, nil)
	if len(c) != 3 || !c[2].Unknown || c[0].Unknown {
		t.Fatalf("candidates %+v", c)
	}
	// The requests of others will grow, so a little more than half counts as used.
	if got := c[2].Decode; got.Running != 15 || got.Usage < 0.5 || got.Usage > 0.7 {
		t.Errorf("silent member: running %g, usage %g, want 15 and a little over 0.5", got.Running, got.Usage)
	}
	// Old reports count for nothing either.
	c, _, _ = p.Candidates(&Query{Model: "m", Tokens: 16}, start.Add(time.Minute), nil, nil)
	for _, c := range c {
		if !c.Unknown {
			t.Errorf("%+v: a report of a minute ago counts as known", c)
		}
	}
}

func TestExpectedOutputIsLearnedPerModelAndBounded(t *testing.T) {
	p := pool(0)
	for range 300 {
		l := book(t, p, 1, start, start)
		l.MarkSent(start)
		l.Finish(40, time.Second, start)
	}
	q := &Query{Model: "m", Tokens: 160}
	c, _, _ := p.Candidates(q, start, nil, nil)
	if got := c[0].Decode.Output; math.Abs(got-40) > 5 {
		t.Errorf("expected output %g, want about 40", got)
	}
	q.MaxTokens = 7
	c, _, _ = p.Candidates(q, start, nil, nil)
	if got := c[0].Decode.Output; got != 7 {
		t.Errorf("limited by the client: %g, want 7", got)
	}
	q.MaxTokens, q.Sequences = 16, 3
	c, _, _ = p.Candidates(q, start, nil, nil)
	if got := c[0].Need; got != 13 {
		t.Errorf("three sequences of 16 tokens behind 10 blocks need %d blocks, want 13", got)
	}
	q.Sequences = 1
	q.MaxTokens = 0
	q.Tokens = 99_990
	p.SetMembers([]replica.Replica{engine("d1", 10_000)}, start)
	c, _, _ = p.Candidates(q, start, nil, nil)
	if got := c[0].Decode.Output; got != 10 {
		t.Errorf("near the model's length: %g, want 10", got)
	}
}

func TestLocalPrefillsQueue(t *testing.T) {
	p := pool(0)
	q := &Query{Model: "m", Tokens: 4000}
	c, _, _ := p.Candidates(q, start, nil, nil)
	l := p.Book(&c[0], q, Schedule{Local: true}, start)
	warm := c[0].Local.Warm
	c, _, _ = p.Candidates(q, start, nil, nil)
	if got := c[0].Local.Wait; math.Abs(got-warm) > 1e-6 {
		t.Errorf("behind one local prefill: wait %g s, want %g", got, warm)
	}
	half := start.Add(seconds(warm / 2))
	l.Release(half)
	c, _, _ = p.Candidates(q, half, nil, nil)
	if got := c[0].Local.Wait; got > 1e-6 {
		t.Errorf("cancelled half way: wait %g s, want 0", got)
	}
}

func TestDecodeSpeedIsLearned(t *testing.T) {
	p := pool(0)
	p.Configure(Settings{LoadTTL: usualTTL, Speed: estimate.Speed{D0: 0.01}, ExpectedOutput: 160})
	q := &Query{Model: "m", Tokens: 160, MaxTokens: 1}
	c, _, _ := p.Candidates(q, start, nil, nil)
	if got := c[0].Step; got != 0.010 {
		t.Errorf("step of %g s, want the 0.010 that the operator says, until another one is learned", got)
	}
	for range 50 {
		l := book(t, p, 10, start, start)
		l.MarkSent(start)
		l.Finish(101, 3*time.Second, start) // 30 ms a token
	}
	c, _, _ = p.Candidates(q, start, nil, nil)
	if got := c[0].Step; math.Abs(got-0.030) > 0.004 {
		t.Errorf("step of %g s, want about 0.030", got)
	}
}

func TestLeavingMembersKeepTheirLeases(t *testing.T) {
	p := pool(0)
	l := book(t, p, 10, start, start)
	p.SetMembers([]replica.Replica{engine("d2", 1000)}, start)
	if ok, reason, room := l.Holds(start); ok || reason != "it left the pool" || room != Never {
		t.Errorf("Holds = %v, %q, %v", ok, reason, room)
	}
	l.MarkSent(start)
	l.Release(start)
	l.Release(start)
	p.SetMembers([]replica.Replica{engine("d1", 1000)}, start)
	if got := p.Status(start)[0]; got.Leases != 0 || got.Promised != 0 {
		t.Errorf("the member that came back starts with %+v", got)
	}
}

// TestLedgerReturnsToZero books, sends, grows, finishes and releases in any order, with reports and time in
// between. At every step the sums must be those of an obvious count over the live leases, and nothing may
// remain at the end.
func TestLedgerReturnsToZero(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := configured()
		p.Configure(Settings{LoadTTL: usualTTL, ExpectedOutput: rapid.IntRange(1, 500).Draw(t, "output")})
		p.SetMembers([]replica.Replica{engine("d1", 1000), engine("d2", 500)}, start)
		now := start
		var live []*Lease
		senders := []*replica.Outbox{{}, {}}
		pick := func(t *rapid.T) *Lease {
			if len(live) == 0 {
				t.Skip("no lease")
			}
			return live[rapid.IntRange(0, len(live)-1).Draw(t, "lease")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"book": func(t *rapid.T) {
				q := &Query{
					Model: "m", Tokens: rapid.IntRange(1, 6000).Draw(t, "tokens"),
					Sequences: rapid.IntRange(0, 3).Draw(t, "n"),
				}
				q.Keys = keysFrom(rapid.IntRange(0, q.Tokens/16).Draw(t, "fork"), rapid.IntRange(0, 3).Draw(t, "to"),
					q.Tokens/16)
				if rapid.IntRange(0, 4).Draw(t, "text") == 0 {
					q.Chunk = 16
				}
				q.MaxTokens = rapid.SampledFrom([]int{0, 1, 300}).Draw(t, "max")
				c, _, _ := p.Candidates(q, now, nil, nil)
				if len(c) == 0 {
					return
				}
				i := rapid.IntRange(0, len(c)-1).Draw(t, "candidate")
				schedule := Schedule{
					AdmitAt: now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "reserved")) * time.Millisecond),
				}
				if schedule.Local = rapid.Bool().Draw(t, "local"); !schedule.Local {
					schedule.SendAt = schedule.AdmitAt.Add(time.Duration(len(live)%7) * time.Second / 7)
					schedule.LandAt = schedule.SendAt.Add(time.Second)
					schedule.Transfer = time.Duration(rapid.IntRange(0, 2000).Draw(t, "moving")) * time.Millisecond
					schedule.Outbox = senders[rapid.IntRange(0, len(senders)-1).Draw(t, "sender")]
				}
				if rapid.Bool().Draw(t, "quiet") {
					schedule.UnseenArrival = time.Second
				}
				if l := p.Book(&c[i], q, schedule, now); l != nil {
					live = append(live, l)
				}
			},
			"canary":  func(*rapid.T) { live = append(live, p.BookCanary("d1", 165, 8, now)) },
			"sent":    func(t *rapid.T) { pick(t).MarkSent(now) },
			"first":   func(t *rapid.T) { pick(t).FirstToken(now) },
			"finish":  func(t *rapid.T) { pick(t).Finish(rapid.IntRange(0, 900).Draw(t, "out"), time.Second, now) },
			"release": func(t *rapid.T) { pick(t).Release(now) },
			"report": func(t *rapid.T) {
				id := rapid.SampledFrom([]replica.ID{"d1", "d2"}).Draw(t, "id")
				usage := rapid.SampledFrom([]float64{0, 0.3, 1, math.NaN()}).Draw(t, "usage")
				report := load(now, rapid.IntRange(-1, 9).Draw(t, "running"), usage)
				report.Waiting = rapid.IntRange(-1, 4).Draw(t, "waiting")
				p.Observe(id, report, now)
			},
			"leave": func(t *rapid.T) {
				p.SetMembers([]replica.Replica{engine("d1", 1000)}, now)
				p.SetMembers([]replica.Replica{engine("d1", 1000), engine("d2", 500)}, now)
			},
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			},
			"": func(t *rapid.T) { checkSums(t, p) },
		})
		for _, l := range live {
			l.Release(now)
			l.Release(now)
		}
		checkSums(t, p)
		for _, m := range p.members.All {
			b, q := &m.account, &m.local.turns
			if len(b.Leases()) != 0 || b.Sums != (ledger.Sums{}) || b.Reserved() != 0 || b.Coming().Moving() != 0 ||
				b.Preempted() != 0 || !q.Empty() || q.Work() != 0 {
				t.Fatalf("%s: %+v and %+v are left without a lease", m.R.ID, b, q)
			}
		}
		for _, o := range senders {
			if o.Sending() != 0 {
				t.Fatalf("%v is to be sent without a lease", o.Sending())
			}
		}
		if p.ledger.Reserved() != 0 {
			t.Fatalf("%d leases are left in the queue of reserved ones", p.ledger.Reserved())
		}
	})
}

// checkSums compares the accounts with a new count.
func checkSums(t *rapid.T, p *Pool) {
	softs, outboxes := 0, map[*replica.Outbox]time.Duration{}
	for _, m := range p.members.All {
		var moving, work time.Duration
		want := ledger.Sums{Context: m.account.Context}
		for _, e := range m.account.Leases() {
			l := owner(e)
			countAgain(t, e, &want)
			if e.State() == ledger.Reserved {
				softs++
			}
			switch {
			case !e.Missing():
			case e.Local:
				work += l.pieces.Predicted
			default:
				moving += e.Transfer
				if l.from != nil {
					outboxes[l.from] += e.Transfer
				}
			}
		}
		if m.account.Sums != want || m.account.Coming().Moving() != moving || m.local.turns.Work() != work {
			t.Fatalf("%s: the account says %+v, %v moving, %v of work; counted %+v, %v and %v", m.R.ID,
				m.account.Sums, m.account.Coming().Moving(), m.local.turns.Work(), want, moving, work)
		}
		if m.account.Returned() < 0 {
			t.Fatalf("%s: %d blocks returned", m.R.ID, m.account.Returned())
		}
	}
	for o, want := range outboxes {
		if o.Sending() < want { // more if the expected replica has left the pool
			t.Fatalf("%v is to be sent, %v is awaited", o.Sending(), want)
		}
	}
	if softs > p.ledger.Reserved() {
		t.Fatalf("%d reserved leases, %d in the queue", softs, p.ledger.Reserved())
	}
}

// countAgain adds e to a sum.
func countAgain(t *rapid.T, e *ledger.Lease, want *ledger.Sums) {
	state, n := e.State(), e.Sequences
	switch state {
	case ledger.Reserved:
		want.Queued += n
		return
	case ledger.Admitted:
		want.Promised += e.Whole()
	case ledger.Sent:
		want.Promised += e.Whole()
		want.Sent += n
		if e.PromptState() != ledger.Answered {
			want.Unheard++
		}
	case ledger.Reported:
		want.Growth += e.Growth()
		want.Sent += n
	default:
		t.Fatal("an ended lease is still on the list")
	}
	want.Held += e.Whole()
	want.Sequences += n
	switch {
	case e.PromptState() != ledger.Pending:
		want.Answering += n
	case !e.Local:
		want.Arriving += n
		want.Expecting += e.Whole()
	}
	if e.Growth() < 0 {
		t.Fatalf("lease expects to shrink by %d blocks", -e.Growth())
	}
}

// An engine without room takes the blocks of its newest request, and gives them back before it admits
// another request. So these blocks stay promised.
func TestWhoWasPreemptedGetsItsRoomBack(t *testing.T) {
	p := pool(0)
	first, second := book(t, p, 300, start, start), book(t, p, 400, start, start)
	first.MarkSent(start)
	second.MarkSent(start.Add(time.Millisecond))
	first.FirstToken(start.Add(time.Second / 2))
	second.FirstToken(start.Add(time.Second / 2))
	at := start.Add(time.Second)
	p.Observe("d1", load(at, 2, 0.7), at)
	both := free(p, at)

	preempted := load(at.Add(time.Second), 1, 0.3)
	preempted.Waiting = 1
	p.Observe("d1", preempted, preempted.At)
	if got := free(p, preempted.At); got > both || got < both-20 {
		t.Errorf("%d free where one waits to go on, want about the %d of before", got, both)
	}
	orca := replica.Load{
		At: preempted.At.Add(300 * time.Millisecond), Source: replica.ORCA,
		Running: -1, Waiting: 1, Loading: -1, Usage: 0.3,
	}
	p.Observe("d1", orca, orca.At)
	if got := free(p, orca.At); got > both || got < both-20 {
		t.Errorf("%d free by what an answer brings along, want about %d", got, both)
	}

	p.Observe("d1", load(orca.At, 2, 0.7), orca.At) // and the same if an answer reports it first
	orca.At = orca.At.Add(300 * time.Millisecond)
	p.Observe("d1", orca, orca.At)
	if got := free(p, orca.At); got > both || got < both-20 {
		t.Errorf("%d free where an answer tells of it, want about %d", got, both)
	}

	waits := load(at.Add(2*time.Second), 1, 0.3) // nobody waits: one has ended, of which we have yet to hear
	p.Observe("d1", waits, waits.At)
	if got := free(p, waits.At); got < both+380 {
		t.Errorf("%d free where one has ended, want about %d", got, both+400)
	}

	third := book(t, p, 100, waits.At, waits.At) // the third waits, and the second has ended
	third.MarkSent(waits.At)
	before := free(p, waits.At)
	waits.At = waits.At.Add(time.Second)
	waits.Waiting = 1
	p.Observe("d1", waits, waits.At)
	if got := free(p, waits.At); got < before-20 {
		t.Errorf("%d free where another waits for its room, want about %d", got, before)
	}

	second.Release(waits.At)
	again := load(waits.At.Add(time.Second), 2, 0.4)
	p.Observe("d1", again, again.At)
	if got, want := free(p, again.At), 600-first.entry.Growth()-third.entry.Growth(); got != want {
		t.Errorf("%d free when all is told, want %d", got, want)
	}
}
