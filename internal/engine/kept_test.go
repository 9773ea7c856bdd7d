package engine

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// kept returns the number of idle connections that the clients keep.
func kept(clients []*Client) (n int) {
	for _, c := range clients {
		c.idle.mu.Lock()
		n += len(c.idle.conns)
		c.idle.mu.Unlock()
	}
	return n
}

// Traffic moves from engine to engine. All clients together never keep more connections than the limit. A
// connection that one client drops makes room for the other clients.
func TestClientsKeepABoundedNumberOfConnections(t *testing.T) {
	const most = 6
	all := NewKept(most)
	clients := make([]*Client, 4)
	for i := range clients {
		clients[i], _, _ = serve(t, Options{Kept: all, IdleTimeout: 20 * time.Millisecond}, echo)
	}
	for round := range 40 {
		var wg sync.WaitGroup
		for _, c := range clients {
			for range 1 + rand.IntN(8) {
				wg.Go(func() {
					if status, _, err := send(t.Context(), c, "/", []byte("x")); status != 200 || err != nil {
						t.Errorf("got %d, %v; want 200", status, err)
					}
				})
			}
		}
		wg.Go(clients[round%4].idle.empty)
		wg.Go(func() { clients[(round+1)%4].idle.takeOld() })
		wg.Wait()
		if n := kept(clients); n > most {
			t.Fatalf("got %d kept connections, want at most %d", n, most)
		}
	}
	if kept(clients) == 0 {
		t.Error("no connection is kept, so this test shows nothing")
	}
	clients[0].Retire()
	clients[1].idle.distrust()
	clients[2].Close()
	clients[3].idle.empty()
	if n, counted := kept(clients), all.now.Load(); n != 0 || counted != 0 {
		t.Errorf("got %d kept connections and a count of %d, want none", n, counted)
	}
	if NewKept(0) != nil {
		t.Error("NewKept(0) limits the connections, want no limit")
	}
}
