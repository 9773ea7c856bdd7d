package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/liveness"
	"github.com/tandem-router/tandem/internal/panics"
)

// A replica is up while its engine gives signs of life: an answer to /metrics, to /health, or to a request.
// Missing answers to /metrics alone do not take a replica out of use: on a starved machine, /metrics can
// take longer than anything else. The load is then old, and later unknown, and the replica continues to
// serve.

// ProbePatience is how many times timeouts.probe an engine that lives has for an answer that may take long.
const ProbePatience = 5

// pulse is the signs of life of one server, and the questions that ask for one. Safe for concurrent use.
type pulse struct {
	server *server
	clock  *liveness.Clock
	panics panics.Guard

	up      atomic.Bool // it gives signs of life
	signs   *liveness.Signs
	owed    owed          // an answer, to a question about tokens
	outages atomic.Uint32 // scrapes without a connection
	health  health
	outage  outage
}

// mark notes a sign of life.
func (p *pulse) mark() { p.signs.Note(p.clock.Running(time.Now())) }

// silence is how long the server has given no sign of life.
func (p *pulse) silence(now time.Time) time.Duration { return p.signs.Silence(p.clock.Running(now)) }

// errUnreported says that the engine lives and did not tell its load in time.
var errUnreported = errors.New("it answers, but does not report its load in time")

// errNotAsked says that this router could not ask, perhaps because it has no file descriptor left. This is
// not the engine's fault.
var errNotAsked = errors.New("this router could not ask for its load")

// errEndsEach says that the listener at the engine's address ends connections without an answer. A proxy
// does so when its server is gone.
var errEndsEach = errors.New("it takes connections and ends them without an answer")

// scrape fetches the load. While a slow engine has not answered, scrape asks whether it is alive, and gives
// it more time as long as it answers. An engine that is not up gets the same time without these questions,
// since no request waits for it.
func (p *pulse) scrape(ctx context.Context) (engine.Metrics, error) {
	probe, began := p.server.set.Load().probe, time.Now()
	asked, cancel := context.WithTimeout(ctx, ProbePatience*probe)
	defer cancel()
	lived, done := false, make(chan struct{}) // lived is read when done is closed
	slow := time.AfterFunc(probe/2, func() {
		defer close(done)
		p.panics.Contain("watcher", func() { lived = !p.up.Load() || p.lives(asked, probe/2) })
		if !lived {
			cancel()
		}
	})
	m, err := p.server.client.Scrape(asked)
	late := err != nil && asked.Err() != nil
	cancel()
	if !slow.Stop() {
		<-done
	}
	switch {
	case ctx.Err() != nil:
		return m, ctx.Err()
	case late && lived && p.up.Load():
		return m, errUnreported
	case late:
		return m, fmt.Errorf("scrape: %w", context.DeadlineExceeded)
	case ourFault(err):
		return m, fmt.Errorf("%w: %w", errNotAsked, err)
	}
	if err = p.asGone(ctx, err); gone(err) {
		p.outages.Add(1)
	}
	if !timedOut(err) { // a refusal is an answer too
		p.mark()
	} else if p.up.Load() && p.heardSince(began) { // it is too busy to take another connection
		return m, errUnreported
	}
	return m, err
}

// gone reports whether nothing serves at the engine's address: no request can be answered there.
func gone(err error) bool { return engine.Unreachable(err) || errors.Is(err, errEndsEach) }

// asGone adds errEndsEach to err if the engine's address also ends a connection with a question so small
// that no engine fails on it. Otherwise it returns err.
func (p *pulse) asGone(ctx context.Context, err error) error {
	if !engine.HungUp(err) {
		return err
	}
	asked, cancel := context.WithTimeout(ctx, p.server.set.Load().probe)
	defer cancel()
	if engine.HungUp(p.server.client.Health(asked)) {
		return fmt.Errorf("%w: %w", errEndsEach, err)
	}
	return err
}

// lives asks the engine whether it lives, again and again until ctx ends. It returns false as soon as the
// engine gives no sign of life for one step.
func (p *pulse) lives(ctx context.Context, step time.Duration) bool {
	for {
		began := time.Now()
		asked, cancel := context.WithTimeout(ctx, step)
		err := p.server.client.Health(asked)
		<-asked.Done() // one question a step
		cancel()
		answer, answered := errors.AsType[*engine.StatusError](err)
		if err == nil || answered {
			p.mark()
		}
		switch {
		case answered && answer.Status >= http.StatusInternalServerError:
			// Its API process says that its core is dead.
			return false
		case answered:
		case ctx.Err() == nil && !p.heardSince(began):
			return false
		}
		if ctx.Err() != nil {
			return true
		}
	}
}

// heardSince reports whether there was a sign of life at or after t.
func (p *pulse) heardSince(t time.Time) bool {
	now := time.Now()
	return p.silence(now) <= now.Sub(t)
}

// ourFault reports whether this router caused err: no byte was sent, and the engine was not the reason.
func ourFault(err error) bool { return engine.NotSent(err) && !engine.Unreachable(err) }

func timedOut(err error) bool {
	slow, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || ok && slow.Timeout()
}

// After a failure, a request may ask the engine whether it works. Many requests fail at once for one cause,
// so they share a question. A request never shares a question that began before its failure, since the
// answer may be about the time before. So at most one question is under way, and one more waits for its end.

// health is the questions of a server that requests wait for.
type health struct {
	mu        sync.Mutex // guards the following
	now, next *question
}

// question is one question to the engine.
type question struct {
	answered chan struct{} // closed when err is there
	err      error         // written before that
}

// ask returns a question that begins now, or after the answer to the question that is under way.
func (p *pulse) ask() *question {
	h := &p.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now != nil && h.next != nil {
		return h.next
	}
	q := &question{answered: make(chan struct{})}
	if h.now != nil {
		h.next = q
		return q
	}
	h.now = q
	go p.answer(q)
	return q
}

// answer answers q and then the questions that came meanwhile, until none is left. Each question has the
// time of a probe.
func (p *pulse) answer(q *question) {
	for ; q != nil; q = p.health.done() {
		q.err = errNotAsked // if Health panics
		p.panics.Contain("health", func() {
			ctx, cancel := context.WithTimeout(context.Background(), p.server.set.Load().probe)
			defer cancel()
			q.err = p.server.client.Health(ctx)
		})
		close(q.answered)
	}
}

// done moves on to the next question, nil if there is none.
func (h *health) done() *question {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now, h.next = h.next, nil
	return h.now
}

// Many engines can say which token ids a prompt has. An engine that stands still is not asked while another
// can be. A request that asks it would wait for timeouts.tokenize, and the engine may be known as down only
// much later.

// owedLong is how long an engine may owe the answer to a question about tokens. Usual answers take some
// milliseconds, and answers for the longest prompts a tenth of a second.
const owedLong = 250 * time.Millisecond

// owed is since when an engine has owed an answer, if it has given no sign of life since then. The times are
// times of [liveness.Clock.Running], at least 1; 0 is never. Safe for concurrent use.
type owed struct{ since atomic.Int64 }

// asked notes that the engine is asked something now. silence is the time since its last sign of life.
func (o *owed) asked(now, silence time.Duration) {
	since := o.since.Load()
	if since == 0 || silence <= now-time.Duration(since) {
		o.since.CompareAndSwap(since, int64(max(now, 1)))
	}
}

// long reports whether the engine has owed an answer for longer than owedLong.
func (o *owed) long(now, silence time.Duration) bool {
	since := o.since.Load()
	age := now - time.Duration(since)
	return since > 0 && age > owedLong && silence > age
}

// promptly extends skip, which may be nil: it also leaves out the engines that owe an answer now.
func promptly(skip func(*Endpoint) bool) func(*Endpoint) bool {
	now := time.Now()
	return func(e *Endpoint) bool { return skip != nil && skip(e) || e.Owes(now) }
}

// outage is why a server is not up, and which of the reasons are in the log. Safe for concurrent use.
type outage struct {
	mu     sync.Mutex // guards the following
	reason string     // why the server is not up, "" while it is
	// The newest reason in the log, and when it was logged.
	reasonLogged string
	reasonAt     time.Time
	said         []string // all reasons logged since the server was up
}

// outageNews says what is new about an outage.
type outageNews struct {
	first  bool // the server was asked in vain for the first time
	begins bool // the outage begins
	other  bool // its reason is another one, which the log should have
}

// NotProbed is the reason of a replica that has not been asked yet.
const NotProbed = "not probed yet"

const (
	// reasonEvery is the least time between two log lines that repeat why a server is not usable. An engine
	// that starts, or a path that is cut, refuses, resets and times out in turn.
	reasonEvery = time.Minute
	// mostReasons is how many reasons of one outage are logged at once, when first seen.
	mostReasons = 8
)

// note notes at now why the server is not up. wasUp says whether it was up until now.
func (o *outage) note(reason string, wasUp bool, now time.Time) (news outageNews) {
	o.mu.Lock()
	defer o.mu.Unlock()
	news.first = o.reason == NotProbed
	news.begins = wasUp || o.reason == "" || o.reasonAt.IsZero()
	if news.begins {
		o.said = nil
	}
	unsaid := !slices.Contains(o.said, reason) && len(o.said) < mostReasons
	again := o.reasonLogged != reason && now.Sub(o.reasonAt) >= reasonEvery
	news.other = !news.begins && (unsaid || again)
	if o.reason = reason; news.begins || news.other {
		o.reasonLogged, o.reasonAt = reason, now
		o.said = append(o.said[:min(len(o.said), mostReasons-1)], reason)
	}
	return news
}

// end notes that the server is up.
func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reason = ""
}

// why says why the server is not up, "" while it is.
func (o *outage) why() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reason
}
