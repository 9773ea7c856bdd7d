package orchestrator

import (
	"fmt"
	"net/http"
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

// Panicked logs the panic of a call that is none of a client's.
func (o *Orchestrator) Panicked(value any, stack []byte) { o.panics.Report("grpc", value, stack) }

// crashed answers a request whose handler panicked: 500 where nothing has been sent, else the connection is
// cut. To be deferred.
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
	q.outcome.result, q.outcome.status = "panic", http.StatusInternalServerError
	q.log.Error("a request panicked, which is a bug of this router: please report it", "id", q.id, "path",
		q.path, "error", p.Error(), "stack", string(p.stack))
	if q.w.begun {
		panic(http.ErrAbortHandler)
	}
	q.fail(refuse(kindPanic, site{phase: phaseServe, err: p}))
}
