//go:build !unix

package engine

import (
	"net"
	"time"
)

// socket is not reachable here: reads hold their buffer while they wait, and an idle connection is believed
// to live.
type socket struct{ raw *struct{} }

func (c *conn) open(net.Conn)         {}
func (c *conn) readRaw() (int, error) { panic("engine: no socket") }
func (c *conn) peek() peeked          { return peekNothing }

func (c *conn) inTurn(*buffer, int) (time.Time, bool, *Error) { panic("engine: no socket") }
