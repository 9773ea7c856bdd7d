package kvevents

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Options tune a [Follower]; the zero value is right for production.
type Options struct {
	Context *Context // ZMQ context to share between followers; nil: a new one
	// Longest wait for the first batch of a replay, default 5 s; between batches at most 1 s.
	ReplayTimeout time.Duration
	// Mean time between checks of a quiet stream against the replay buffer, default 30 s; negative: none.
	Audit time.Duration
	// Time between ZMQ pings, default 2 s; negative: none. A peer that misses three pings counts as dead.
	Heartbeat time.Duration
	// First wait before dialling again, doubled up to 5 s, with jitter; default 200 ms.
	Reconnect time.Duration
	// Called in the goroutine of Run with the topic of each message, live or replayed; may be nil. An engine
	// before 0.26 replays without topics. The topic's memory is used again when the call returns.
	Topic func(topic []byte)

	late time.Duration // see lateFor
}

func (o Options) withDefaults() Options {
	if o.Context == nil {
		o.Context = new(Context)
	}
	o.ReplayTimeout = cmp.Or(o.ReplayTimeout, 5*time.Second)
	o.Audit = max(cmp.Or(o.Audit, 30*time.Second), 0)
	o.Heartbeat = max(cmp.Or(o.Heartbeat, 2*time.Second), 0)
	o.Reconnect = cmp.Or(o.Reconnect, 200*time.Millisecond)
	o.late = cmp.Or(o.late, lateFor)
	return o
}

// inproc returns an address in the context that nothing else has.
func (o *Options) inproc(what string) string { return o.Context.inproc(what) }

// heardOf passes a topic on to Options.Topic, if it is set.
func (o *Options) heardOf(topic []byte) {
	if o.Topic != nil {
		o.Topic(topic)
	}
}

// Follower follows one engine's stream. Make one with [NewFollower], then call Run once.
type Follower struct {
	src  Source
	sink Sink
	opt  Options

	mu       sync.Mutex // guards the following
	stats    Stats
	replaced string // why the engine is known to have been restarted, "" when the tracker knows
	missed   string // the evidence that the engine stored blocks without an event, "" for none
	ring     func() // wakes the stream that runs, nil where none does
}

// NewFollower returns a follower of src that tells sink. Nothing is dialled before Run.
func NewFollower(src Source, sink Sink, o Options) *Follower {
	return &Follower{src: src, sink: sink, opt: o.withDefaults()}
}

// Run follows the stream until ctx ends and returns nil then; the sink is not called after that. An address
// that can never be dialled is an error at once.
//
// It holds the calling goroutine, and with it a thread that sleeps in libzmq between batches. Sockets are
// used by no other goroutine.
func (f *Follower) Run(ctx context.Context) error {
	if err := f.run(ctx); err != nil {
		return fmt.Errorf("follow KV events of %s: %w", f.src.Endpoint, err)
	}
	return nil
}

func (f *Follower) run(ctx context.Context) error {
	o := &f.opt
	shared := o.Context
	z, err := shared.acquire()
	if err != nil {
		return err
	}
	defer shared.release()
	rnd := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	s := &stream{
		src: f.src, sink: f.sink, opt: *o,
		sockets: sockets{z: z, opt: o},
		live:    subscription{back: backoff{base: o.Reconnect, rnd: rnd}},
		replay:  replay{places: &shared.places},
	}
	defer s.close()
	if err := s.open(ctx); err != nil {
		return err
	}
	s.track = &tracker{
		fx: s, stats: &s.stats, rnd: rnd,
		settings: trackSettings{replay: f.src.Replay != "", silent: f.opt.ReplayTimeout, audit: f.opt.Audit},
	}
	f.listen(s.wake.waker.ring)
	defer f.listen(nil)
	s.track.start(time.Now())
	for ctx.Err() == nil {
		if why := f.news(); why != "" {
			s.track.replaced(why)
		}
		if why := f.missing(); why != "" {
			s.track.suspect(why)
		}
		if err := s.turn(ctx); err != nil {
			return err
		}
		f.publish(s)
	}
	return nil
}

// Restarted tells the follower that the engine was seen to have restarted, perhaps by its process start
// time. The stream itself may not show a restart: a sequence number does not tell which process counts. Soon
// after, the follower tells the sink to forget, and everything that the engine still has is replayed.
// Restarted does not wait. It is safe from any goroutine, also before and after Run.
func (f *Follower) Restarted(reason string) {
	f.mu.Lock()
	f.replaced = reason
	ring := f.ring
	f.mu.Unlock()
	if ring != nil {
		ring()
	}
}

// Missed tells the follower that the engine stored blocks without an event. reason describes the evidence for
// people. The follower asks the publisher for a replay. If neither a replay nor a batch comes, the sink gets
// [Stale] with reason and [Mute], until the publisher sends something again. Safe from any goroutine; it does
// not block.
func (f *Follower) Missed(reason string) {
	f.mu.Lock()
	f.missed = reason
	ring := f.ring
	f.mu.Unlock()
	if ring != nil {
		ring()
	}
}

// missing returns the reason given to Missed, once.
func (f *Follower) missing() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	why := f.missed
	f.missed = ""
	return why
}

func (f *Follower) listen(ring func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ring = ring
}

// news returns the reason given to Restarted, once.
func (f *Follower) news() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	why := f.replaced
	f.replaced = ""
	return why
}

func (f *Follower) publish(s *stream) {
	at := &s.track.at
	s.stats.Known, s.stats.Seq = at.known, at.seq
	s.stats.Partial = at.partial
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats = s.stats
}

// Stats returns counters of the stream. Safe from any goroutine.
func (f *Follower) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}

// Stats is what a [Follower] has seen since it was made.
type Stats struct {
	State        State
	Known        bool      // a batch was applied since the last Forget
	Partial      bool      // history is missing, because the engine did not replay it
	Seq          uint64    // of the newest batch applied, if Known
	Batches      uint64    // applied
	Bytes        uint64    // of payloads applied
	Events       uint64    // in batches applied
	Unknown      uint64    // events of unknown kinds, skipped
	DecodeErrors uint64    // batches that could not be read in whole or part
	Duplicates   uint64    // batches seen before, dropped
	Gaps         uint64    // times the sequence jumped ahead
	Lost         uint64    // gaps that could not be filled
	Replays      uint64    // replays asked for, audits included
	Timeouts     uint64    // replays that fell silent before their end
	Restarts     uint64    // engine restarts noticed
	Reconnects   uint64    // connections made after the first
	WrongRank    uint64    // batches that name another rank than the Source
	LastAt       time.Time // engine's time stamp of the newest batch applied

	// From taking a live batch off its socket until the sink had applied it, waiting for a replay included; our
	// clock alone.
	Applying Lags
	// From the engine's time stamp of a live batch to applied. It is a hint, since the two clocks differ: a
	// negative time counts as 0.
	Behind Lags
	// Live batches with a time stamp in our future: the clocks differ by more than the stream lags.
	Skewed uint64
	// From the engine's time stamp of the newest live batch to its arrival by our clock, if Behind counts any
	// batch. It is negative where the engine's clock is ahead of ours by more than the time on the network.
	Apart time.Duration
}
