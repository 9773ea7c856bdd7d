package kvevents

import (
	"fmt"
	"strconv"
	"sync"

	"github.com/pebbe/zmq4"
)

// maxSockets is far above what a large fleet needs (six a follower); libzmq's default of 1,023 is not.
const maxSockets = 32768

// Context is a ZMQ context, with one I/O thread, that followers and publishers share. The zero value is
// ready: the thread starts with the first user and ends with the last. Safe from any goroutine; must not be
// copied.
type Context struct {
	places places

	mu    sync.Mutex // guards the following
	z     *zmq4.Context
	users int
	names int
}

// acquire returns the ZMQ context, which stays until release. The caller must close its sockets before
// release.
func (c *Context) acquire() (*zmq4.Context, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.z == nil {
		z, err := newZMQ()
		if err != nil {
			return nil, fmt.Errorf("zmq context: %w", err)
		}
		c.z = z
	}
	c.users++
	return c.z, nil
}

func newZMQ() (*zmq4.Context, error) {
	z, err := zmq4.NewContext()
	if err != nil {
		return nil, err
	}
	if err := z.SetMaxSockets(maxSockets); err != nil {
		return nil, err
	}
	return z, z.SetIoThreads(1)
}

func (c *Context) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users--; c.users == 0 {
		_ = c.z.Term() // fails only on a context that is gone already
		c.z = nil
	}
}

// inproc returns an address that is unique in this context.
func (c *Context) inproc(what string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names++
	return "inproc://" + what + "-" + strconv.Itoa(c.names)
}
