// Package enginetest has servers for tests that stand where an engine should, and are none.
package enginetest

import (
	"io"
	"net"
	"testing"
)

// HangUp starts a server on a loopback port that reads so many bytes of each connection, writes text and
// hangs up, and returns its address. It ends with the test.
func HangUp(t testing.TB, read int, text string) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	t.Cleanup(func() {
		ln.Close()
		<-gone
	})
	go func() {
		defer close(gone)
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(nc, make([]byte, read)) // one that leaves before gets nothing
			_, _ = nc.Write([]byte(text))
			nc.Close()
		}
	}()
	return ln.Addr().String()
}
