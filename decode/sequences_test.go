package decode

import (
	"slices"
	"testing"
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/replica"
)

// A replica that runs its maximum of sequences gets no other request, whatever its free room, until a
// sequence has ended.
func TestAReplicaThatRunsAllItMayIsFull(t *testing.T) {
	p := New(Options{})
	p.Configure(Settings{LoadTTL: usualTTL, ExpectedOutput: 4000})
	p.SetMembers([]replica.Replica{engine("d1", 100_000)}, start)
	now := start
	var leases []*Lease
	for range 128 {
		l := book(t, p, 10, now, now)
		l.MarkSent(now)
		l.FirstToken(now)
		leases = append(leases, l)
	}
	for range 6 {
		now = now.Add(time.Second)
		p.Observe("d1", replica.Load{
			At: now, Source: replica.Metrics, Running: 128, Waiting: 8, Loading: 0, Usage: 0.1,
		}, now)
	}
	const cause = "it runs no more than 128 at a time (--max-num-seqs), with 10 % of its KV cache in use"
	if got := p.SequencesFull("d1", now); got != cause {
		t.Errorf("people are told %q", got)
	}
	if got := p.Status(now)[0].MaxSequences; got != 128 {
		t.Errorf("its status says %d", got)
	}
	q := &Query{Model: "m", Tokens: 100, MaxTokens: 4000}
	if c, _, why := p.Candidates(q, now, nil, nil); len(c) > 0 {
		t.Errorf("it is offered, with %v s to wait", c[0].Room)
	} else if why.Full != 1 || why.Retry < time.Second {
		t.Errorf("it is rejected as %+v", why)
	}
	for _, l := range leases[:100] {
		l.Release(now)
	}
	p.Observe("d1", replica.Load{At: now, Source: replica.Metrics, Running: 28, Usage: 0.1}, now)
	if c, _, _ := p.Candidates(q, now, nil, nil); len(c) != 1 || c[0].Room > 0 {
		t.Errorf("there is place, and it is not offered: %+v", c)
	}
	if got := p.SequencesFull("d1", now.Add(time.Minute)); got == "" {
		t.Error("people are not told for long")
	}
	if got := p.SequencesFull("d1", now.Add(time.Minute+time.Second)); got != "" {
		t.Errorf("people are told %q when it was over long ago", got)
	}
	if got := p.Status(now)[0].MaxSequences; got != 128 {
		t.Errorf("its status says %d later", got)
	}
}

// A replica is not reported as full by sequences if its limit is unknown, or if its room is short.
func TestWhoIsNotFullBySequences(t *testing.T) {
	p := New(Options{})
	p.Configure(Settings{LoadTTL: usualTTL, ExpectedOutput: 4000})
	p.SetMembers([]replica.Replica{engine("d1", 100_000)}, start)
	now := start
	for range 10 {
		now = now.Add(time.Second)
		p.Observe("d1", replica.Load{At: now, Source: replica.Metrics, Running: 40, Waiting: 1, Usage: 0.98}, now)
	}
	for _, id := range []replica.ID{"d1", "nobody"} {
		if got := p.SequencesFull(id, now); got != "" {
			t.Errorf("%s: %q", id, got)
		}
	}
	if got := p.Status(now)[0].MaxSequences; got != -1 {
		t.Errorf("its status says %d", got)
	}
}

// A waiting prompt that is larger than the free part of the KV cache is no sign that the engine runs all the
// sequences that it may. Nothing is told of the replica, and other requests still go there.
func TestAPromptThatWaitsForRoomIsNoSignOfALimit(t *testing.T) {
	p := New(Options{})
	p.Configure(Settings{LoadTTL: usualTTL, ExpectedOutput: 160})
	p.SetMembers([]replica.Replica{engine("d1", 1000)}, start)
	l := book(t, p, 600, start, start)
	l.MarkSent(start)
	now := start
	for range 6 {
		now = now.Add(time.Second)
		p.Observe("d1", replica.Load{At: now, Source: replica.Metrics, Running: 200, Waiting: 1, Usage: 0.5}, now)
	}
	if got := p.SequencesFull("d1", now); got != "" {
		t.Errorf("people are told %q", got)
	}
	if got := p.Status(now)[0].MaxSequences; got != -1 {
		t.Errorf("its status says %d", got)
	}
	l.FirstToken(now) // so another request waits
	for range 6 {
		now = now.Add(time.Second)
		p.Observe("d1", replica.Load{At: now, Source: replica.Metrics, Running: 201, Waiting: 1, Usage: 0.5}, now)
	}
	if got := p.Status(now)[0].MaxSequences; got != 201 {
		t.Errorf("its status says %d where the large prompt runs and small ones wait", got)
	}
}

// A request for more samples than an engine runs at a time goes to an empty replica. Its samples wait for
// each other there, and would wait on any other replica.
func TestMoreSamplesThanAReplicaRunsAreTakenOnceItIsEmpty(t *testing.T) {
	p := New(Options{})
	p.Configure(Settings{LoadTTL: usualTTL, ExpectedOutput: 4000})
	p.SetMembers([]replica.Replica{engine("d1", 100_000)}, start)
	now := start
	running := book(t, p, 10, now, now)
	running.MarkSent(now)
	running.FirstToken(now)
	for range 6 {
		now = now.Add(time.Second)
		p.Observe("d1", replica.Load{
			At: now, Source: replica.Metrics, Running: 16, Waiting: 8, Loading: 0, Usage: 0.1,
		}, now)
	}
	q := &Query{Model: "m", Tokens: 100, MaxTokens: 4000, Sequences: 64}
	if c, _, _ := p.Candidates(q, now, nil, nil); len(c) > 0 {
		t.Errorf("it is offered while others run, with %v s to wait", c[0].Room)
	}
	running.Release(now)
	p.Observe("d1", replica.Load{At: now, Source: replica.Metrics, Running: 0, Waiting: 0, Usage: 0}, now)
	c, _, why := p.Candidates(q, now, nil, nil)
	if len(c) != 1 {
		t.Fatalf("it is empty, and rejected as %+v", why)
	}
	if l := p.Book(&c[0], q, Schedule{}, now); l == nil {
		t.Error("it cannot be booked")
	}
}

// wants returns the candidates for a request that comes now.
func wants(p *Pool, now time.Time) ([]Candidate, Rejected) {
	c, _, why := p.Candidates(&Query{Model: "m", Tokens: 100, MaxTokens: 4000}, now, nil, nil)
	return c, why
}

// busy books requests on a replica that runs at most 128 of them, and reports its load.
func busy(t *testing.T, p *Pool, id replica.ID, requests, reports int, now time.Time) time.Time {
	t.Helper()
	for range requests {
		q := &Query{Model: "m", Tokens: 16, MaxTokens: 4000}
		c, _, _ := p.Candidates(q, now, nil, nil)
		at := slices.IndexFunc(c, func(c Candidate) bool { return c.member.R.ID == id })
		if at < 0 {
			t.Fatalf("%s is no candidate", id)
		}
		l := p.Book(&c[at], q, Schedule{AdmitAt: now}, now)
		l.MarkSent(now)
		l.FirstToken(now)
	}
	for range reports {
		now = now.Add(time.Second)
		p.Observe(id, replica.Load{
			At: now, Source: replica.Metrics, Running: min(requests, 128), Waiting: max(0, requests-128), Usage: 0.1,
		}, now)
	}
	return now
}

// A replica that runs its maximum stays a candidate beside a replica that does not, because its cached
// prefix may be worth the wait. If all replicas run their maximum, all requests wait.
func TestAReplicaThatRunsAllItMayIsDearBesideAnother(t *testing.T) {
	p := New(Options{})
	p.Configure(Settings{LoadTTL: usualTTL, ExpectedOutput: 4000})
	p.SetMembers([]replica.Replica{engine("d1", 100_000), engine("d2", 100_000)}, start)
	now := busy(t, p, "d1", 160, 6, start)
	c, why := wants(p, now)
	if len(c) != 2 || why.Full != 0 {
		t.Fatalf("%d are offered, %d are full", len(c), why.Full)
	}
	if c[0].Room < ledger.ShortWait.Seconds() || c[1].Room > 0 {
		t.Errorf("%v s until there is a place on the full one, %v s on the other", c[0].Room, c[1].Room)
	}
	now = busy(t, p, "d2", 146, 6, now)
	if c, why = wants(p, now); len(c) != 0 || why.Full != 2 || why.Retry < time.Second {
		t.Errorf("%d are offered, and the others are %+v", len(c), why)
	}
}

// A replica without a learned limit is assumed to run an eighth more than another replica of its pool, and
// any number as soon as it has run more than that.
func TestAnUnknownReplicaRunsAboutAsManyAsOthers(t *testing.T) {
	p := New(Options{})
	p.Configure(Settings{LoadTTL: usualTTL, ExpectedOutput: 4000})
	p.SetMembers([]replica.Replica{engine("d1", 100_000), engine("d2", 100_000)}, start)
	now := busy(t, p, "d1", 140, 6, start)
	now = busy(t, p, "d2", 128+128/8-1, 0, now)
	if c, _ := wants(p, now); len(c) != 2 || c[1].Room > 0 {
		t.Errorf("before it runs an eighth more: %d candidates, %v s", len(c), c[1].Room)
	}
	now = busy(t, p, "d2", 1, 0, now)
	if c, _ := wants(p, now); len(c) != 2 || c[1].Room == 0 {
		t.Errorf("when it does: %d candidates, %v s", len(c), c[1].Room)
	}
	now = now.Add(time.Second)
	p.Observe("d2", replica.Load{At: now, Source: replica.Metrics, Running: 144, Usage: 0.1}, now)
	if c, _ := wants(p, now); len(c) != 2 || c[1].Room > 0 {
		t.Errorf("when it has shown that it runs more: %d candidates, %v s", len(c), c[1].Room)
	}
}
