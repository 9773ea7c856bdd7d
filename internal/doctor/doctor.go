// Package doctor asks live engines whether prefix routing can work, and explains what stops it.
//
// The path of an examination: ask.go puts HTTP questions to every server. link.go looks what listens at
// the addresses of its event stream, and follows the stream with the router's own follower. trial.go
// sends a prompt that nobody sent before and watches what becomes of the prompt. canary.go hands prompts over
// from prefill to decode. check.go judges what was seen by the table of checks, in engine.go, events.go,
// fleet.go and handoff.go. report.go prints. Looking and judging are apart: a check is a function of what was
// seen.
//
// Nothing here can harm an engine. The doctor asks what any router asks, by GET and /tokenize, and reads the
// event stream. Unless told otherwise, it has each data-parallel rank compute three completions of one token.
// For each pair that is tried, both sides compute one prompt, and four more to time the handoff. These
// prompts have cache salts of their own. The doctor uses no admin path. Transfer parameters go only from the
// prefill engine's answer to the decode engine, as a connector gives them.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/kvevents"
	"github.com/tandem-router/tandem/internal/replica"
)

// Options says what is examined, and how. Set Config or URLs, not both.
type Options struct {
	Config *config.Config // the fleet as Tandem would run it
	// Or engines alone, roles unknown, as with default settings; http:// may be left out.
	URLs    []string
	Passive bool // send no completion; checks that need one are skipped
	// Limit of the whole examination, default 60 s. Evidence that is missing then counts as absent.
	Timeout time.Duration
	// Called at the begin of each step, one call at a time; may be nil. A step of the whole examination has the
	// subject [All].
	Progress func(subject, step string)
	LookUp   engine.LookUp // finds the addresses of engines; nil asks the machine's resolver
}

// These are the longest waits of single steps. The rest of Options.Timeout may cut them.
const (
	tokensTime = 10 * time.Second // the questions for token ids
	askTime    = 5 * time.Second  // one HTTP question
	linkTime   = 3 * time.Second  // TCP and the greeting of an event stream
	// The longest wait for the follower without a batch. It is longer than the follower's own wait for replays.
	stuckTime = 20 * time.Second
	// From the subscription to the publisher: the time on the network, and libzmq looks for subscriptions at
	// most once in three million ticks of the processor.
	settleTime = 100 * time.Millisecond
	trialTime  = 20 * time.Second // one completion of one token
	// One leg of a handoff: the first transfer between two engines that have just started took 31 s on a busy
	// machine.
	handTime = 45 * time.Second
	// From the answer of a completion to its event. Normally the event comes before the answer.
	eventTime = 3 * time.Second
)

const (
	defaultTimeout = time.Minute
	atOnce         = 16 // servers examined at the same time
)

// Run examines the fleet and judges it. It returns when all checks are done or the time is over. The error is
// for a fleet that cannot be examined at all. No goroutine and no connection outlives Run.
func Run(ctx context.Context, o Options) (*Report, error) {
	f, err := newFleet(o)
	if err != nil {
		return nil, err
	}
	defer f.close()
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	f.look(limited)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return newReport(f, began, time.Since(began), errors.Is(limited.Err(), context.DeadlineExceeded)), nil
}

// fleet is everything under examination. Each server is written by its own goroutine while it is examined,
// and only read afterwards.
type fleet struct {
	cfg     *config.Config
	roles   bool // whether the roles are known
	passive bool
	servers []*server

	handoffs handoffs // tried handoffs; each is written by one goroutine

	lookUp  engine.LookUp    // as Options.LookUp
	zmq     kvevents.Context // of all followers
	prompts prompts          // that were sent

	mu       sync.Mutex // guards the following
	progress func(subject, step string)
}

func newFleet(o Options) (*fleet, error) {
	f := &fleet{
		cfg: o.Config, roles: o.Config != nil, passive: o.Passive, progress: o.Progress, lookUp: o.LookUp,
	}
	switch {
	case o.Config == nil && len(o.URLs) == 0:
		return nil, errors.New("there is no engine to examine")
	case o.Config != nil && len(o.URLs) > 0:
		return nil, errors.New("give engines by a configuration or by URL, not both")
	case o.Config == nil:
		f.cfg = config.FromFlags("", o.URLs, nil)
	}
	err := errors.Join(f.add(replica.Prefill, f.cfg.Pools.Prefill), f.add(replica.Decode, f.cfg.Pools.Decode))
	if err == nil && len(f.servers) == 0 {
		err = errors.New("the configuration names no replica")
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *fleet) add(role replica.Role, pool config.Pool) error {
	tls, err := f.cfg.EngineTLS(pool)
	if err != nil {
		return err
	}
	for _, r := range pool.Replicas {
		u, err := url.Parse(r.URL)
		if err != nil {
			return err
		}
		client, err := engine.New(
			engine.Options{URL: r.URL, TLS: tls, APIKey: pool.APIKey.Reveal(), DialTimeout: f.cfg.Timeouts.Connect},
		)
		if err != nil {
			return err
		}
		s := &server{
			fleet: f, name: r.ID(), role: role, url: r.URL, host: u.Hostname(), pool: pool, cfg: r, client: client,
		}
		if f.roles {
			s.name = role.String() + " " + s.name
		}
		f.servers = append(f.servers, s)
	}
	return nil
}

func (f *fleet) close() {
	for _, s := range f.servers {
		s.client.Close()
	}
}

// look examines all servers at the same time. It sends the test prompts only after it listens to all streams,
// so that it recognises a stream with another engine's prompt.
func (f *fleet) look(ctx context.Context) {
	f.say(All, "asking %s, and following their events", plural(len(f.servers), "engine"))
	f.each(func(s *server) { s.look(ctx) })
	if !f.passive {
		f.say(All, "sending test prompts, three completions of one token to each rank")
		f.each(func(s *server) { s.try(ctx) })
	}
	f.each((*server).leave)
	if f.passive {
		return
	}
	if f.handoffs = f.pairs(); len(f.handoffs) > 0 {
		f.say(All, "handing prompts over, and timing the ways, between %s", plural(len(f.handoffs), "pair"))
	}
	f.handOver(ctx)
	f.handoffs.time(ctx, f)
}

// All is the subject of steps that concern all engines.
const All = "all"

func (f *fleet) each(do func(*server)) {
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, s := range f.servers {
		g.Go(func() error {
			do(s)
			return nil
		})
	}
	_ = g.Wait() // failures are part of the evidence
}

// say reports progress.
func (f *fleet) say(subject, format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.progress != nil {
		f.progress(subject, fmt.Sprintf(format, args...))
	}
}

// server is one engine server with the evidence from it.
type server struct {
	fleet  *fleet // its configuration and progress; a server must not read the others while it is examined
	name   string
	role   replica.Role
	url    string
	host   string
	pool   config.Pool
	cfg    config.Replica
	client *engine.Client

	seen  asked
	ranks []*rank // in the order of their numbers; at least one after the server has answered
}

// look asks the server, then connects to the streams of all its ranks at the same time.
func (s *server) look(ctx context.Context) {
	s.ask(ctx)
	if s.seen.reach != nil {
		return
	}
	s.findRanks()
	s.each(func(r *rank) { r.look(ctx) })
}

// try sends the test prompts.
func (s *server) try(ctx context.Context) {
	if legsOnly(s) {
		return
	}
	s.each(func(r *rank) {
		s.fleet.say(r.name(), "sending a test prompt: three completions of one token")
		r.trial = r.try(ctx)
	})
}

// leave ends everything that look began.
func (s *server) leave() {
	for _, r := range s.ranks {
		if r.link != nil {
			r.link.close()
		}
	}
}

func (s *server) each(do func(*rank)) {
	var wg sync.WaitGroup
	for _, r := range s.ranks {
		wg.Go(func() { do(r) })
	}
	wg.Wait()
}
