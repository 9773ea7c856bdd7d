package orchestrator

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"
)

// crash brings a panic of a goroutine that works for a request to the request's own, where it is answered: else it would end the process.
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

// again panics as the goroutine did, if one did. To be called when all of them have ended.
func (c *crash) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first != nil {
		panic(c.first)
	}
}

// afterPanic is how long what lasts waits after a panic before it begins anew.
const afterPanic = time.Second

// guarded runs f, which works for no request: a panic of it is logged and ends nothing else. It reports whether there was one. Whatever this router starts on a
// goroutine of its own runs in it or brings its panic to a request, as [crash] does.
func (o *Orchestrator) guarded(where string, f func()) (panicked bool) {
	defer func() {
		if v := recover(); v != nil {
			panicked = true
			o.panicked(where, v, debug.Stack())
		}
	}()
	f()
	return false
}

// Panicked logs the panic of a call that is none of a client's.
func (o *Orchestrator) Panicked(value any, stack []byte) { o.panicked("grpc", value, stack) }

func (o *Orchestrator) panicked(where string, value any, stack []byte) {
	o.log.Error("the router panicked, which is a bug of it: please report it", "where", where, "error", fmt.Sprintf("panic: %v", value), "stack", string(stack))
}

// keepRunning runs f until it returns, and anew after a panic, as long as ctx lasts.
func (o *Orchestrator) keepRunning(ctx context.Context, where string, f func()) {
	for o.guarded(where, f) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(afterPanic):
		}
	}
}

// crashed answers a request whose handler panicked: 500 where nothing has been sent, else the connection is cut. To be deferred.
func (q *request) crashed() {
	v := recover()
	switch p, brought := v.(*panicked); {
	case v == nil:
		return
	case v == http.ErrAbortHandler:
		panic(v)
	case brought:
		v = p
	default:
		v = &panicked{v, debug.Stack()}
	}
	p := v.(*panicked)
	q.out = "panic"
	q.o.log.Error("a request panicked, which is a bug of this router: please report it", "id", q.id, "path", q.path, "error", p.Error(), "stack", string(p.stack))
	if q.w.begun {
		panic(http.ErrAbortHandler)
	}
	f := refuse("serve", "panic", http.StatusInternalServerError, "The router failed on this request.")
	f.err = p
	q.fail(f)
}
