//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A Deployment updates the router: the new router is ready, then the old router gets SIGTERM, and the load
// balancer notices after some time. No request fails, for clients with a new connection for each request
// and for clients with kept connections. The streams of the old router are complete.
func TestTheRouterIsUpdatedUnderLoad(t *testing.T) {
	t.Parallel()
	f := newFleet(t, setting{engines: fast, extra: "timeouts: {unready: 8s, drain: 1m}\n"})
	old, oldFront := f.router, strings.TrimPrefix(f.front, "http://")
	f.serve()
	f.ready(f.prefill, f.decode)
	f.settle()
	b := balance(t, oldFront, strings.TrimPrefix(f.front, "http://"))
	f.front = "http://" + b.ln.Addr().String()
	f.client.Transport = &mixed{kept: newClient().Transport.(*http.Transport)}
	streams := f.longStreams(4)
	l := f.traffic(8, 6)
	l.more(40)
	if b.at.Load() != 0 {
		t.Fatal("the load balancer does not use the old router")
	}
	old.signal(syscall.SIGTERM)
	b.movedTo(1)
	c, err := net.Dial("tcp", oldFront)
	if err != nil {
		t.Errorf("the front closed before the load balancer could notice: %v", err)
	} else {
		c.Close()
	}
	eventually(t, patience(15*time.Second), func() error {
		c, err := net.Dial("tcp", oldFront)
		if err == nil {
			c.Close()
			return errors.New("the old front is still open")
		}
		return nil
	})
	l.more(40)
	f.noClientNoticed(streams, l)
	if code := old.exit(patience(5 * time.Second)); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// mixed sends every other request on a new connection, and the others on kept connections.
type mixed struct {
	turn atomic.Int64
	kept *http.Transport
}

func (m *mixed) RoundTrip(r *http.Request) (*http.Response, error) {
	if m.turn.Add(1)%2 == 0 {
		return m.kept.RoundTrip(r)
	}
	return (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
}

func (m *mixed) CloseIdleConnections() { m.kept.CloseIdleConnections() }

// balancer passes connections to the first router that is ready. It asks each router's /readyz every 200 ms.
type balancer struct {
	t       *testing.T
	ln      net.Listener
	routers []string // host and port of each front
	at      atomic.Int32
}

func balance(t *testing.T, routers ...string) *balancer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{t: t, ln: ln, routers: routers}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go b.pass(c)
		}
	}()
	go b.poll()
	return b
}

// pass connects a client to a router.
func (b *balancer) pass(client net.Conn) {
	defer client.Close()
	router, err := net.Dial("tcp", b.routers[b.at.Load()])
	if err != nil {
		return
	}
	defer router.Close()
	go func() {
		_, _ = io.Copy(router, client)
		_ = router.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, router)
}

func (b *balancer) poll() {
	asker := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-b.t.Context().Done():
			return
		case <-tick.C:
		}
		for i, router := range b.routers {
			resp, err := asker.Get("http://" + router + "/readyz")
			if err != nil {
				continue
			}
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				b.at.Store(int32(i))
				break
			}
		}
	}
}

// movedTo waits until the load balancer uses this router.
func (b *balancer) movedTo(router int32) {
	b.t.Helper()
	eventually(b.t, patience(5*time.Second), func() error {
		if at := b.at.Load(); at != router {
			return fmt.Errorf("the load balancer uses router %d", at)
		}
		return nil
	})
}
