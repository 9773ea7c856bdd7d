package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/decode/turns"
	"github.com/tandem-router/tandem/internal/estimate"
)

// stream is the answer of a lease: when it began, how far it has come, and what was found when the request
// was sent.
type stream struct {
	ahead   ahead        // what it had to wait for when it was sent
	foreign bool         // when it was sent, blocks were on their way there that this router did not ask for
	roomy   bool         // when it was sent there was room for it
	firstAt time.Time    // when its first token came; zero before that
	read    turns.Stream // as its replica's streams are watched, see [Lease.Streamed]

	window    estimate.Window
	begun     estimate.Done      // of its replica at the first token, or if nobody sees that, when sent
	meanwhile estimate.Meanwhile // until the answer came, if nobody sees the first token
}

// ahead is what a request finds at its engine.
type ahead uint8

const (
	behindOthers    ahead = iota // that wait for room or a turn, or whose prompts are computed first; or unknown
	besideTransfers              // others' blocks are on their way; nobody waits
	behindNobody
)

// begin takes in the first token, or the whole answer where nobody tells of the first. It returns how long
// that took since the request was sent, 0 where nobody sees the first token.
func (l *Lease) begin(now time.Time) time.Duration {
	l.stream.firstAt = now
	if l.entry.UnseenArrival > 0 {
		return 0
	}
	return now.Sub(l.entry.SentAt())
}

// began returns when the first token came, or should have come where nobody sees it; zero before that.
func (l *Lease) began() time.Time {
	if sent := l.entry.SentAt(); l.stream.firstAt.IsZero() && l.entry.UnseenArrival > 0 && !sent.IsZero() {
		return sent.Add(l.entry.UnseenArrival)
	}
	return l.stream.firstAt
}

// step returns the seconds that a step took on average, of an answer of so many tokens a sequence; 0 where
// that is not known. Of an answer that is not streamed nobody sees the first token: it tells something where
// nearly all of its time must have been decoding.
func (l *Lease) step(each int, decoding time.Duration) float64 {
	s, unseen := &l.stream, l.entry.UnseenArrival
	switch whole := s.firstAt.Sub(l.entry.SentAt()); {
	case each < estimate.MinSteps:
		return 0
	case unseen == 0:
		return decoding.Seconds() / float64(each-1)
	case !s.firstAt.IsZero() && s.ahead != behindOthers && whole > mostlySteps*unseen:
		return (whole - unseen).Seconds() / float64(each)
	}
	return 0
}

// mostlySteps is how many times longer than until its first token an answer must have taken to tell something
// of its steps.
const mostlySteps = 5

// Arrival says how long a request took to its first token, and what its engine did meanwhile.
type Arrival struct {
	Took time.Duration // since it was sent; 0 where nobody sees the first token, or where that came before
	Held float64       // seconds of these in which its replica computed prompts
	// It waited for room, for a turn or behind prompts that its replica computes: nobody knows for how long.
	Waited bool
}

// FirstToken records that the first token arrived, or the whole answer if the first token cannot be
// observed. It teaches the speed of a local prefill. Without events it also tells the index that the replica
// has the prompt now.
func (l *Lease) FirstToken(now time.Time) Arrival {
	if l == nil {
		return Arrival{}
	}
	x, first := l.first(now)
	if first {
		l.pool.Await(&l.member.Member, l.entry.Named, now)
		l.pool.RecordComputed(&l.member.Member, l.entry.Named, 0, -1)
		if !l.entry.Local { // else Delivered tells more
			l.pool.Expect(&l.member.Member, l.entry.Named, -1, now)
		}
	}
	return x
}

func (l *Lease) first(now time.Time) (x Arrival, first bool) {
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	if l.entry.PromptState() == ledger.Answered || l.entry.SentAt().IsZero() {
		return Arrival{}, false
	}
	computed := l.entry.Missing()
	l.stream.meanwhile = p.since(&l.stream.begun, l.member, now)
	x.Held, x.Waited = l.stream.meanwhile.Held, l.waits(now)
	if computed {
		p.learnPrefill(l, now) // what its step decoded was without its own sequences
	}
	p.arrive(l, now)
	l.member.book.Answer(&l.entry)
	if computed {
		p.endSpan(l)
	}
	l.endPieces(now)
	if l.entry.UnseenArrival == 0 {
		l.stream.begun = p.done(l.member, now)
	}
	x.Took = l.begin(now)
	return x, true
}

// waits reports whether l waits, or may have waited, for more than its blocks. An engine that does not
// report which requests load blocks may count l as its waiting request.
func (l *Lease) waits(now time.Time) bool {
	m := l.member
	if l.stream.ahead == behindOthers || l.stream.foreign || m.localWait(now) > 0 {
		return true
	}
	return m.load.Read(now, l.pool.settings.LoadTTL).Waiting > max(1, m.load.Fetching())
}

// Fetches reports whether l waits for nothing but its blocks: no other reason is known why its engine has
// not begun, and the engine has computed no prompt since l was sent. Safe for concurrent use.
func (l *Lease) Fetches(now time.Time) bool {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	held := l.pool.since(&l.stream.begun, l.member, now).Held
	return l.entry.State() < ledger.Ended && !l.waits(now) && held <= estimate.HandoverMost
}
