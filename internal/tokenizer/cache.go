package tokenizer

import (
	"container/list"
	"sync"
	"time"
)

// cache keeps results by their prompt, the least recently used going first when the bytes run out. It keeps
// no prompt, only its hash.
type cache struct {
	limit int64

	mu    sync.Mutex // guards the following
	room  int64      // bytes left
	m     map[key]*list.Element
	order *list.List // of *entry, most recent first
	gone  uint64     // counts what was forgotten
}

type entry struct {
	key    key
	result Result
	engine string    // the engine that made the ids
	until  time.Time // when it is too old; zero: never
}

// overhead is what an entry takes beside its ids, roughly.
const overhead = 320

func (e *entry) bytes() int64 { return int64(cap(e.result.IDs))*4 + overhead }

func newCache(limit int64) *cache {
	return &cache{room: limit, limit: limit, m: map[key]*list.Element{}, order: list.New()}
}

func (c *cache) get(k key, now time.Time) (Result, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.m[k]
	if !ok {
		return Result{}, false
	}
	e := at.Value.(*entry)
	if !e.until.IsZero() && !now.Before(e.until) {
		c.drop(at)
		return Result{}, false
	}
	c.order.MoveToFront(at)
	return e.result, true
}

// forgotten returns how often an engine was forgotten. put takes nothing that was asked before the newest
// time.
func (c *cache) forgotten() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// put keeps ids. Estimates, refusals and what would fill most of the cache alone are not kept.
func (c *cache) put(e *entry, forgotten uint64) {
	if e.result.Err != nil || e.result.IDs == nil {
		return
	}
	e.result.IDs = append(make([]uint32, 0, len(e.result.IDs)), e.result.IDs...)
	if e.bytes() > c.limit/2 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if forgotten != c.gone {
		return
	}
	if old, ok := c.m[e.key]; ok {
		c.drop(old)
	}
	c.m[e.key] = c.order.PushFront(e)
	for c.room -= e.bytes(); c.room < 0; {
		c.drop(c.order.Back())
	}
}

// forget drops what engine has said, and what is being asked.
func (c *cache) forget(engine string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone++
	for at := c.order.Front(); at != nil; {
		next := at.Next()
		if at.Value.(*entry).engine == engine {
			c.drop(at)
		}
		at = next
	}
}

func (c *cache) drop(at *list.Element) {
	old := c.order.Remove(at).(*entry)
	delete(c.m, old.key)
	c.room += old.bytes()
}

// call is a question under way.
type call struct {
	done   chan struct{}
	result Result // once done is closed
	left   bool   // likewise: the asking caller left before the answer; the result is no answer
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
	if c.m[k] == done {
		delete(c.m, k)
	}
	c.mu.Unlock()
	close(done.done)
}

// forget keeps later questions from joining a call that is under way now.
func (c *calls) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.m)
}
