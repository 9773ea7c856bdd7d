package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
)

// aLine sends a line to the relay and reads a line back.
func aLine(c net.Conn, line string) (string, error) {
	if _, err := c.Write([]byte(line + "\n")); err != nil {
		return "", err
	}
	return bufio.NewReader(c).ReadString('\n')
}

// TestARelayBreaksOff checks that the relay resets its connections, and then relays new connections.
func TestARelayBreaksOff(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ended := make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, err := io.Copy(c, c)
				ended <- err
			}()
		}
	}()
	r, err := relayTo(l.Addr().(*net.TCPAddr).Port)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c, err := net.Dial("tcp", r.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := aLine(c, "hello"); got != "hello\n" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
		r.reset()
		if _, err := aLine(c, "on"); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("a connection that was reset gives %v", err)
		}
		<-ended // the engine sees the reset too
		_ = c.Close()
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", r.listener.Addr().String()); err == nil {
		t.Error("a stopped relay still listens")
	}
}

// TestARelayToNobody checks that the relay refuses connections when no process listens behind it.
func TestARelayToNobody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	r, err := relayTo(port)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	c, err := net.Dial("tcp", r.listener.Addr().String())
	if err == nil {
		defer c.Close()
		_, err = aLine(c, "hello")
	}
	if err == nil {
		t.Error("a relay without a process behind it answered")
	}
}
