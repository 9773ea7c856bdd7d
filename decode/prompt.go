package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/turns"
)

// promptKV is the KV of a lease's prompt: where it comes from, and how far that is.
type promptKV struct {
	state   promptState
	guessed bool // the index counts it as the replica's before its events say so

	local     bool          // the replica computes it; else another one sends it
	predicted time.Duration // for what is left to compute, where it is local
	booked    time.Time     // where it is local
	prev      *Lease        // in the list of local prefills, as is next
	next      *Lease
	pieces    turns.Prompt // how that is sent, where it is not sent at once
	inbound   inbound      // where it is not local
}

// promptState is what is known of the KV of a lease's prompt. It only ever moves down this list.
//
//	pending    it is not on the replica: it is in the ledger's list of local prefills, or of inbound KV.
//	arrived    it is there, or was due long ago, or will never be, since the lease has ended.
//	           Invariant: it is in neither list.
//	answered   the first token came.
type promptState uint8

const (
	pending promptState = iota
	arrived
	answered
)

// Speculate lets the index count the blocks of the prompt that was booked on l's replica before its events
// say so, within the given time.
func (l *Lease) Speculate(within time.Duration, now time.Time) {
	if l == nil {
		return
	}
	l.pool.members.Lock()
	guess := !l.prompt.guessed && l.state != ended
	l.prompt.guessed = true
	l.pool.members.Unlock()
	if guess {
		l.pool.Speculate(&l.member.Member, l.named, within, now)
	}
}

// Exact reports whether nothing shows that other blocks of the prompt are on l's replica now than were
// believed when it was booked, or that somebody else brings or computes more of them there at the same time.
// Only then is it known what a transfer that begins now will move.
func (l *Lease) Exact() bool {
	return l.pool.HasOnly(&l.member.Member, l.named, l.matched) && !l.others()
}

// others reports whether the replica was sent a request before which has no answer yet and whose prompt has
// the next block in common that l's lacks.
func (l *Lease) others() bool {
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	return l.member.ledger.orders.unanswered.shared(l, l.matched) > l.matched
}

// Delivered tells how many tokens of the prompt the engine found in its own cache, -1 unknown, when the
// replica prefilled by itself. The count corrects what is assumed of a replica without events, and says
// which blocks the events of a replica must announce.
func (l *Lease) Delivered(cached int, now time.Time) {
	if l != nil && l.prompt.local {
		l.pool.RecordComputed(&l.member.Member, l.named, l.matched, cached)
		l.pool.Expect(&l.member.Member, l.named, cached, now)
	}
}
