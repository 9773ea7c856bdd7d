package orchestrator

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// crash moves a panic from a helper goroutine to the request's own goroutine, which answers it. Otherwise the
// panic would end the process.
type crash struct {
	mu    sync.Mutex // guards the following
	first *panicked
}

// panicked is a panic with its stack.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// keep must be deferred by the goroutine. A panic sets *err.
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

// again repeats the panic of a goroutine, if there was one. Call it after all goroutines have ended.
func (c *crash) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first != nil {
		panic(c.first)
	}
}
