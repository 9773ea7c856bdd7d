package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/decode/turns"
	"github.com/tandem-router/tandem/internal/estimate"
)

// This file is how a prompt that a replica computes itself is sent in pieces, each a request of its own for
// a longer beginning of it, and the request itself at last: the engine finds all but the rest in its prefix
// cache. Sent at once, a long prompt fills every step of the engine's with as many tokens as that takes,
// and every stream there stands still for half a second at a time. A piece takes about [Settings.Piece],
// and streams there stand still for that.
//
// The pieces of several prompts in one step would be as bad as one long prompt, so that they take turns:
// the engine has pieces for [Settings.Piece] at a time. Who has least left goes first, but not before
// those that have waited for passOver times as long as what is left of them takes, so that nobody waits
// for ever.

// passOver is for how many times what is left of a prompt shorter ones that came later go before it. With 1
// one of 0.3 s waited for 10 s behind some of 5 s that had come as much sooner, and all of them were late.
const passOver = 2

// leastPiece is the fewest tokens of a piece: less of it is computed than it costs to ask for it.
const leastPiece = 512

// Next is what of a prompt is to be sent next.
type Next struct {
	Upto  int           // so many leading tokens; all of them for the request itself; 0: nothing yet
	Ask   time.Duration // where there is nothing: when to ask again, unless woken before
	Whole string        // why the request itself comes although nothing or little of its prompt was sent
}

// Why a prompt is sent whole, or what is left of it at once.
const (
	wholeOff        = "pieces are turned off"
	wholeNoPrefixes = "its replica keeps no prefixes, as far as is known"
	wholeShort      = "shorter than prefill_piece"
	wholeFine       = "its engine cuts prompts as finely itself"
	wholeFailed     = "a piece has failed"
)

// Next returns what of l's prompt is to be sent now. Where it is nothing yet, wake is called when it is
// worth asking again, once, from any goroutine and with the pool's lock held: it must neither block nor
// call the pool. Safe for concurrent use, but that of one lease one goroutine calls it and
// [Lease.Computed].
func (l *Lease) Next(now time.Time, wake func()) Next {
	p, seen := l.pool, l.seePrefix()
	p.members.Lock()
	defer p.members.Unlock()
	m := l.member
	if !l.pieces.On || l.entry.State() == ledger.Ended || m.Gone {
		return Next{Upto: l.entry.Tokens}
	}
	speed, t := p.speed(m), &m.turns
	x := &l.pieces
	t.Forget(x)
	l.updatePrefix(seen, now)
	l.leaveTurn(now)
	t.Expire(now)
	first := t.First()
	rest := speed.Prefill(l.entry.Tokens-l.computed(), l.computed())
	room, full, after := p.fullOf(m, &speed, rest, now)
	if full || first != nil && first.Due < x.Due {
		return Next{Ask: t.Wait(x, wake, after, now)}
	}
	if first != nil {
		first.WakeUp() // there may be room for both
	}
	return p.take(l, &speed, rest, room, now)
}

// fullOf reports whether m has as much to compute as it may have at a time, so that a prompt of which so
// many seconds are left has to wait, and in which time it can have been through with enough, zero where
// that is for its answers to tell. Else it has room for so many seconds. An engine that cuts prompts itself
// gets the next one when no more than a piece is left of those before: it would have nothing to compute
// while an answer is on its way here and the prompt there, and fills the last step of one with the next.
func (p *Pool) fullOf(
	m *member, by *estimate.Speed, rest float64, now time.Time,
) (room float64, full bool, after time.Time) {
	t, most := &m.turns, p.pieceOf(m, by)
	if m.learned.CutsPrompts(now) {
		left := t.Left(by.T0, now)
		return most, left > most, now.Add(seconds(left-most) + time.Microsecond) // not by a rounding before it
	}
	room = most - t.InFlight(by.T0)
	return room, t.Flying() > 0 && rest-by.T0 > room && room < most/2, time.Time{}
}

// take gives the engine the next piece of l.
func (p *Pool) take(l *Lease, speed *estimate.Speed, rest, room float64, now time.Time) Next {
	x, m := &l.pieces, l.member
	upto, lasts, whole := l.piece(speed, rest, room, now)
	l.asked(upto)
	x.Lasts = lasts
	step := m.step(speed)
	ahead := 0.0
	if m.learned.CutsPrompts(now) {
		ahead = m.turns.Left(speed.T0, now) // it begins behind these
	}
	x.Until = now.Add(2 * (seconds(ahead+x.Lasts+step) + turns.Hops))
	x.Begins, x.Roomy = l.begins(step, now), p.hasRoom(m, now)
	if m.turns.Take(x); x.Upto < l.entry.Tokens {
		m.others.Ours(m.known())
	}
	return Next{Upto: x.Upto, Whole: whole}
}

// Whole says why l's prompt may not be sent in pieces, where pieces of it were asked for; "" where it may.
// Safe for concurrent use.
func (l *Lease) Whole() string {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	switch {
	case l.pieces.On:
		return ""
	case l.pool.settings.Piece <= 0:
		return wholeOff
	}
	return wholeNoPrefixes
}

// Computed says that the answer of the newest piece has come, how many of its tokens the engine says that it
// had before, -1 unknown, and the pauses of the streams beside it; or that it has failed: what follows does
// not depend on it. Safe for concurrent use. It does nothing where there is none.
func (l *Lease) Computed(ok bool, had int, beside Pauses, now time.Time) {
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	x := &l.pieces
	if x.Upto == 0 || x.Upto == l.entry.Tokens || l.entry.State() == ledger.Ended {
		return
	}
	if ok {
		from := l.computed()
		if had >= 0 {
			from = min(had, x.Upto)
		}
		p.learnComputed(l, from, x.Upto, x.Begins, x.Roomy, now)
		p.learnOwnSteps(l, beside, now)
		x.Begun, x.Prefix = true, turns.Prefix{Base: x.Upto}
	} else {
		x.Failed = true // the rest at once finds what it finds
		l.member.learned.Spoil()
	}
	l.leaveTurn(now)
	if l.entry.Missing() {
		p.progress(l, now)
	}
}

// leaveTurn notes that the engine has nothing of l's prompt any more.
func (l *Lease) leaveTurn(now time.Time) {
	l.member.turns.Leave(&l.pieces, now)
	l.asked(0)
}

// endPieces takes l's prompt out, and wakes who goes on.
func (l *Lease) endPieces(now time.Time) {
	if !l.pieces.On {
		return
	}
	l.pieces.On = false // it has left the queue
	t := &l.member.turns
	t.Forget(&l.pieces)
	l.leaveTurn(now)
	if first := t.First(); first != nil {
		first.WakeUp()
	}
}

// progress takes in what is left of l's prompt now.
func (p *Pool) progress(l *Lease, now time.Time) {
	x, left := &l.pieces, p.leftOf(l, now)
	l.member.turns.Progress(x, left, p.turnOf(x.Booked, left), now)
}

// computed returns how many leading tokens of the prompt should be on the replica.
func (l *Lease) computed() int { return l.pieces.Prefix.Tokens() }

// begins returns when the engine begins with what of l is sent now. An engine that has answered goes on at
// once with a decode step, and what comes meanwhile is in the next one.
func (l *Lease) begins(step float64, now time.Time) time.Time {
	m := l.member
	next := m.learned.Last().Add(seconds(step))
	switch {
	case m.decoding() == 0 || m.turns.Beside(&l.pieces):
		return now
	case next.After(now):
		return next
	}
	return now.Add(seconds(step / 2)) // on average, of the one that is under way
}

// asked makes upto the token up to which the engine has l's prompt now.
func (l *Lease) asked(upto int) {
	if l.pieces.Upto == upto {
		return
	}
	l.member.book.Changed()
	l.pieces.Upto = upto
}

// due is l's turn among those whose prompts its replica computes in pieces: passOver times as many seconds
// behind its booking as are left of it. It does not move from one piece to the next: who is woken would come
// behind those that have not asked since, and nobody would wake them. Where it moves all the same, since a
// prefix was evicted, [Lease.updatePrefix] has the next one woken.
func (l *Lease) due() int64 { return l.pool.turnOf(l.pieces.Booked, l.pieces.Predicted) }

// turnOf returns the turn of a prompt that came then and of which so much is left.
func (p *Pool) turnOf(came time.Time, left time.Duration) int64 {
	return p.ledger.At(came.Add(passOver * left))
}

// piece returns up to which token the next piece of l goes, that takes most seconds, how long it takes, and
// where it is the rest, why it is all that. All pieces that are left take about as long.
func (l *Lease) piece(
	speed *estimate.Speed, rest, most float64, now time.Time,
) (upto int, lasts float64, whole string) {
	n := turns.Pieces(rest, most)
	from, size := l.computed(), l.member.blockSize()
	tokens := max(leastPiece, speed.Within(rest/float64(n), from))
	upto = max((from+tokens)/size, from/size+1) * size // a block at least, however large blocks are
	switch short := n == 1 || upto+leastPiece > l.entry.Tokens; {
	case l.pieces.Failed:
		whole = wholeFailed
	case short && l.pieces.Begun: // the last of them
	case short:
		whole = wholeShort
	case l.member.learned.CutsPrompts(now):
		whole = wholeFine
	default:
		return upto, speed.Prefill(upto-from, from), ""
	}
	return l.entry.Tokens, rest, whole
}

// pieceOf returns how many seconds a piece on m may take now.
func (p *Pool) pieceOf(m *member, speed *estimate.Speed) float64 {
	most := p.settings.Piece.Seconds()
	if m.decoding() == 0 {
		return most
	}
	longer, _ := m.besidePrompt(speed) // streams stand still for that, too
	return max(most-longer, most/2)
}

// decoding returns how many sequences m has, sent or on their way, whose prompts it is not to compute
// itself.
func (m *member) decoding() int {
	g, e := &m.book, &m.remote
	return g.Answering + g.Arriving + e.Decoding() + e.Arriving + m.others.Count
}

// leftOf returns how long it takes until l, whose prompt is sent in pieces, has all of it.
func (p *Pool) leftOf(l *Lease, now time.Time) time.Duration {
	speed, from := p.speed(l.member), l.computed()
	rest := speed.Prefill(l.entry.Tokens-from, from)
	cut := p.cut(l.member, &speed, rest, l.entry.Tokens-from, now)
	return seconds(rest + cut.between - cut.shared)
}

// cut is how a prompt is computed where others decode.
type cut struct {
	pieces  int
	between float64 // seconds for which it waits for decode steps, between its pieces and in their own steps
	shared  float64 // seconds of all that it does not add to what other prompts there take
}

// cut returns how m computes a prompt of so many tokens that are not there, and so many seconds of work. An
// engine that cuts prompts itself is asked once.
func (p *Pool) cut(m *member, speed *estimate.Speed, work float64, tokens int, now time.Time) cut {
	c := cut{pieces: turns.Pieces(work, p.pieceOf(m, speed)), shared: speed.Shared(tokens)}
	longer, wait := m.besidePrompt(speed)
	c.between = float64(c.pieces)*longer + wait
	if c.pieces == 1 {
		c.shared += c.between * estimate.SharedPart(tokens)
		return c
	}
	if !m.learned.CutsPrompts(now) {
		c.between += float64(c.pieces-1) * (2*wait + turns.Hops.Seconds())
	}
	return c
}
