package decode

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
)

// finish answers a prompt of 100 tokens with this number of tokens, one per step. max is the client's limit,
// 0 for none.
func (p *Pool) finish(t *testing.T, limit, tokens int, step time.Duration, now time.Time) time.Time {
	t.Helper()
	q := &Query{Model: "m", Tokens: 100, MaxTokens: limit}
	c, _, _ := p.Candidates(q, now, nil, nil)
	if len(c) == 0 {
		t.Fatal("no room")
	}
	l := p.Book(&c[0], q, Schedule{AdmitAt: now}, now)
	l.MarkSent(now)
	now = now.Add(10 * time.Millisecond)
	l.FirstToken(now)
	decoding := time.Duration(tokens-1) * step
	now = now.Add(decoding)
	l.Finish(tokens, decoding, now)
	p.Observe("d1", load(now.Add(time.Second), 0, 0), now.Add(time.Second))
	return now.Add(time.Second)
}

// An answer that its limit has cut would have been longer. A classifier on the same model teaches nothing
// about the length of chats, only how soon room comes free.
func TestCutAnswersDoNotTeachTheLength(t *testing.T) {
	p, now := pool(0), start
	for range 300 {
		now = p.finish(t, 0, 500, 10*time.Millisecond, now)
	}
	before := p.learned.lengths.OfModel("m", false).Rest(0, -1)
	for range 2000 {
		now = p.finish(t, 1, 1, 0, now)
	}
	if got := p.learned.lengths.OfModel("m", false).Rest(0, -1); got < before*95/100 || got > before*105/100 {
		t.Errorf(
			"a chat without a limit is expected to have %d tokens, and %d after 2,000 answers that were cut at one",
			before, got,
		)
	}
	c, _, _ := p.Candidates(&Query{Model: "m", Tokens: 1600}, now, nil, nil)
	if got, want := c[0].Need, 100+before/16; got < want {
		t.Errorf("a chat of 1,600 tokens is booked with %d blocks, want at least %d", got, want)
	}
	if p.learned.lengths.Usual() > 10 {
		t.Errorf("the expected answer has %d tokens, want 1", p.learned.lengths.Usual())
	}
}

// Three delayed answers in a row do not change the cost of a sequence or of a token in the cache.
func TestStepsThatWereHeldUpDoNotBendTheSlopes(t *testing.T) {
	p, now := pool(0.1), start
	for range 50 {
		now = p.finish(t, 0, 100, 7*time.Millisecond, now)
	}
	for range 3 {
		now = p.finish(t, 0, 8, time.Second, now)
	}
	s, truth := p.learned.speed(p.members.All[0]), estimate.DefaultSpeed()
	if s.D1 > 2*truth.D1 || s.D2 > 2*truth.D2 {
		t.Errorf("learned: D1 %g and D2 %g, %.0f and %.0f times the profile's",
			s.D1, s.D2, s.D1/truth.D1, s.D2/truth.D2)
	}
}

// An event that delays many answers at once counts once, however many answers show it.
func TestOneStandstillIsOneVote(t *testing.T) {
	p, now := pool(0), start
	for range 50 {
		now = p.finish(t, 0, 100, 7*time.Millisecond, now)
	}
	var leases []*Lease
	for range 20 {
		q := &Query{Model: "m", Tokens: 100}
		c, _, _ := p.Candidates(q, now, nil, nil)
		l := p.Book(&c[0], q, Schedule{AdmitAt: now}, now)
		l.MarkSent(now)
		l.FirstToken(now)
		leases = append(leases, l)
	}
	now = now.Add(7 * time.Second)
	for i, l := range leases {
		now = now.Add(time.Millisecond)
		l.Finish(20+i, 7*time.Second, now)
	}
	if got := p.learned.speed(p.members.All[0]).Step(1, 100); got > 0.05 {
		t.Errorf("after one stop of seven seconds the learned step time is %.0f ms, want 7", got*1e3)
	}
}

// A replica that has become slow for good is known as such after three seconds of answers.
func TestAReplicaThatBecameSlowIsLearned(t *testing.T) {
	p, now := pool(0), start
	for range 50 {
		now = p.finish(t, 0, 100, 7*time.Millisecond, now)
	}
	for range 4 {
		now = p.finish(t, 0, 20, 140*time.Millisecond, now)
	}
	if got := p.learned.speed(p.members.All[0]).Step(1, 100); got < 0.1 || got > 0.2 {
		t.Errorf("the learned step time is %.0f ms, want about 140", got*1e3)
	}
}

// The first token of an answer that is not streamed cannot be observed. The time of the whole answer teaches
// nothing about prefills or transfers.
func TestAnswersThatAreNotStreamedTeachTheirSteps(t *testing.T) {
	for name, local := range map[string]bool{"local": true, "split": false} {
		t.Run(name, func(t *testing.T) {
			p, now := pool(0), start
			want := p.learned.speed(p.members.All[0])
			for range 40 {
				q := &Query{Model: "m", Tokens: 100}
				c, _, _ := p.Candidates(q, now, nil, nil)
				l := p.Book(&c[0], q, Schedule{AdmitAt: now, Local: local, UnseenArrival: 20 * time.Millisecond}, now)
				l.MarkSent(now)
				now = now.Add(20*time.Millisecond + 100*30*time.Millisecond)
				if took := l.FirstToken(now).Took; took != 0 {
					t.Errorf("the time of the whole answer, %v, counts as the time of its first token", took)
				}
				l.Finish(100, 50*time.Microsecond, now)
				now = now.Add(time.Second)
				p.Observe("d1", load(now, 0, 0), now)
			}
			got := p.learned.speed(p.members.All[0])
			if step := got.Step(1, 100); step < 0.025 || step > 0.035 {
				t.Errorf("the learned step time is %.4f ms, want 30", step*1e3)
			}
			if got.T0 != want.T0 || got.A != want.A || got.B != want.B {
				t.Errorf("learned about prefills: %+v, want nothing", got)
			}
		})
	}
}

// Before any answer has ended, lengths are unknown. Cautious lengths are reserved, and expected lengths are
// priced. The two come together as answers end.
func TestRoomIsKeptForAnswersThatNobodyKnows(t *testing.T) {
	p := pool(0)
	p.Configure(Settings{LoadTTL: usualTTL, ExpectedOutput: 160, OutputDoubt: 5})
	q := &Query{Model: "m", Tokens: 160}
	c, _, _ := p.Candidates(q, start, nil, nil)
	if got := c[0].Need; got != 10+50 {
		t.Errorf("%d blocks are kept for a prompt of 10 and its answer, want five times the 10 that are expected",
			got)
	}
	if got := c[0].Output; got != 160 {
		t.Errorf("%g tokens are expected, want 160", got)
	}
	q.MaxTokens = 320
	c, _, _ = p.Candidates(q, start, nil, nil)
	if got := c[0].Need; got <= 10+10 || got > 10+20 {
		t.Errorf("%d blocks are kept, want more than 20 and at most 30: the client takes 320 tokens", got)
	}
	now := start
	for range 100 {
		now = p.finish(t, 0, 150, 10*time.Millisecond, now)
	}
	q.MaxTokens = 0
	c, _, _ = p.Candidates(q, now, nil, nil)
	if got := c[0].Need; got > 10+11 {
		t.Errorf("%d blocks are kept after 100 answers of 150 tokens, want at most 21", got)
	}
}

// Running streams show that answers are longer than expected before any answer has ended. The next booking
// uses this, and the expected growth of the running ones rises.
func TestStreamsUnderWayTellHowLongAnswersAre(t *testing.T) {
	p, now := pool(0), start
	generating(p, 1600, 20*time.Second)
	var leases []*Lease
	for range 5 {
		q := &Query{Model: "m", Tokens: 160}
		c, _, _ := p.Candidates(q, now, nil, nil)
		l := p.Book(&c[0], q, Schedule{AdmitAt: now}, now)
		l.MarkSent(now)
		l.FirstToken(now)
		leases = append(leases, l)
	}
	need := func() int {
		c, _, _ := p.Candidates(&Query{Model: "m", Tokens: 160}, now, nil, nil)
		return c[0].Need - 10
	}
	if got := need(); got != 10 {
		t.Fatalf("before the first answer %d blocks are expected, want 10", got)
	}
	for range 20 {
		now = now.Add(time.Second)
		p.Observe("d1", load(now, 5, 0.2), now)
	}
	if got := need(); got < 60 {
		t.Errorf("%d blocks are expected for an answer, but five running answers have 100 each", got)
	}
	for _, l := range leases[:2] { // the predicted speed was four times the real speed
		l.Finish(400, 20*time.Second, now)
	}
	for _, l := range leases[2:] {
		l.Release(now)
	}
	if got := p.learned.lengths.Usual(); got < 400 {
		t.Errorf("the expected answer has %d tokens, but the shortest of five has 400", got)
	}
}

// An answer has no tokens before its first token, however long ago the request was sent: the request may
// wait in the engine, or for its prompt. The first token of an answer that is not streamed is assumed at the
// predicted time.
func TestAnswersBeginWithTheirFirstToken(t *testing.T) {
	for _, c := range []struct {
		name   string
		unseen time.Duration
		first  bool
		want   int
	}{
		{"nothing came yet", 0, false, 0},
		{"its first token came after 3 s", 0, true, 700},
		{"it should have come after 2 s", 2 * time.Second, false, 800},
	} {
		p := pool(0.5)
		generating(p, 1000, 10*time.Second)
		q := &Query{Model: "m", Tokens: 160}
		cs, _, _ := p.Candidates(q, start, nil, nil)
		l := p.Book(&cs[0], q, Schedule{AdmitAt: start, UnseenArrival: c.unseen}, start)
		l.MarkSent(start)
		if c.first {
			l.FirstToken(start.Add(3 * time.Second))
		}
		got := l.generated(p.learned.perToken(p.members.All[0]), start.Add(10*time.Second))
		if got < c.want*9/10 || got > c.want {
			t.Errorf("%s: %d tokens after 10 s, want about %d", c.name, got, c.want)
		}
	}
}
