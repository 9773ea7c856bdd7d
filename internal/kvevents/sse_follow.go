package kvevents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// Opener opens an engine's stream of server-sent events at a path of its own server. after is the id of the
// last event that was taken, "" for none. Reading ends with an error when ctx does.
type Opener func(ctx context.Context, path, after string) (io.ReadCloser, error)

// OverHTTP reports whether the source is a path on the engine's server: its events are server-sent.
func (s Source) OverHTTP() bool { return strings.HasPrefix(s.Endpoint, "/") }

// httpStream is one Run of a follower of server-sent events. Owned by the goroutine in Run.
//
// What was missed cannot be asked for. Where events have ids, a gap voids all that was applied, and so does a
// connection behind which they do not go on. Where they have none, nothing is believed longer than the
// connection.
type httpStream struct {
	f     *Follower
	track *tracker
	stats Stats
	batch kv.Batch

	linked   bool   // there was a connection before
	numbered bool   // events have ids
	counted  uint64 // events of this connection that count
	unread   error  // why the event that the tracker has now could not be read into batch
}

// arrived is what the goroutine that reads brings.
type arrived struct {
	e   sseEvent
	err error
}

var errNoOpener = errors.New("there is no way to the engine's server to ask it by")

func (f *Follower) runHTTP(ctx context.Context) error {
	if f.opt.Open == nil {
		return errNoOpener
	}
	rnd := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	s := &httpStream{f: f}
	s.track = &tracker{fx: s, stats: &s.stats, settings: trackSettings{silent: f.opt.ReplayTimeout}, rnd: rnd}
	ring := make(chan struct{}, 1)
	f.listen(func() {
		select {
		case ring <- struct{}{}:
		default: // it has been rung already
		}
	})
	defer f.listen(nil)
	back := backoff{base: f.opt.Reconnect, rnd: rnd}
	s.track.start(time.Now())
	for ctx.Err() == nil {
		s.connection(ctx, &back, ring)
		if ctx.Err() != nil {
			return nil
		}
		s.rest(ctx, back.lost(time.Now()), ring)
	}
	return nil
}

// connection follows one connection to its end.
func (s *httpStream) connection(ctx context.Context, back *backoff, ring <-chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	after := ""
	if s.track.at.known && s.numbered {
		after = strconv.FormatUint(s.track.at.seq, 10)
	}
	body, err := s.f.opt.Open(ctx, s.f.src.Endpoint, after)
	if err != nil {
		s.track.say(Stale, fmt.Sprintf("the stream cannot be opened: %v", err))
		s.f.publishStats(s.track, &s.stats)
		return
	}
	events := make(chan arrived)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		readSSE(ctx, body, events)
	}()
	defer func() {
		cancel()
		<-ended
		body.Close()
	}()
	now := time.Now()
	back.connected(now)
	if s.linked {
		s.stats.Reconnects++
	}
	s.linked, s.counted = true, 0
	s.track.connected(now)
	s.listen(ctx, events, ring)
}

// listen takes events until the connection ends, or the engine is said to have been restarted: nobody can
// tell whether the connection is to the process before or to the one after that.
func (s *httpStream) listen(ctx context.Context, events <-chan arrived, ring <-chan struct{}) {
	for {
		if s.restarted() {
			s.track.say(Stale, "engine restarted")
			s.track.disconnected(time.Now())
			s.f.publishStats(s.track, &s.stats)
			return
		}
		s.f.publishStats(s.track, &s.stats)
		select {
		case <-ctx.Done():
			return
		case <-ring:
		case a := <-events:
			err := a.err
			if err == nil {
				err = s.take(&a.e)
			}
			if err != nil {
				s.lost(err)
				return
			}
		}
	}
}

// restarted takes what the follower was told of the engine, and reports whether it was told anything.
func (s *httpStream) restarted() bool {
	why := s.f.news()
	if why != "" {
		s.track.replaced(why)
	}
	return why != ""
}

// rest waits before the next connection.
func (s *httpStream) rest(ctx context.Context, wait time.Duration, ring <-chan struct{}) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		s.restarted()
		s.f.publishStats(s.track, &s.stats)
		select {
		case <-ctx.Done():
			return
		case <-ring:
		case <-timer.C:
			return
		}
	}
}

// readSSE reads events until ctx or the stream ends, and says why at the end. It reads no further than what
// is taken: an engine that does not wait for its readers leaves out events, which shows in the ids.
func readSSE(ctx context.Context, body io.Reader, to chan<- arrived) {
	r := newSSEReader(body)
	for {
		e, err := r.next()
		select {
		case to <- arrived{e, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// take gives the tracker an event. An error ends the connection.
func (s *httpStream) take(e *sseEvent) error {
	seq, numbered, err := e.number()
	if err != nil {
		return err
	}
	change, unread := e.decode(&s.batch)
	if !change {
		s.stats.Unknown++
	}
	if !change && !numbered {
		return nil // a sign of life
	}
	if err := s.count(numbered); err != nil {
		return err
	}
	if !numbered {
		seq = s.counted
	}
	s.counted++
	s.unread = unread
	s.believe(change)
	s.track.live(message{seq: seq, payload: append([]byte(e.kind+"\n"), e.data...), received: time.Now()})
	return nil
}

// count notes whether events have ids. Within a connection all have or none.
func (s *httpStream) count(numbered bool) error {
	switch {
	case numbered == s.numbered:
		return nil
	case s.counted > 0:
		return errIDs
	case s.track.at.known:
		s.track.lose("its events have ids no longer, or only now")
	}
	s.numbered = numbered
	return nil
}

// believe takes an engine that tells no tokens for one of which nothing is known, until it tells some.
func (s *httpStream) believe(change bool) {
	switch {
	case errors.Is(s.unread, errNoTokens):
		s.track.doubt = errNoTokens.Error()
	case change && s.unread == nil && len(s.batch.Events[0].Tokens) > 0:
		s.track.doubt = ""
	}
}

// lost ends a connection. Without ids nobody can tell what was missed, nor where an event was left out
// because of what it is.
func (s *httpStream) lost(err error) {
	refused := errors.Is(err, errIDs) || errors.Is(err, errSSELong)
	if s.track.at.known && (refused || !s.numbered) {
		s.track.lose(describe(err))
	}
	s.track.say(Stale, describe(err))
	s.track.disconnected(time.Now())
	s.f.publishStats(s.track, &s.stats)
}

// apply implements effects, for the event that was read into batch last.
func (s *httpStream) apply(m message) error {
	if s.unread != nil {
		s.stats.DecodeErrors++
		return s.unread
	}
	s.batch.Seq = m.seq
	s.batch.Rank = s.f.src.Rank
	s.batch.At = m.received
	s.stats.Batches++
	s.stats.Bytes += uint64(len(m.payload))
	s.stats.Events += uint64(len(s.batch.Events))
	s.stats.LastAt = m.received
	s.f.sink.Apply(&s.batch)
	s.stats.Applying.add(time.Since(m.received))
	return nil
}

func (s *httpStream) forget(reason string) { s.f.sink.Forget(reason) }

func (s *httpStream) state(st State, reason string) { s.f.sink.State(st, reason) }

// ask implements effects: there is no replay to ask.
func (s *httpStream) ask(uint64) {}

func (s *httpStream) closeReplay() {}
