package memnet

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
)

func TestNet(t *testing.T) {
	var n Net
	if _, err := n.Dial(t.Context(), "tcp", "a:1"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody listens: %v", err)
	}
	l, err := n.Listen("tcp", "a:1")
	if err != nil || l.Addr().String() != "a:1" {
		t.Fatalf("listen: %v at %v", err, l.Addr())
	}
	if _, err := n.Listen("tcp", "a:1"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listen twice: %v", err)
	}
	got := make(chan string)
	go func() {
		c, _ := l.Accept()
		b, _ := io.ReadAll(c)
		got <- string(b)
	}()
	c, err := n.Dial(t.Context(), "tcp", "a:1")
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "hello")
	n.Cut("a:1")
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read after the cut: %v", err)
	}
	if s := <-got; s != "hello" {
		t.Errorf("got %q", s)
	}
	n.Refuse("a:1", true)
	if _, err := n.Dial(t.Context(), "tcp", "a:1"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("refused: %v", err)
	}
	n.Refuse("a:1", false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.Dial(ctx, "tcp", "a:1"); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody accepts: %v", err)
	}
	if err := errors.Join(l.Close()); err != nil || !errors.Is(l.Close(), net.ErrClosed) {
		t.Errorf("close: %v, want an error the second time only", err)
	}
}
