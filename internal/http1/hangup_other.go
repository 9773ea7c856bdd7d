//go:build !linux

package http1

// hangups watches connections for clients that hang up. On this system it can only watch connections that
// report this themselves.
type hangups struct{}

func newHangups() *hangups { return &hangups{} }

func (*hangups) add(c *conn) bool {
	n, ok := c.nc.(notifier)
	if ok {
		c.forget = n.OnHangUp(c.life.hungUp)
	}
	return ok
}

func (*hangups) release() {}
