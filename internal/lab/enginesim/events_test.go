package enginesim

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/kvevents"
)

// heard is a sink that counts the calls from a follower.
type heard struct {
	mu       sync.Mutex
	stored   int
	forgets  int
	state    kvevents.State
	firstSeq []uint64 // first sequence number after each Forget
	fresh    bool
}

func (h *heard) Apply(b *kv.Batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.fresh {
		h.firstSeq = append(h.firstSeq, b.Seq)
		h.fresh = true
	}
	for _, e := range b.Events {
		if e.Kind == kv.Stored {
			h.stored += len(e.Hashes)
		}
	}
}

func (h *heard) Forget(string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgets++
	h.stored, h.fresh = 0, false
}

func (h *heard) State(s kvevents.State, _ string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = s
}

func (h *heard) has(stored, forgets int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stored == stored && h.forgets == forgets && h.state == kvevents.Live
}

// follow follows a rank's events until the test ends.
func follow(t *testing.T, s *Server) *heard {
	t.Helper()
	h := new(heard)
	pub, replay := s.Endpoints(0)
	f := kvevents.NewFollower(kvevents.Source{Endpoint: pub, Replay: replay}, h,
		kvevents.Options{ReplayTimeout: 300 * time.Millisecond, Reconnect: 10 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return h
}

// A follower on real ZMQ sockets knows every block, even after lost batches and a restart, for the new and
// the old form of events.
func TestEventsOverZMQ(t *testing.T) {
	for _, version := range []string{"0.32.0", "0.20.0"} {
		t.Run(version, func(t *testing.T) {
			noLeaks(t)
			s := startServer(t, Options{ZeroLatency: true, Version: version, EventsEndpoint: "tcp://127.0.0.1:0"})
			ask := func(seed uint64) { post(t, s, "/v1/completions", completionBody(prompt(seed, 100), 1, "null")) }
			ask(1)
			h := follow(t, s)
			eventually(t, "what was before is replayed", func() bool { return h.has(6, 0) })
			ask(2)
			eventually(t, "what is live arrives", func() bool { return h.has(12, 0) })
			mustFault(t, s, Fault{Kind: "drop_events"})
			ask(3)
			ask(4)
			eventually(t, "what was lost is replayed", func() bool { return h.has(24, 0) })
			mustFault(t, s, Fault{Kind: "restart", For: 20 * time.Millisecond})
			eventually(t, "server back", func() bool { return reachable(s) })
			ask(5)
			eventually(t, "the restart is noticed", func() bool { return h.has(6, 1) })
		})
	}
}

// Paused and delayed batches arrive in the end, in order.
func TestLateEvents(t *testing.T) {
	noLeaks(t)
	s := startServer(t, Options{ZeroLatency: true, EventsEndpoint: "tcp://127.0.0.1:0"})
	h := follow(t, s)
	eventually(t, "live", func() bool { return h.has(0, 0) })
	mustFault(t, s, Fault{Kind: "pause_events", For: 30 * time.Millisecond})
	post(t, s, "/v1/completions", completionBody(prompt(1, 100), 1, "null"))
	if h.has(6, 0) {
		t.Error("events arrived during the pause")
	}
	eventually(t, "the pause over", func() bool { return h.has(6, 0) })
	mustFault(t, s, Fault{Kind: "delay_events", For: 30 * time.Millisecond})
	for seed := range uint64(3) {
		post(t, s, "/v1/completions", completionBody(prompt(seed+2, 100), 1, "null"))
	}
	if h.has(24, 0) {
		t.Error("events arrived without delay")
	}
	eventually(t, "late events", func() bool { return h.has(24, 0) })
}
