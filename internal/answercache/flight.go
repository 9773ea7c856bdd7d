package answercache

import (
	"bytes"
	"context"
	"io"
	"slices"
	"sync"
	"time"
)

// Flight is a computation whose answer goes to all of its listeners. One goroutine computes, and calls
// [Flight.Begin], [Flight.Append] and [Flight.Done]. Each listener reads the whole answer from the beginning,
// at its own pace, even if it joined later. The computation continues as long as there is a listener.
//
// A flight holds its whole answer up to a limit. Beyond the limit no listener can join any more, and the
// computation waits for the slowest listener.
type Flight struct {
	limit     int
	beginning any // facts of its leader at the start; immutable

	mu        sync.Mutex        // guards the following
	abandon   func(cause error) // called once, when the last listener has left before the end
	leave     func(*Flight)     // removes the flight from its table; nil: it is in no table
	answer    flightAnswer
	end       flightEnd
	listeners map[*Listener]bool
	changed   chan struct{} // closed when there is news for listeners; nil while none waits
	taken     chan struct{} // closed when a listener has read bytes or left; nil without a wait
}

// flightAnswer is the part of an answer that was computed so far.
type flightAnswer struct {
	head    Head
	begun   bool
	held    []byte // the bytes from dropped on; appended bytes never change
	dropped int
	over    bool // longer than the limit
}

// append adds to the answer, and reports whether it is longer than limit, now or before.
func (a *flightAnswer) append(b []byte, limit int) (over bool) {
	a.held = append(a.held, b...)
	a.over = a.over || a.dropped+len(a.held) > limit
	return a.over
}

// drop drops bytes that every listener has got, if they are many.
func (a *flightAnswer) drop(slowest, limit int) {
	if n := slowest - a.dropped; n > limit/2 {
		a.held, a.dropped = bytes.Clone(a.held[n:]), slowest // listeners may still read the old bytes
	}
}

// flightEnd holds the arguments of [Flight.Done].
type flightEnd struct {
	ended bool
	err   error // nil is well
	by    any   // the engine that computed the answer
}

// Head is the beginning of an answer over HTTP.
type Head struct {
	Status int
	Header map[string][]string
	Stream bool      // later bytes go to clients as they arrive
	Made   time.Time // when a kept answer was made; zero for an answer that is being made
}

// Listener gets the answer of a flight. One goroutine owns it; it must call [Listener.Leave].
type Listener struct {
	f  *Flight
	at int // bytes that it has got; guarded by f.mu
}

// Flights holds the running computations, by their questions. The zero value has none.
type Flights struct {
	mu sync.Mutex // guards by
	by map[Key]*Flight
}

// Join returns a listener of the flight for k. If leads is true, the flight is new, has beginning, and the
// caller must make sure that it is computed. An existing flight is joined only if fits accepts its
// beginning. Otherwise the new flight replaces it for later callers. fits must not use t.
func (t *Flights) Join(
	k Key, limit int, beginning any, fits func(beginning any) bool,
) (l *Listener, leads bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.by[k]; f != nil && fits(f.beginning) {
		if l := f.listen(); l != nil {
			return l, false
		}
	}
	l = NewFlight(limit)
	l.f.beginning = beginning
	l.f.leave = func(f *Flight) { t.remove(k, f) }
	if t.by == nil {
		t.by = map[Key]*Flight{}
	}
	t.by[k] = l.f
	return l, true
}

func (t *Flights) remove(k Key, f *Flight) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by[k] == f {
		delete(t.by, k)
	}
}

// Len returns the number of flights.
func (t *Flights) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.by)
}

// NewFlight returns the only listener that a new flight will have.
func NewFlight(limit int) *Listener {
	f := &Flight{limit: limit, listeners: map[*Listener]bool{}}
	l := &Listener{f: f}
	f.listeners[l] = true
	return l
}

// Flight returns the flight that l listens to.
func (l *Listener) Flight() *Flight { return l.f }

// OnAbandon sets the function for the case that the last listener leaves before the end. Call OnAbandon
// before the computation begins.
func (f *Flight) OnAbandon(do func(cause error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.abandon = do
}

// listen returns a listener that gets the whole answer, or nil if that is no longer possible.
func (f *Flight) listen() *Listener {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answer.over || f.end.ended || len(f.listeners) == 0 {
		return nil
	}
	l := &Listener{f: f}
	f.listeners[l] = true
	return l
}

// Begin sets the head of the answer.
func (f *Flight) Begin(h Head) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.answer.begun {
		f.answer.head, f.answer.begun = h, true
		wake(&f.changed)
	}
}

// Append adds to the answer. It returns an error if ctx ends while it waits for a listener.
func (f *Flight) Append(ctx context.Context, b []byte) error {
	f.mu.Lock()
	over := f.answer.append(b, f.limit)
	wake(&f.changed)
	if !over {
		f.mu.Unlock()
		return nil
	}
	defer f.mu.Unlock()
	f.offTheTable()
	for {
		f.drop()
		if len(f.answer.held) <= f.limit || len(f.listeners) == 0 {
			return nil
		}
		if err := f.wait(ctx, &f.taken); err != nil {
			return err
		}
	}
}

// offTheTable removes f from the table, so that no listener finds it any more. f is locked before and after
// the call, and unlocked in between, because Join locks the table before the flight.
func (f *Flight) offTheTable() {
	leave := f.leave
	if f.leave = nil; leave != nil {
		f.mu.Unlock()
		leave(f)
		f.mu.Lock()
	}
}

// drop drops bytes that every listener has got.
func (f *Flight) drop() {
	slowest := f.answer.dropped + len(f.answer.held)
	for l := range f.listeners {
		slowest = min(slowest, l.at)
	}
	f.answer.drop(slowest, f.limit)
}

// Whole returns the whole answer; false if it was too long to be held. The caller must not change it.
func (f *Flight) Whole() (h Head, body []byte, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.answer.head, f.answer.held, f.answer.begun && !f.answer.over
}

// Done ends the answer. err is the error, nil for success. by is what listeners may know about the engine
// that computed the answer.
func (f *Flight) Done(by any, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.offTheTable()
	f.end = flightEnd{ended: true, err: err, by: by}
	wake(&f.changed)
}

// By returns the by of Done; false before Done.
func (f *Flight) By() (any, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.end.by, f.end.ended
}

// Next returns the next bytes of the answer, which must not be changed. It waits for the bytes until ctx
// ends. At the end it returns [io.EOF], or the error of the flight. A listener without any bytes gets the
// error at once, since it can begin elsewhere.
func (l *Listener) Next(ctx context.Context) (Head, []byte, error) {
	f := l.f
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		rest := f.answer.held[l.at-f.answer.dropped:]
		switch {
		case f.end.ended && f.end.err != nil && (l.at == 0 || len(rest) == 0):
			return f.answer.head, nil, f.end.err
		case f.answer.begun && len(rest) > 0:
			l.at += len(rest)
			wake(&f.taken)
			return f.answer.head, slices.Clip(rest), nil
		case f.end.ended:
			return f.answer.head, nil, io.EOF
		}
		if err := f.wait(ctx, &f.changed); err != nil {
			return f.answer.head, nil, err
		}
	}
}

// Leave ends listening, for this cause. It may be called several times.
func (l *Listener) Leave(cause error) {
	f := l.f
	f.mu.Lock()
	if !f.listeners[l] {
		f.mu.Unlock()
		return
	}
	delete(f.listeners, l)
	wake(&f.taken)
	if alone := len(f.listeners) == 0 && !f.end.ended; !alone {
		f.mu.Unlock()
		return
	}
	f.offTheTable()
	abandon := f.abandon
	f.mu.Unlock()
	if abandon != nil {
		abandon(cause)
	}
}

// wait waits for a signal, and unlocks f meanwhile.
func (f *Flight) wait(ctx context.Context, news *chan struct{}) error {
	if *news == nil {
		*news = make(chan struct{})
	}
	ch := *news
	f.mu.Unlock()
	defer f.mu.Lock()
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wake wakes all waiting goroutines.
func wake(waiting *chan struct{}) {
	if *waiting != nil {
		close(*waiting)
		*waiting = nil
	}
}
