package orchestrator

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// crash brings a panic of a goroutine that works for a request to the request's own, where it is answered:
// else it would end the process.
type crash struct {
	mu    sync.Mutex // guards the following
	first *panicked
}

// panicked is a panic with the stack on which it was.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// keep is to be deferred by the goroutine; *err is set by a panic.
func (c *crash) keep(err *error) {
	v := recover()
	if v == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &panicked{v, debug.Stack()}
	if c.first == nil {
		c.first = p
	}
	*err = p
}

// again panics as a goroutine did, if one did. Call it when all goroutines have ended.
func (c *crash) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first != nil {
		panic(c.first)
	}
}
