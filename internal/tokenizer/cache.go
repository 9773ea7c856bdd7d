package tokenizer

import (
	"container/list"
	"sync"
)

// cache keeps results by their prompt, the least recently used going first when the bytes run out. It keeps no prompt, only its hash.
type cache struct {
	mu    sync.Mutex
	room  int64 // bytes left
	limit int64
	m     map[key]*list.Element
	order *list.List // of *entry, most recent first
}

type entry struct {
	key    key
	result Result
}

// overhead is what an entry takes beside its ids, roughly.
const overhead = 256

func (e *entry) bytes() int64 { return int64(cap(e.result.IDs))*4 + overhead }

func newCache(limit int64) *cache {
	return &cache{room: limit, limit: limit, m: map[key]*list.Element{}, order: list.New()}
}

func (c *cache) get(k key) (Result, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.m[k]
	if !ok {
		return Result{}, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*entry).result, true
}

// put keeps ids. Estimates, refusals and what would fill most of the cache alone are not kept.
func (c *cache) put(k key, r Result) {
	if r.Err != nil || r.IDs == nil {
		return
	}
	r.IDs = append(make([]uint32, 0, len(r.IDs)), r.IDs...)
	e := &entry{k, r}
	if e.bytes() > c.limit/2 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.m[k]; ok {
		c.drop(old)
	}
	c.m[k] = c.order.PushFront(e)
	for c.room -= e.bytes(); c.room < 0; {
		c.drop(c.order.Back())
	}
}

func (c *cache) drop(e *list.Element) {
	old := c.order.Remove(e).(*entry)
	delete(c.m, old.key)
	c.room += old.bytes()
}

// call is a question under way.
type call struct {
	done   chan struct{}
	result Result // once done is closed
	left   bool   // likewise: whoever asked left before the answer; the result is no answer
}

// calls are the questions under way.
type calls struct {
	mu sync.Mutex
	m  map[key]*call
}

// join returns the call for k and whether the caller is to make it.
func (c *calls) join(k key) (call *call, leader bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if running, ok := c.m[k]; ok {
		return running, false
	}
	call = newCall()
	c.m[k] = call
	return call, true
}

func newCall() *call { return &call{done: make(chan struct{})} }

func (c *calls) end(k key, done *call) {
	c.mu.Lock()
	delete(c.m, k)
	c.mu.Unlock()
	close(done.done)
}
