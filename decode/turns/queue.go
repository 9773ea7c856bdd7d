package turns

import (
	"time"

	"github.com/tandem-router/tandem/decode/order"
)

// Queue is the prompts that one replica has yet to compute itself. They stand in the order of booking, which
// is the engine's order. The zero Queue is empty.
//
// A finished prompt leaves with its whole prediction, so that its error is not carried on to the next.
type Queue struct {
	head, tail *Prompt
	work       time.Duration // predicted for all prompts
	pieces     order.List    // prompts in pieces, by their turns; the weight is the remaining time
	left       time.Time     // when a prompt last left
	ended      time.Time     // when the first prompt, or one of its pieces, was last done
}

// Head returns the prompt that is computed first, nil for none.
func (q *Queue) Head() *Prompt { return q.head }

// Empty reports whether the replica has no prompt to compute.
func (q *Queue) Empty() bool { return q.head == nil }

// Work returns the predicted time of all prompts.
func (q *Queue) Work() time.Duration { return q.work }

// LeftAt returns when a prompt left last: it was done or given up.
func (q *Queue) LeftAt() time.Time { return q.left }

// EndedAt returns when the first prompt of the queue, or one of its pieces, was last done.
func (q *Queue) EndedAt() time.Time { return q.ended }

// Pieces returns how many prompts are sent in pieces, and their predicted time.
func (q *Queue) Pieces() (n int, work time.Duration) {
	return q.pieces.Len(), time.Duration(q.pieces.Weight())
}

// After returns how many prompts in pieces have their turn after due, and their predicted time.
func (q *Queue) After(due int64) (n int, work time.Duration) {
	sooner, theirs := q.pieces.Before(func(turn int64) bool { return turn > due })
	return q.pieces.Len() - sooner, time.Duration(q.pieces.Weight() - theirs)
}

// Enter adds x at the end. x has its predicted time and its turn already.
func (q *Queue) Enter(x *Prompt, now time.Time) {
	x.BookedAt = now
	if tail := q.tail; tail == nil {
		q.head = x
	} else {
		tail.next, x.prev = x, tail
	}
	q.tail = x
	q.work += x.Predicted
	q.count(x, 1)
}

// Exit removes x, which is in the queue: it is done or given up.
func (q *Queue) Exit(x *Prompt, now time.Time) {
	q.count(x, -1)
	prev, next := x.prev, x.next
	if prev == nil {
		q.head, q.ended = next, now
	} else {
		prev.next = next
	}
	if next == nil {
		q.tail = prev
	} else {
		next.prev = prev
	}
	x.prev, x.next = nil, nil
	q.work -= x.Predicted
	q.left = now
}

// Progress records that a part of x, which is in the queue, is done. left is the remaining time and due the
// new turn.
func (q *Queue) Progress(x *Prompt, left time.Duration, due int64, now time.Time) {
	q.count(x, -1)
	q.work += left - x.Predicted
	x.Predicted, x.Due = left, due
	if q.head == x {
		q.ended = now
	}
	q.count(x, 1)
}

// count adds x to the prompts in pieces, or removes it, by sign: 1 or -1.
func (q *Queue) count(x *Prompt, sign int) {
	if x.On {
		q.pieces.Change(order.Entry{Key: x.Due, ID: x.ID, Weight: int64(x.Predicted)}, sign)
	}
}

// Beside reports whether the engine has another prompt than x, or a piece of one, to compute, or will get it
// without a turn.
func (q *Queue) Beside(x *Prompt) bool {
	for one := q.head; one != nil; one = one.next {
		if one != x && (!one.On || one.Upto > 0) {
			return true
		}
	}
	return false
}
