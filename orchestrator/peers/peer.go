package peers

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tandem-router/tandem/internal/engine"
)

const (
	leastPatience  = time.Second      // the least time after which a router counts as silent
	redundantPause = 10 * time.Second // between two questions to an address that reports nothing new
)

// peer is one other router.
//
//	unheard --answers--> heard --no good answer for its patience--> silent --answers--> heard
//	 '-----------------------no good answer for its patience--------^
//	any state ----answers as one that is known already--> redundant --answers as another--> heard
//	                                                          '-----------no answer----------> unheard
//
// One goroutine runs it; other goroutines read its state.
//
// Long: its settings, the state that others read, and the state of its goroutine alone.
type peer struct {
	// These fields are immutable.
	ps       *Peers
	key      key
	patience time.Duration // how long the peer may be silent, and how long one answer may take
	client   *engine.Client
	ended    chan struct{}      // closed when run has ended
	first    *firstTime         // it has been asked once
	stop     context.CancelFunc // nil until it runs
	woken    chan struct{}      // has an element if the peer should be asked at once

	state    atomic.Uint32 // a state
	instance string        // the instance under which the peer reports; guarded by ps.mu

	// These fields belong to run.
	since time.Time // time of the newest report, or the start of the questions
	err   error     // why the newest question failed
	has   guessed   // the guesses that the peer has reported
	uses  usesReported
}

// name is the peer's name as a source of bookings, for the pools and for the log.
func (p *peer) name() string { return p.key.url }

// state says how well a peer is heard.
type state uint32

const (
	unheard state = iota
	heard
	silent
	redundant
)

func (p *peer) current() state { return state(p.state.Load()) }

// become sets the state and returns the former state.
func (p *peer) become(s state) (was state) { return state(p.state.Swap(uint32(s))) }

// leave stops the questions, and returns when no booking of p counts any more.
func (p *peer) leave() {
	if p.stop != nil {
		p.stop()
		<-p.ended
	}
	p.client.Close()
}

// run asks questions until ctx ends.
func (p *peer) run(ctx context.Context) {
	defer p.client.Close()
	defer p.forget()
	p.since = time.Now()
	for ctx.Err() == nil {
		p.expire()
		p.ask(ctx)
		p.first.is()
		pause := time.NewTimer(p.pause())
		select {
		case <-ctx.Done():
		case <-pause.C:
		case <-p.woken:
		}
		pause.Stop()
	}
}

// timed reports whether p can still become silent at the end of its patience: it is not silent yet, and is
// not redundant.
func (p *peer) timed() bool {
	s := p.current()
	return s == unheard || s == heard
}

// pause returns the time to the next question.
func (p *peer) pause() time.Duration {
	switch {
	case p.current() == redundant:
		return redundantPause
	case p.timed():
		return min(jitter(p.key.interval), time.Until(p.since.Add(p.patience)))
	}
	return jitter(p.key.interval)
}

// jitter changes d by up to a fifth, so that routers do not ask at the same times.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// expire removes the bookings of p if p was silent for its patience.
func (p *peer) expire() {
	if !p.timed() || time.Since(p.since) < p.patience {
		return
	}
	p.forget()
	p.become(silent)
	p.ps.opt.Log.Warn("router is silent, its bookings are not known", "peer", p.key.url, "reason", p.reason())
}

// reason returns a reason on which an operator can act.
func (p *peer) reason() string {
	switch {
	case p.err == nil:
		return "this process stood still"
	case errors.Is(p.err, syscall.ECONNREFUSED):
		return "connection refused: does it run, with its admin listener (admin.listen) at an address that can " +
			"be reached from here?"
	}
	if answer, ok := errors.AsType[*engine.StatusError](p.err); ok && answer.Status == http.StatusUnauthorized {
		return "it wants another token: give all routers the same admin.token"
	}
	seen, _ := engine.Explain(p.err, p.key.url, "")
	return seen
}

// ask asks once. It takes no longer than p may be silent.
func (p *peer) ask(ctx context.Context) {
	asked := time.Now()
	limit := asked.Add(p.patience)
	if p.timed() {
		limit = p.since.Add(p.patience)
	}
	limited, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	b, err := p.fetch(limited)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		p.err = err
		if p.current() == redundant { // another process may answer there now
			p.become(unheard)
			p.since = time.Now()
		}
		p.ps.failures.WithLabelValues(p.key.url, failureReason(err)).Inc()
	default:
		p.ps.opt.Distrusts.HearDistrust(b.Distrusted) // counts even if the bookings do not
		b.addAge(time.Since(asked))
		p.accept(b)
	}
}

func (p *peer) fetch(ctx context.Context) (*bookings, error) {
	resp, err := p.client.Do(ctx, &engine.Request{
		Method: http.MethodGet, Path: Path + p.has.query() + p.usesQuery(), Idempotent: true,
		ID: strconv.FormatUint(rand.Uint64(), 36), // makes the peer keep the connection
	})
	if err != nil {
		return nil, err
	}
	defer resp.Close()
	if resp.Status != http.StatusOK {
		return nil, &engine.StatusError{Path: Path, Status: resp.Status}
	}
	body, err := resp.ReadAll(answerLimit)
	if err != nil {
		return nil, err
	}
	return readBookings(body)
}

// usesQuery returns which uses of keys p has reported.
func (p *peer) usesQuery() string {
	return "&" + usesQuery + "=" + strconv.FormatUint(p.uses.since(time.Now()), 10)
}

// failureReason returns the label of a failure.
func failureReason(err error) string {
	_, status := errors.AsType[*engine.StatusError](err)
	_, malformed := errors.AsType[engine.ProtocolError](err)
	switch {
	case status:
		return "status"
	case malformed, errors.Is(err, engine.ErrTooLarge), errors.Is(err, errBookings):
		return "bad_answer"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	}
	return "unreachable"
}

// accept puts the bookings of p into the pools, unless they count already.
func (p *peer) accept(b *bookings) {
	if why := p.ps.claim(p, b.Instance); why != "" {
		p.ignore(why)
		return
	}
	now := time.Now()
	p.ps.merge(p, b, now)
	p.ps.hearUses(b, now, p.patience)
	p.uses.note(&b.Uses, now)
	p.since, p.err = now, nil
	p.has = b.Guesses.From
	switch p.become(heard) {
	case silent:
		p.ps.opt.Log.Info("router is back", "peer", p.key.url)
	case unheard, redundant:
		p.ps.opt.Log.Info("router tells its bookings", "peer", p.key.url)
	}
}

// ignore drops the report of p, because it counts already.
func (p *peer) ignore(why string) {
	if p.become(redundant) == redundant {
		return
	}
	p.forget()
	p.ps.opt.Log.Info("router is not asked for its bookings", "peer", p.key.url, "reason", why)
}

// forget removes all bookings of p.
func (p *peer) forget() {
	p.ps.mu.Lock()
	instance := p.instance
	p.ps.mu.Unlock()
	p.ps.disclaim(p, instance)
	p.ps.merge(p, &bookings{}, time.Now())
}
