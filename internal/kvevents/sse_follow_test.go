package kvevents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// written is a sink that writes down what it is told, without reasons but where they matter. Safe for
// concurrent use.
type written struct {
	mu   sync.Mutex // guards told
	told []string
}

func (w *written) add(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, what)
}

// take returns what was written down since the last time.
func (w *written) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := w.told
	w.told = nil
	return told
}

func (w *written) Apply(b *kv.Batch) {
	for _, e := range b.Events {
		w.add(fmt.Sprintf("%s %x", e.Kind, uint64(e.Hashes[0])))
	}
}

func (w *written) Forget(reason string) {
	if !strings.HasPrefix(reason, Restart) {
		reason = ""
	}
	w.add(strings.TrimSpace("forget " + reason))
}

func (w *written) State(s State, _ string) { w.add(s.String()) }

// overHTTP is a follower of a stream in memory. Each connection is a pipe that a story writes to.
type overHTTP struct {
	t      *testing.T
	f      *Follower
	log    written
	open   chan *io.PipeWriter
	after  written // what each connection was asked to begin behind
	refuse atomic.Bool
	stop   context.CancelFunc
	ended  chan error
}

// inHTTP runs a story in fake time.
func inHTTP(t *testing.T, story func(h *overHTTP)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &overHTTP{t: t, open: make(chan *io.PipeWriter, 1), ended: make(chan error, 1)}
		h.f = NewFollower(Source{Endpoint: "/v1/kv_events"}, &h.log, Options{Open: h.connect})
		ctx, stop := context.WithCancel(t.Context())
		h.stop = stop
		go func() {
			time.Sleep(time.Millisecond) // until the story waits for something, so that it is the first
			h.ended <- h.f.Run(ctx)
		}()
		story(h)
		stop()
		if err := <-h.ended; err != nil {
			t.Error(err)
		}
	})
}

func (h *overHTTP) connect(ctx context.Context, path, after string) (io.ReadCloser, error) {
	if h.refuse.Load() {
		return nil, errors.New("refused")
	}
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
	h.after.add(after)
	h.open <- w
	return r, nil
}

// say writes to a connection, and waits until it was taken.
func (h *overHTTP) say(w io.Writer, text string) {
	h.t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		h.t.Fatal(err)
	}
	synctest.Wait()
}

// told checks what the sink was told since the last time.
func (h *overHTTP) told(want ...string) {
	h.t.Helper()
	synctest.Wait()
	if told := h.log.take(); !slices.Equal(told, want) {
		h.t.Errorf("told %q, want %q", told, want)
	}
}

func created(id string, hash int) string {
	return id + fmt.Sprintf("event: cache_created\ndata: {\"prefix_hash\":\"%02x\",\"token_ids\":[1]}\n\n", hash)
}

// A stream whose events have ids goes on behind a short loss, and is void where something is missing.
func TestServerSentEventsWithIDs(t *testing.T) {
	inHTTP(t, func(h *overHTTP) {
		w := <-h.open
		h.say(w, created("id: 5\n", 0xa))
		h.say(w, created("id: 6\n", 0xb))
		h.told("syncing", "live", "stored a", "stored b")
		w.Close()
		h.told("stale")
		w = <-h.open
		h.told()
		h.say(w, created("id: 7\n", 0xc))
		h.told("stored c", "live")
		w.Close()
		w = <-h.open
		h.say(w, created("id: 9\n", 0xd))
		h.told("stale", "forget", "stored d", "live")
		h.say(w, created("id: 11\n", 0xe)) // lost within a connection
		h.told("forget", "stale", "stored e", "live")
		h.say(w, created("id: 3\n", 0xf))
		h.told("forget engine restarted: sequence fell back", "stored f")
		if after := h.after.take(); !slices.Equal(after, []string{"", "6", "7"}) {
			t.Errorf("asked to begin behind %q, want none, 6 and 7", after)
		}
		s := h.f.Stats()
		if s.Gaps != 2 || s.Lost != 2 || s.Restarts != 1 || s.Reconnects != 2 || s.Batches != 6 || s.State != Live {
			t.Errorf("%+v", s)
		}
	})
}

// Without ids nothing is believed longer than the connection.
func TestServerSentEventsWithoutIDs(t *testing.T) {
	inHTTP(t, func(h *overHTTP) {
		w := <-h.open
		h.say(w, created("", 0xa))
		h.say(w, created("", 0xb))
		h.told("syncing", "live", "stored a", "stored b")
		w.Close()
		h.told("forget", "stale")
		w = <-h.open
		h.say(w, created("", 0xc))
		h.told("live", "stored c")
		h.say(w, created("id: 4\n", 0xd)) // ids begin in between: nobody knows what that means
		h.told("forget", "stale")
		w = <-h.open
		h.say(w, created("id: 5\n", 0xe))
		h.told("live", "stored e")
		w.Close()
		w = <-h.open
		h.say(w, created("", 0xf))
		h.told("stale", "forget", "stored f", "live")
	})
}

// What cannot be read voids what was applied, and what is not about the cache counts for nothing.
func TestServerSentEventsThatCannotBeRead(t *testing.T) {
	inHTTP(t, func(h *overHTTP) {
		w := <-h.open
		h.say(w, created("id: 1\n", 0xa))
		h.say(w, "id: 2\nevent: cache_evicted\ndata: {\n\n")
		h.told("syncing", "live", "stored a", "forget", "stale")
		h.say(w, created("id: 3\n", 0xb))
		h.told("stored b", "live")
		h.say(w, "event: heartbeat\ndata: .\n\n: comment\n\ndata: {\"event\":\"heartbeat\"}\n\n")
		h.say(w, "id: 4\nevent: heartbeat\ndata: .\n\n")
		h.say(w, created("id: 5\n", 0xc))
		h.told("stored c")
		h.say(w, "id: 6\nevent: cache_moved\ndata: {\"prefix_hash\":\"0c\"}\n\n")
		h.told("forget", "stale")
		if s := h.f.Stats(); s.Unknown != 3 || s.DecodeErrors != 2 || s.Gaps != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// An event that was left out because of what it is voids what was known, though the ids go on behind it.
func TestServerSentEventsThatAreRefused(t *testing.T) {
	for name, event := range map[string]string{
		"no id":     "event: cache_evicted\ndata: {\"prefix_hash\":\"0a\"}\n\n",
		"no number": "id: x\nevent: cache_evicted\ndata: {\"prefix_hash\":\"0a\"}\n\n",
		"too long":  "event: cache_evicted\ndata: {\"prefix_hash\":\"0a\"" + strings.Repeat(" ", maxSSE) + "}\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			inHTTP(t, func(h *overHTTP) {
				w := <-h.open
				h.say(w, created("id: 6\n", 0xa))
				h.told("syncing", "live", "stored a")
				_, _ = io.WriteString(w, event) // the end of what is too long is not taken
				w.Close()
				h.told("forget", "stale")
				w = <-h.open
				h.say(w, created("id: 7\n", 0xb))
				h.told("live", "stored b")
			})
		})
	}
}

// An event that the end of a connection cut off is none: it comes again, or is missing by its id.
func TestServerSentEventsThatAreCutOff(t *testing.T) {
	inHTTP(t, func(h *overHTTP) {
		w := <-h.open
		h.say(w, created("id: 6\n", 0xa)+strings.TrimSuffix(created("id: 7\n", 0xb), "\n"))
		w.CloseWithError(errors.New("cut"))
		h.told("syncing", "live", "stored a", "stale")
		w = <-h.open
		h.say(w, created("id: 7\n", 0xb))
		h.told("stored b", "live")
		if after := h.after.take(); !slices.Equal(after, []string{"", "6"}) {
			t.Errorf("asked to begin behind %q, want none and 6", after)
		}
	})
}

// An engine that tells no tokens is never believed, by no connection, until it tells some.
func TestServerSentEventsWithoutTokens(t *testing.T) {
	inHTTP(t, func(h *overHTTP) {
		const bare = "event: cache_created\ndata: {\"prefix_hash\":\"0c\",\"token_count\":16}\n\n"
		w := <-h.open
		h.say(w, bare)
		h.say(w, "event: cache_evicted\ndata: {\"prefix_hash\":\"0c\"}\n\n")
		h.told("syncing", "live", "stale", "removed c")
		w.Close()
		w = <-h.open
		h.told("forget")
		h.say(w, "event: cache_evicted\ndata: {\"prefix_hash\":\"0c\"}\n\n")
		h.told("removed c")
		h.say(w, created("", 0xd))
		h.told("stored d", "live")
	})
}

// A restart that others have seen voids the blocks at once, with a connection and without one. A connection
// that stands may be to the process before, so another one is made.
func TestServerSentEventsOfARestartedEngine(t *testing.T) {
	inHTTP(t, func(h *overHTTP) {
		w := <-h.open
		h.say(w, created("id: 0\n", 0xa))
		h.told("syncing", "live", "stored a")
		h.f.Restarted("pid")
		h.told("forget engine restarted: pid", "stale")
		w = <-h.open
		h.say(w, created("id: 0\n", 0xb))
		h.told("live", "stored b")
		h.refuse.Store(true)
		w.Close()
		time.Sleep(time.Second)
		h.told("stale")
		h.f.Restarted("pid")
		h.told("forget engine restarted: pid")
		h.refuse.Store(false)
		w = <-h.open
		h.say(w, created("id: 0\n", 0xc))
		h.told("live", "stored c")
		if after := h.after.take(); !slices.Equal(after, []string{"", "", ""}) {
			t.Errorf("asked to begin behind %q, want none each time", after)
		}
	})
}

// An engine that was gone for as long as a start takes may be another process, whatever its ids say.
func TestServerSentEventsOfAnEngineThatWasGone(t *testing.T) {
	inHTTP(t, func(h *overHTTP) {
		w := <-h.open
		h.say(w, created("id: 0\n", 0xa))
		h.refuse.Store(true)
		w.Close()
		time.Sleep(2 * quickestStart)
		h.refuse.Store(false)
		h.told("syncing", "live", "stored a", "stale")
		w = <-h.open
		h.told("forget", "live")
		h.say(w, created("id: 1\n", 0xb))
		h.told("stored b")
	})
}

// An engine without the stream is stale, and asked again.
func TestServerSentEventsThatCannotBeOpened(t *testing.T) {
	inHTTP(t, func(h *overHTTP) {
		h.refuse.Store(true)
		time.Sleep(time.Minute)
		h.refuse.Store(false)
		w := <-h.open
		h.say(w, created("", 0xa))
		h.told("syncing", "stale", "live", "stored a")
	})
	err := NewFollower(Source{Endpoint: "/v1/kv_events"}, new(written), Options{}).Run(t.Context())
	if !errors.Is(err, errNoOpener) {
		t.Errorf("without a way to the server: %v", err)
	}
}

// slowSink is a sink whose first batch waits.
type slowSink struct {
	written
	wait chan struct{}
}

func (s *slowSink) Apply(b *kv.Batch) {
	<-s.wait
	s.written.Apply(b)
}

// A sink that is slow lets the engine's server wait, and nothing gathers here. What was sent all comes.
func TestServerSentEventsForASlowSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		sink := &slowSink{wait: make(chan struct{})}
		open := func(ctx context.Context, _, _ string) (io.ReadCloser, error) {
			context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
			return r, nil
		}
		f := NewFollower(Source{Endpoint: "/v1/kv_events"}, sink, Options{Open: open})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx) }()
		var sent atomic.Int64
		go func() {
			for id := range 10_000 {
				if _, err := io.WriteString(w, created(fmt.Sprintf("id: %d\n", id), id)); err != nil {
					return
				}
				sent.Add(1)
			}
		}()
		synctest.Wait()
		if n := sent.Load(); n > 2_000 {
			t.Errorf("%d events were taken while the sink took none", n)
		}
		close(sink.wait)
		synctest.Wait()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if s := f.Stats(); s.Batches != 10_000 || s.Gaps != 0 || sent.Load() != 10_000 {
			t.Errorf("%+v", s)
		}
	})
}

// A connection that ends at once is not made again at once, each time later up to a bound.
func TestServerSentEventsOfAnEngineThatHangsUp(t *testing.T) {
	inHTTP(t, func(h *overHTTP) {
		begun := time.Now()
		for range 20 {
			(<-h.open).Close()
		}
		if took := time.Since(begun); took < 15*5*time.Second || took > 20*8*time.Second {
			t.Errorf("20 connections in %v", took)
		}
	})
}
