package order

import "container/heap"

// Heap is a heap of items, each of which knows its place. [NewHeap] makes one.
type Heap[T any] struct{ h items[T] }

// NewHeap returns an empty heap. place says where an item keeps its place, counted from 1; 0 while it is in
// no heap.
func NewHeap[T any](before func(a, b *T) bool, place func(x *T) *int) Heap[T] {
	return Heap[T]{items[T]{before: before, place: place}}
}

// Len returns how many items there are.
func (q *Heap[T]) Len() int { return q.h.Len() }

// First returns the item that is before all others, nil for none.
func (q *Heap[T]) First() *T {
	if len(q.h.all) == 0 {
		return nil
	}
	return q.h.all[0]
}

// Has reports whether x is in the heap, at its place.
func (q *Heap[T]) Has(x *T) bool {
	at := *q.h.place(x)
	return at > 0 && at <= len(q.h.all) && q.h.all[at-1] == x
}

// Add enters x, which is in no heap.
func (q *Heap[T]) Add(x *T) { heap.Push(&q.h, x) }

// Remove takes x out, if it is in the heap.
func (q *Heap[T]) Remove(x *T) {
	if at := *q.h.place(x); at > 0 {
		heap.Remove(&q.h, at-1)
	}
}

// items is a Heap for container/heap.
type items[T any] struct {
	all    []*T
	before func(a, b *T) bool
	place  func(x *T) *int
}

func (h *items[T]) Len() int { return len(h.all) }

func (h *items[T]) Less(i, j int) bool { return h.before(h.all[i], h.all[j]) }

func (h *items[T]) Swap(i, j int) {
	h.all[i], h.all[j] = h.all[j], h.all[i]
	*h.place(h.all[i]), *h.place(h.all[j]) = i+1, j+1
}

func (h *items[T]) Push(x any) {
	item := x.(*T)
	h.all = append(h.all, item)
	*h.place(item) = len(h.all)
}

func (h *items[T]) Pop() any {
	last := len(h.all) - 1
	item := h.all[last]
	h.all[last] = nil
	h.all = h.all[:last]
	*h.place(item) = 0
	return item
}
