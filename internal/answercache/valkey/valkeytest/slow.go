package valkeytest

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// SlowLink is a way to a server on which every answer takes a while. Safe for concurrent use.
type SlowLink struct {
	Addr  string
	delay atomic.Int64 // nanoseconds
	first atomic.Bool  // only the first answer on each connection
}

// NewSlowLink returns a way to the server at an address, which is not slow yet.
func NewSlowLink(t testing.TB, server string) *SlowLink {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &SlowLink{Addr: ln.Addr().String()}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			from, err := ln.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", server)
			if err != nil {
				from.Close()
				continue
			}
			running.Go(func() { _, _ = io.Copy(to, from); to.Close() })
			running.Go(func() { l.answer(from, to); from.Close() })
		}
	})
	t.Cleanup(func() { ln.Close(); running.Wait() })
	return l
}

// Delay is how long answers take from now on.
func (l *SlowLink) Delay(d time.Duration) { l.delay.Store(int64(d)) }

// OnlyFirst lets only the first answer on each connection take that long.
func (l *SlowLink) OnlyFirst() { l.first.Store(true) }

func (l *SlowLink) answer(from, to net.Conn) {
	b := make([]byte, 1<<16)
	for began := false; ; began = true {
		n, err := to.Read(b)
		if !began || !l.first.Load() {
			time.Sleep(time.Duration(l.delay.Load()))
		}
		if _, werr := from.Write(b[:n]); err != nil || werr != nil {
			return
		}
	}
}
