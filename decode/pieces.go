package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/decode/turns"
	"github.com/tandem-router/tandem/internal/estimate"
)

// This file sends a local prompt in pieces. Each piece is a request of its own for a longer beginning of the
// prompt, and the request itself comes last: the engine finds the earlier pieces in its prefix cache. Sent
// whole, a long prompt fills every step of the engine with as many tokens as fit, and every stream there
// stops for half a second at a time. A piece takes about [Settings.Piece], and streams stop only so long.
//
// The pieces of several prompts in one step would be as bad as one long prompt, so the prompts take turns:
// the engine has pieces of [Settings.Piece] in total. The prompt with the least left goes first. But shorter
// prompts may overtake a prompt only for a limited time (passOver), so that no prompt waits for ever.

// leastPiece is the fewest tokens of a piece: a smaller piece costs more in messages than in computing.
const leastPiece = 512

// Why a prompt, or its rest, is sent whole.
const (
	wholeOff        = "pieces are turned off"
	wholeNoPrefixes = "its replica keeps no prefixes, as far as is known"
	wholeShort      = "shorter than prefill_piece"
	wholeFine       = "its engine cuts prompts as finely itself"
	wholeFailed     = "a piece has failed"
)

// Next returns the part of l's prompt to send now. If nothing may be sent yet, wake is called when it is
// worth asking again: once, from any goroutine and with the pool's lock held, so it must neither block nor
// call the pool. Safe for concurrent use, but for one lease only one goroutine calls Next and
// [Lease.Computed].
func (l *Lease) Next(now time.Time, wake func()) Next {
	p, seen := l.pool, l.seePrefix()
	p.members.Lock()
	defer p.members.Unlock()
	if !l.pieces.On || l.entry.State() == ledger.Ended || l.member.Gone {
		return Next{Upto: l.entry.Tokens}
	}
	seen.known = seen.known && l.entry.Missing()
	return p.cutter.next(l.member, &l.pieces, seen, wake, now)
}

// next is [Lease.Next] for x, a prompt of m.
func (c *cutter) next(m *member, x *turns.Prompt, seen prefixSeen, wake func(), now time.Time) Next {
	speed, t := c.learned.speed(m), &m.local.turns
	t.Forget(x)
	c.see(m, x, seen, now)
	m.leaveTurn(x, now)
	t.Expire(now)
	first := t.First()
	rest := speed.Prefill(x.Tokens-x.Prefix.Tokens(), x.Prefix.Tokens())
	room, full, after := c.fullOf(m, &speed, rest, now)
	if full || first != nil && first.Due < x.Due {
		return Next{Ask: t.Wait(x, wake, after, now)}
	}
	if first != nil {
		first.WakeUp() // there may be room for both
	}
	return c.take(m, x, &speed, rest, room, now)
}

// fullOf reports whether m may get no further piece now. rest is the seconds left of the prompt. after is
// when to ask again; zero means at the next answer. If m is not full, room is the seconds that m may get.
// An engine that cuts prompts itself gets the next prompt when no more than a piece of the earlier prompts is
// left. So the engine has work while the messages travel, and fills the last step of a prompt with the next.
func (c *cutter) fullOf(
	m *member, by *estimate.Speed, rest float64, now time.Time,
) (room float64, full bool, after time.Time) {
	t, most := &m.local.turns, c.pieceOf(m, by)
	if m.learned.CutsPrompts(now) {
		left := t.Left(by.T0, now)
		return most, left > most, now.Add(seconds(left-most) + time.Microsecond) // not by a rounding before it
	}
	room = most - t.InFlight(by.T0)
	return room, t.Flying() > 0 && rest-by.T0 > room && room < most/2, time.Time{}
}

// take gives the engine of m the next piece of x.
func (c *cutter) take(
	m *member, x *turns.Prompt, speed *estimate.Speed, rest, room float64, now time.Time,
) Next {
	upto, lasts, whole := m.piece(x, speed, rest, room, now)
	m.ask(x, upto)
	x.Lasts = lasts
	step := m.step(speed)
	ahead := 0.0
	if m.learned.CutsPrompts(now) {
		ahead = m.local.turns.Left(speed.T0, now) // the piece begins behind all earlier work
	}
	x.Until = now.Add(2 * (seconds(ahead+x.Lasts+step) + turns.Hops))
	x.Begins, x.Roomy = m.begins(x, step, now), !x.Pulls && c.rooms.enough(m, now)
	if m.local.turns.Take(x); x.Upto < x.Tokens {
		m.Others.Ours(m.known())
	}
	return Next{Upto: x.Upto, Whole: whole}
}

// Whole returns why l's prompt may not be sent in pieces although the caller wanted it; "" if it may. Safe
// for concurrent use.
func (l *Lease) Whole() string {
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	switch {
	case l.pieces.On:
		return ""
	case p.settings.Piece <= 0:
		return wholeOff
	}
	return wholeNoPrefixes
}

// Computed records the answer of the newest piece. had is how many of its tokens were cached before, by the
// engine's report; -1 unknown. beside are the pauses of the streams meanwhile. If the piece has failed (not
// ok), the next part does not depend on it. Without a piece Computed does nothing. Safe for concurrent use.
func (l *Lease) Computed(ok bool, had int, beside Pauses, now time.Time) {
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	x := &l.pieces
	if x.Upto == 0 || x.Upto == l.entry.Tokens || l.entry.State() == ledger.Ended {
		return
	}
	x.Roomy = x.Roomy && !p.learned.paused(l, now)
	p.cutter.computed(l.member, x, ok, had, beside, now)
	if l.entry.Missing() {
		p.cutter.progress(l.member, x, now)
	}
}

// computed is [Lease.Computed] for x, a prompt of m.
func (c *cutter) computed(m *member, x *turns.Prompt, ok bool, had int, beside Pauses, now time.Time) {
	if ok {
		from := x.Prefix.Tokens()
		if had >= 0 {
			from = min(had, x.Upto)
		}
		c.learned.computed(m, from, x.Upto, x.Begins, x.Roomy, now)
		c.learned.besidePiece(m, x, beside, c.settings.Piece.Seconds(), now)
		x.Begun, x.Prefix = true, turns.Prefix{Base: x.Upto}
	} else {
		x.Failed = true // the rest is sent at once, and uses the blocks that are still cached
		m.learned.Spoil()
	}
	x.Pulls = false
	m.leaveTurn(x, now)
}

// progress records the time that is left of x, a prompt of m.
func (c *cutter) progress(m *member, x *turns.Prompt, now time.Time) {
	left := c.leftOf(m, x, now)
	m.local.turns.Progress(x, left, c.turnOf(x.BookedAt, left), now)
}

// leaveTurn records that the engine has no part of x any more.
func (m *member) leaveTurn(x *turns.Prompt, now time.Time) {
	m.local.turns.Leave(x, now)
	m.ask(x, 0)
}

// endPieces removes x from the turns, and wakes the next prompt.
func (m *member) endPieces(x *turns.Prompt, now time.Time) {
	if !x.On {
		return
	}
	x.On = false // it has left the queue
	t := &m.local.turns
	t.Forget(x)
	m.leaveTurn(x, now)
	if first := t.First(); first != nil {
		first.WakeUp()
	}
}

// begins returns when the engine begins with the part of x that is sent now. An engine that has just
// answered makes a decode step at once; a prompt that arrives meanwhile is in the next step.
func (m *member) begins(x *turns.Prompt, step float64, now time.Time) time.Time {
	next := m.learned.Last().Add(seconds(step))
	switch {
	case m.decoding() == 0 || m.local.turns.Beside(x):
		return now
	case next.After(now):
		return next
	}
	return now.Add(seconds(step / 2)) // on average, of the one that is under way
}

// ask sets the token up to which the engine has x now.
func (m *member) ask(x *turns.Prompt, upto int) {
	if x.Upto == upto {
		return
	}
	m.account.Changed()
	x.Upto = upto
}

// piece returns the end of the next piece of x, which takes at most most seconds, and its predicted seconds.
// If the piece is the whole rest, whole says why. All remaining pieces take about as long.
func (m *member) piece(
	x *turns.Prompt, speed *estimate.Speed, rest, most float64, now time.Time,
) (upto int, lasts float64, whole string) {
	n := turns.Pieces(rest, most)
	from, size := x.Prefix.Tokens(), m.cache().blockSize()
	if x.Pulls { // the piece computes no more than the last block, so other prompts need not wait for the pull
		return from, speed.Prefill(size, from-size), ""
	}
	tokens := max(leastPiece, speed.Within(rest/float64(n), from))
	upto = max((from+tokens)/size, from/size+1) * size // a block at least, however large blocks are
	switch short := n == 1 || upto+leastPiece > x.Tokens; {
	case x.Failed:
		whole = wholeFailed
	case short && x.Begun: // the last piece
	case short:
		whole = wholeShort
	case m.learned.CutsPrompts(now):
		whole = wholeFine
	default:
		return upto, speed.Prefill(upto-from, from), ""
	}
	return x.Tokens, rest, whole
}

// prefixSeen is the cached part of a prefix, by events, at one time.
type prefixSeen struct {
	base, tokens int
	known        bool
}

// seePrefix looks up how much of l's prefix is cached, by events. The one goroutine that sends the pieces
// calls it, without the pool's lock.
func (l *Lease) seePrefix() prefixSeen {
	h := prefixSeen{base: l.pieces.Prefix.Base}
	if h.base > 0 && !l.pieces.Pulls { // else no event has told of the pulled blocks yet
		h.tokens, h.known = l.pool.Heard(&l.member.Member, l.entry.Named, h.base)
	}
	return h
}

// see takes in how much of the prefix of x, a prompt of m, is cached. A prompt that waits for its turn may
// lose its prefix to others. Then a piece up to an evicted part would compute that part, too, and hold up
// every stream. Blocks that events have not announced yet are not evicted: the blocks are predicted to come,
// or were computed just now. Without events nothing counts as evicted. A turn that has moved may be behind
// the turn of a prompt that asked before.
func (c *cutter) see(m *member, x *turns.Prompt, seen prefixSeen, now time.Time) {
	if seen.known && seen.base == x.Prefix.Base && !m.Blind() && x.Prefix.Heard(seen.tokens) {
		c.progress(m, x, now)
		m.account.Changed()
		m.local.turns.Moved()
	}
}

// Watch begins to watch the streams of l's replica, as a piece of l is sent. Safe for concurrent use. Each
// watch is ended once.
func (l *Lease) Watch(now time.Time) turns.Watch { return l.member.beside.Watch(now) }
