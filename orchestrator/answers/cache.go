package answers

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/answercache"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// Cache is the answer cache of one configuration. Safe for concurrent use.
type Cache struct {
	opt     *Options
	running *sync.WaitGroup
	made    *config.AnswerCache // the configuration that the cache was made for
	trust   *tls.Config         // of the shared store; nil: plain
	store   store
	flights *answercache.Flights
}

// How a request came to its answer.
const (
	hit    = "hit"    // the answer was stored
	joined = "joined" // another request was having it computed
	miss   = "miss"
	bypass = "bypass" // the request is not for the cache
)

// asking is one request on its way through the cache. The goroutine of the request owns it.
type asking struct {
	*Asked
	wish control
	of   answercache.Model // the model that the name stands for
	key  answercache.Key
	out  Outcome
}

// Respond answers a request from the cache, or else by [Asked.Answer] or [Asked.Apart]. The outcome holds
// also where err is not nil. err is [ErrLeft], a [*WriteError] or an error of the computation.
func (c *Cache) Respond(ctx context.Context, of *Asked) (Outcome, error) {
	a := &asking{Asked: of, wish: controlOf(of.Header)}
	err := c.serve(ctx, a)
	return a.out, err
}

func (c *Cache) serve(ctx context.Context, a *asking) error {
	question, why := a.question(c.opt.Fleet, &a.wish)
	if why != "" {
		c.opt.Counts.Bypassed.WithLabelValues(why).Inc()
		c.note(a, bypass)
		return a.Answer(ctx)
	}
	a.of, a.key = question.Model, question.Key()
	if kept := c.find(a); kept != nil {
		return c.give(a, kept)
	}
	l, leads := c.join(a)
	if leads {
		if kept := c.find(a); kept != nil { // it was stored between the look and the flight
			err := c.give(a, kept)
			l.Flight().Done(nil, errKept)
			return err
		}
		c.lead(ctx, a, l.Flight())
	}
	a.out.Led = leads
	defer func() { l.Leave(context.Cause(ctx)) }()
	return c.listen(ctx, a, l)
}

// note tells the client and the counters how the request comes to its answer.
func (c *Cache) note(a *asking, how string) {
	c.opt.Counts.Requests.WithLabelValues(how).Inc()
	say := map[string]string{hit: "HIT", joined: "HIT", miss: "MISS", bypass: "BYPASS"}[how]
	a.To.Header().Set("X-Cache", say)
	if how == hit || how == joined {
		a.out.Mode = "cached"
	}
}

// find returns the stored answer that the request may get, nil for none.
func (c *Cache) find(a *asking) *answercache.Answer {
	now := time.Now()
	if a.wish.anew {
		return nil
	}
	kept := c.store.memory.Get(a.key, now)
	if kept == nil || !c.may(a, kept, now) {
		return nil
	}
	return kept
}

// may reports whether the request may get a stored answer.
func (c *Cache) may(a *asking, kept *answercache.Answer, now time.Time) bool {
	of := c.opt.Fleet
	return kept.Age(now) <= min(a.Config.TTL, a.wish.maxAge) &&
		(a.Config.OutliveEngines || allLive(of, kept.Makers)) && hadAdapter(of, kept.Makers, a.Model, kept.Made)
}

// give answers with a stored answer.
func (c *Cache) give(a *asking, kept *answercache.Answer) error {
	c.note(a, hit)
	a.To.BeginAs(keptHead(kept, time.Now()))
	return c.pass(a, kept.Stream, kept.Body, kept.Events)
}

// pass writes a part of the answer. A request that leads does not count events: its computation has.
func (c *Cache) pass(a *asking, stream bool, part []byte, events int) error {
	if err := a.To.Send(part, stream, events); err != nil {
		return &WriteError{err}
	}
	if stream && !a.out.Led {
		c.opt.Events.Add(float64(events))
	}
	return nil
}

// join finds the computation of the answer that is under way, or begins one.
func (c *Cache) join(a *asking) (l *answercache.Listener, leads bool) {
	limit := int(a.Config.AnswerBytes)
	if a.wish.anew {
		return answercache.NewFlight(limit), true
	}
	return c.flights.Join(a.key, limit, beginningOf(c.opt.Fleet), func(began any) bool {
		b := began.(beginning) //nolint:forcetypeassert // all flights get one
		return b.sameSince(c.opt.Fleet, a.Model, a.Config.OutliveEngines)
	})
}

// lead sees that a flight gets its answer: from the store that routers share, or by a computation. If lead
// panics, it ends the flight, so that nobody waits for an answer that will not come.
func (c *Cache) lead(ctx context.Context, a *asking, f *answercache.Flight) {
	led := false
	defer func() {
		if !led {
			f.Done(nil, errNotLed)
		}
	}()
	if !c.giveShared(ctx, a, f) {
		c.note(a, miss)
		c.compute(ctx, a, f)
	}
	led = true
}

// giveShared brings a flight the answer that other routers have stored, and reports whether there is one.
func (c *Cache) giveShared(ctx context.Context, a *asking, f *answercache.Flight) bool {
	now := time.Now()
	if c.store.shared == nil || a.wish.anew {
		return false
	}
	kept := c.store.shared.Get(ctx, a.key, now)
	if kept == nil || len(kept.Body) == 0 || !c.may(a, kept, now) {
		return false
	}
	c.store.memory.Put(a.key, kept, kept.Made.Add(a.Config.TTL))
	c.note(a, hit)
	f.Begin(keptHead(kept, now))
	err := f.Append(ctx, kept.Body)
	if kept.Stream {
		c.opt.Events.Add(float64(kept.Events))
	}
	f.Done(nil, err)
	return true
}

// compute starts the computation of an answer. It is a request of its own: a client that leaves does not end
// it. The computation ends when no client listens any more.
func (c *Cache) compute(ctx context.Context, a *asking, f *answercache.Flight) {
	// The context ends when no client listens any more, or when the computation has ended.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	f.OnAbandon(cancel)
	run := a.Apart(ctx, &Recorder{ctx: ctx, flight: f, header: http.Header{}})
	began := beginningOf(c.opt.Fleet)
	c.running.Go(func() {
		defer cancel(nil)
		out, err := run()
		if err == nil {
			c.keep(a, f, out.Decided, &began)
		}
		f.Done(&out, err)
	})
}

// keep stores the answer of a computation that went well, if others may get it.
func (c *Cache) keep(a *asking, f *answercache.Flight, rec *observe.Record, began *beginning) {
	if why := c.put(a, f, rec, began); why != "" {
		c.opt.Counts.Unkept.WithLabelValues(why).Inc()
	}
}

// put stores an answer, or returns why not.
func (c *Cache) put(a *asking, f *answercache.Flight, rec *observe.Record, began *beginning) (why string) {
	of := c.opt.Fleet
	head, body, ok := f.Whole()
	switch {
	case !ok || len(body) > int(a.Config.AnswerBytes):
		return tooLong
	case head.Status != http.StatusOK || !a.What.Finished(body):
		return notFinished
	}
	if is, _ := modelIdentity(of, a.Model); is != a.of { // the name has got another model meanwhile
		return unknownFrom
	}
	makers, why := began.makers(of, rec)
	if why != "" {
		return why
	}
	if !hadAdapter(of, makers, a.Model, began.at) {
		return unknownFrom
	}
	kept := &answercache.Answer{Made: began.at, Stream: head.Stream, Body: bytes.Clone(body), Makers: makers}
	if types := head.Header["Content-Type"]; len(types) > 0 {
		kept.ContentType = types[0]
	}
	if kept.Stream {
		kept.Events = bytes.Count(body, eventEnd)
	}
	c.store.put(a.key, kept, a.Config.TTL, time.Now())
	return ""
}

// listen gives the client what the flight brings.
func (c *Cache) listen(ctx context.Context, a *asking, l *answercache.Listener) error {
	for {
		head, part, err := l.Next(ctx)
		if err != nil {
			return c.ended(ctx, a, l, err)
		}
		if !a.To.Begun() {
			if !a.out.Led && a.tooOld(head) {
				l.Leave(nil) // or the others would wait for this listener
				return c.alone(ctx, a)
			}
			if !a.out.Led {
				c.note(a, joined)
			}
			a.To.BeginAs(head)
		}
		events := 0
		if head.Stream {
			events = bytes.Count(part, eventEnd)
		}
		if err := c.pass(a, head.Stream, part, events); err != nil {
			return err
		}
	}
}

// tooOld reports whether the answer that another request has found is older than this request allows.
func (a *asking) tooOld(head answercache.Head) bool {
	return !head.Made.IsZero() && time.Since(head.Made) > a.wish.maxAge
}

// ended judges the end of a flight for one of its listeners.
func (c *Cache) ended(ctx context.Context, a *asking, l *answercache.Listener, err error) error {
	if by, _ := l.Flight().By(); a.out.Led {
		if computed, ok := by.(*Outcome); ok && computed != nil {
			a.out.Mode, a.out.Decided = computed.Mode, computed.Decided
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case ctx.Err() != nil:
		return ErrLeft
	case !a.out.Led && !a.To.Begun(): // the failure of another request is not that of this one
		return c.alone(ctx, a)
	}
	return err
}

// alone answers a request whose flight brought nothing.
func (c *Cache) alone(ctx context.Context, a *asking) error {
	if kept := c.find(a); kept != nil {
		return c.give(a, kept)
	}
	c.note(a, miss)
	return a.Answer(ctx)
}

// errNotLed ends a flight whose leader has panicked before anybody computed the answer.
var errNotLed = errors.New("the answer is computed by nobody")

// errKept ends a flight whose answer was stored before the flight began.
var errKept = errors.New("the answer is there")

// eventEnd ends each event of a stream.
var eventEnd = []byte("\n\n")

// keptHead is how a stored answer begins. The client adds the header of streams.
func keptHead(kept *answercache.Answer, now time.Time) answercache.Head {
	h := http.Header{"Age": {strconv.Itoa(int(kept.Age(now).Seconds()))}}
	if !kept.Stream {
		if kept.ContentType != "" {
			h["Content-Type"] = []string{kept.ContentType}
		}
		h["Content-Length"] = []string{strconv.Itoa(len(kept.Body))}
	}
	return answercache.Head{Status: http.StatusOK, Header: h, Stream: kept.Stream, Made: kept.Made}
}

// Held returns what metrics show of the cache, nil for no cache.
func (c *Cache) Held() *observe.AnswerCache {
	if c == nil {
		return nil
	}
	return c.store.held()
}

// Close ends what the cache has open. Requests that still use the cache find nothing in the shared store.
func (c *Cache) Close() {
	if err := c.store.close(); err != nil {
		c.opt.Log.Warn("closing the shared answer cache", "error", err)
	}
}
