package cluster

import "time"

// kind says what happens.
type kind uint8

const (
	arrive   kind = iota // call a comes to the router
	stepped              // engine's step is over
	wakened              // an engine may have to make a step
	sent                 // leg of call a reaches engine
	replied              // prefill answer of call a reaches the router
	streamed             // first token of call a reaches the router
	asked                // call a asks for the next piece of its prompt
	pieced               // the answer of a piece of call a reaches the router
	ended                // last token of call a reaches the router
	read                 // the read of call a by its decode replica is over
	fetched              // an engine gets the blocks that another engine had
	flowed               // a transfer over shared links may have ended
	heard                // block events of an engine reach the routers
	polled               // a load report of an engine reaches a router
	ticked               // a second has passed
	shared               // a router reports to the others
	turned               // a trouble begins or ends
	noticed              // routers learn that a replica has left or joined
	failed               // the failure of a leg of call a reaches the router
	retried              // call a is placed again
)

// event is something that happens at a time. Events of the same time happen in the order of their planning.
type event struct {
	at      time.Duration
	seq     uint64
	e       *engine
	call    *call
	to      *front
	trouble *Trouble
	fetch   *fetch
	kind    kind
}

// queue is a heap of events. It keeps its memory.
type queue struct {
	heap []event
	seq  uint64
}

func (q *queue) add(ev event) {
	q.seq++
	ev.seq = q.seq
	q.heap = append(q.heap, ev)
	i := len(q.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !q.heap[i].before(&q.heap[parent]) {
			break
		}
		q.heap[i], q.heap[parent] = q.heap[parent], q.heap[i]
		i = parent
	}
}

func (q *queue) pop() event {
	top, last := q.heap[0], len(q.heap)-1
	q.heap[0] = q.heap[last]
	q.heap[last] = event{}
	q.heap = q.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && q.heap[child+1].before(&q.heap[child]) {
			child++
		}
		if !q.heap[child].before(&q.heap[i]) {
			break
		}
		q.heap[i], q.heap[child] = q.heap[child], q.heap[i]
		i = child
	}
	return top
}

func (a *event) before(b *event) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }
