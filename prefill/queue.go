package prefill

import (
	"cmp"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
)

// queue is what we sent to one replica and it has not answered: leases in the order of booking. Guarded by
// the lock of the pool.
//
// All sums are integers, so that they are exactly zero again when nothing is left.
type queue struct {
	first, last *Lease
	count       int
	tokens      int           // uncached tokens of all
	work        time.Duration // predicted seconds of all
	ended       time.Time     // when the first one was done or given up last
	answered    time.Time     // when any was done last
	fresh       int           // prompt tokens that the newest usage report cannot include
	epoch       uint64        // usage reports so far
	changes     uint64        // changes so far to the numbers that other routers get
}

// Lease is work booked on a prefill replica. Its holder ends it with Release or [Lease.Done].
//
// Long: all that is known of one prompt, under one lock.
type Lease struct {
	pool *Pool

	// Guarded by the lock of the pool, as are all following fields.
	member     *member
	prev, next *Lease
	done       bool
	prompt     int // tokens
	counted    int // tokens by the engine's count, 0 unknown
	matched    int // tokens believed to be cached
	pulled     int // tokens behind them that are to be pulled from another engine
	named      roster.Prompt
	work       time.Duration
	at         time.Time
	epoch      uint64
	victims    *kv.Foreseen
	reads      *estimate.ReadBack // nil for a prompt with all matched blocks on the GPU
}

func (q *queue) push(l *Lease) {
	if last := q.last; last == nil {
		q.first = l
	} else {
		last.next, l.prev = l, last
	}
	q.last = l
	l.epoch = q.epoch
	q.changes++
	q.count++
	q.tokens += l.prompt - l.matched - l.pulled
	q.work += l.work
	q.fresh += l.prompt
}

func (q *queue) remove(l *Lease, now time.Time) {
	prev, next := l.prev, l.next
	if prev == nil {
		q.first, q.ended = next, now
	} else {
		prev.next = next
	}
	if next == nil {
		q.last = prev
	} else {
		next.prev = prev
	}
	l.prev, l.next = nil, nil
	q.changes++
	q.count--
	q.tokens -= l.prompt - l.matched - l.pulled
	q.work -= l.work
	if l.epoch == q.epoch {
		q.fresh -= l.prompt
	}
}

// settled notes a usage report, which includes all prompts sent before.
func (q *queue) settled() {
	q.epoch++
	q.fresh = 0
}

// front returns the first prompt of q.
func (q *queue) front() roster.Front {
	f := roster.Front{Ended: q.ended, Answered: q.answered}
	if q.first != nil {
		f.Work, f.At = q.first.work, q.first.at
	}
	return f
}

// wait returns the predicted time until everything booked is done, given that the first has run for a while.
func (q *queue) wait(now time.Time) time.Duration {
	if q.first == nil {
		return 0
	}
	return q.work - q.front().Ran(now)
}

// wait returns the waiting time behind all prompts that routers have booked on m, plus the time by which the
// first prompt is overdue. An engine whose core stands still answers no request, and would otherwise seem to
// have no queue.
func (m *member) wait(now time.Time) time.Duration {
	if m.remote.Work == 0 && !m.remote.First.Reported() { // most are asked by most plans
		if m.queue.first == nil {
			return 0
		}
		return m.queue.wait(now) + m.queue.front().Overdue(now)
	}
	first, front := &m.remote.First, m.queue.front()
	return first.Left(m.queue.work, m.remote.Work, front, now) + first.Overdue(front, now)
}

// Speculate lets the index count the blocks of keys on l's replica before they are computed and announced,
// for the given time. keys belong to the booked prompt. keys are kept and must not be changed.
func (l *Lease) Speculate(keys []kv.Key, within time.Duration, now time.Time) {
	if l == nil {
		return
	}
	l.pool.members.Lock()
	l.named.Keys = keys
	named := l.named
	l.pool.members.Unlock()
	l.pool.Speculate(&l.member.Member, named, within, now)
	victims := l.pool.Foresee(&l.member.Member, named, l.matched)
	l.pool.members.Lock()
	l.victims = victims
	l.pool.members.Unlock()
}

// Leaving returns the rate at which blocks leave l's replica, in prompts a second.
func (l *Lease) Leaving(now time.Time) float64 {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	return l.member.pace.Rate(now)
}

// Outbox is where the blocks that l's replica has to send are counted; nil on nil.
func (l *Lease) Outbox() *replica.Outbox {
	if l == nil {
		return nil
	}
	return &l.member.outbox
}

// Release ends the lease of a prompt that was not computed. A second call, and one on nil or behind
// [Lease.Done], does nothing. Safe for concurrent use.
func (l *Lease) Release(now time.Time) {
	if l != nil && l.gaveUp(now) {
		l.pool.Retract(&l.member.Member, l.named)
		l.pool.Ended(&l.member.Member, l.named, l.victims)
	}
}

// gaveUp reports whether the lease was still live.
func (l *Lease) gaveUp(now time.Time) bool {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	if !l.end(now) {
		return false
	}
	l.member.gaveUp()
	l.member.Others.GaveUp(1)
	return true
}

// end reports whether the lease was still live.
func (l *Lease) end(now time.Time) bool {
	if l.done {
		return false
	}
	l.done = true
	l.member.queue.remove(l, now)
	return true
}

// Done ends the lease after the engine's answer: with cached tokens (-1 unknown) and the time since the
// request was sent. The pool learns the replica's speed, and its cached blocks where it sends no events.
func (l *Lease) Done(cached int, took time.Duration, now time.Time) {
	if l != nil && l.answered(cached, took, now) {
		l.pool.Await(&l.member.Member, l.named, now)
		l.pool.RecordComputed(&l.member.Member, l.named, l.matched, cached)
		l.pool.Expect(&l.member.Member, l.named, cached, now)
		l.pool.Ended(&l.member.Member, l.named, l.victims)
	}
}

// Counted records how many tokens the prompt has by the engine's count, ahead of [Lease.Done]. Nil is no
// lease, and 0 is no count.
func (l *Lease) Counted(tokens int) {
	if l == nil {
		return
	}
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	l.counted = tokens
}

// answered reports whether the lease was still live.
func (l *Lease) answered(cached int, took time.Duration, now time.Time) bool {
	p, m := l.pool, l.member
	p.members.Lock()
	defer p.members.Unlock()
	if !l.end(now) {
		return false
	}
	m.queue.answered = now
	prompt := cmp.Or(l.counted, l.prompt)
	if cached >= 0 {
		cached = min(cached, prompt)
		m.counts.Predicted += uint64(l.matched)
		m.counts.Delivered += uint64(cached)
	} else {
		cached = min(l.matched, prompt)
	}
	if l.pulled > 0 {
		m.gaveUp() // its time says nothing about the speed of m
		return true
	}
	p.learned.answered(l, prompt-cached, cached, took, now)
	return true
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
