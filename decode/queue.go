package decode

import "container/heap"

// leaseQueue is a heap of leases, each of which knows its place. The zero value is none: it needs both
// functions.
type leaseQueue struct {
	leases []*Lease
	before func(a, b *Lease) bool
	place  func(l *Lease) *int // where l keeps its place, counted from 1; 0 while it is not in the queue
}

// first returns who is before all others, nil for nobody.
func (q *leaseQueue) first() *Lease {
	if len(q.leases) == 0 {
		return nil
	}
	return q.leases[0]
}

func (q *leaseQueue) add(l *Lease) { heap.Push(q, l) }

// remove takes l out, if it is in the queue.
func (q *leaseQueue) remove(l *Lease) {
	if at := *q.place(l); at > 0 {
		heap.Remove(q, at-1)
	}
}

// Len is for container/heap.
func (q *leaseQueue) Len() int { return len(q.leases) }

// Less is for container/heap.
func (q *leaseQueue) Less(i, j int) bool { return q.before(q.leases[i], q.leases[j]) }

// Swap is for container/heap.
func (q *leaseQueue) Swap(i, j int) {
	q.leases[i], q.leases[j] = q.leases[j], q.leases[i]
	*q.place(q.leases[i]), *q.place(q.leases[j]) = i+1, j+1
}

// Push is for container/heap.
func (q *leaseQueue) Push(x any) {
	l := x.(*Lease)
	q.leases = append(q.leases, l)
	*q.place(l) = len(q.leases)
}

// Pop is for container/heap.
func (q *leaseQueue) Pop() any {
	last := len(q.leases) - 1
	l := q.leases[last]
	q.leases[last] = nil
	q.leases = q.leases[:last]
	*q.place(l) = 0
	return l
}
