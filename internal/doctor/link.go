package doctor

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/kvevents"
)

// link is the event stream of a rank, followed by the router's own follower, and the outcome.
type link struct {
	err       *linkError // nothing listens at the address of the events; then there is no follower
	replayErr *linkError // nothing listens at the address of replays: the router would continue without history
	follower  *kvevents.Follower
	prompts   *prompts
	stop      context.CancelFunc
	done      chan struct{} // closed when the follower has ended, or never ran
	news      chan struct{} // has a token after a change of state, or a batch of a test prompt

	// The follower's work until it was in step with the engine, or until the doctor stopped waiting.
	joined arrival

	mu    sync.Mutex // guards the following until done
	said  said
	heard heard
}

// said is the follower's newest report on how far the stream can be trusted.
type said struct {
	state  kvevents.State
	reason string
	once   bool // it was live at some time
}

// arrival says how the follower got in step with the engine.
type arrival struct {
	live  bool
	stats kvevents.Stats
	took  time.Duration
}

func (l *link) close() {
	if l.stop != nil {
		l.stop()
	}
	<-l.done
}

// join waits until the follower is in step with the engine, as long as it makes progress.
func (l *link) join(ctx context.Context) {
	if l.err != nil {
		return
	}
	began := time.Now()
	const look = 50 * time.Millisecond
	tick := time.NewTicker(look)
	defer tick.Stop()
	last, lastAt := uint64(0), began
	for ctx.Err() == nil {
		stats := l.follower.Stats()
		state, once := l.stands()
		if batches := stats.Batches; batches != last {
			last, lastAt = batches, time.Now()
		}
		l.joined = arrival{live: once, stats: stats, took: time.Since(began)}
		if once || state == kvevents.Stale && stats.Replays == 0 || time.Since(lastAt) > stuckTime {
			break
		}
		select {
		case <-l.news:
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	if l.joined.live {
		sleep(ctx, settleTime)
		l.joined.stats = l.follower.Stats()
	}
}

func sleep(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// connected reports whether a publisher was found behind the address.
func (l *link) connected() bool {
	return l.err == nil && (l.joined.live || l.joined.stats.Replays > 0 || l.joined.stats.Batches > 0)
}

// apart returns how far the engine's clock is ahead of ours by its newest live batch, if there was one.
func (l *link) apart() (ahead time.Duration, known bool) {
	if l == nil || l.err != nil {
		return 0, false
	}
	stats := l.follower.Stats()
	return -stats.Apart, stats.Behind.Count > 0
}

func (l *link) stands() (state kvevents.State, once bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said.state, l.said.once
}

// sizes returns the block sizes in the events, none without events.
func (l *link) sizes() []int {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.heard.sizes)
}

// Apply implements [kvevents.Sink].
func (l *link) Apply(b *kv.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard.take(b)
	if events := l.prompts.eventsOf(b, l.heard.kept); len(events) > 0 {
		mine := *b
		mine.Events = events
		l.heard.kept = append(l.heard.kept, mine)
		l.tell()
	}
}

// Forget implements [kvevents.Sink].
func (l *link) Forget(string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = heard{topics: l.heard.topics, sizes: l.heard.sizes}
}

// State implements [kvevents.Sink].
func (l *link) State(state kvevents.State, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = said{state: state, reason: reason, once: l.said.once || state == kvevents.Live}
	l.tell()
}

func (l *link) topic(topic []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.ContainsFunc(l.heard.topics, func(known string) bool { return known == string(topic) }) {
		return // without a copy of the topic
	}
	l.heard.topics = note(l.heard.topics, string(topic), maxTopics)
}

func (l *link) tell() {
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// all returns the events of test prompts up to now.
func (l *link) all() []kv.Batch {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.heard.kept)
}

// layer says how far a connection to an event stream came before it failed.
type layer uint8

const (
	atAddress layer = iota + 1 // not an address that can be dialled
	atTCP                      // refused or unreachable
	atZMTP                     // a program listens there that does not speak ZeroMQ
)

type linkError struct {
	layer layer
	err   error
}

func (e *linkError) Error() string { return e.err.Error() }
func (e *linkError) Unwrap() error { return e.err }

// listens checks whether a ZeroMQ socket listens at endpoint. libzmq itself would dial again and again, and
// not report what it found: a closed port, a firewall or an HTTP server.
func listens(ctx context.Context, endpoint string) *linkError {
	network := "tcp"
	addr, tcp := strings.CutPrefix(endpoint, "tcp://")
	if path, ipc := strings.CutPrefix(endpoint, "ipc://"); ipc {
		network, addr = "unix", path
	} else if !tcp {
		return &linkError{atAddress, fmt.Errorf("%q is neither a tcp:// nor an ipc:// address", endpoint)}
	} else if _, _, err := net.SplitHostPort(addr); err != nil {
		return &linkError{atAddress, err}
	}
	ctx, cancel := context.WithTimeout(ctx, linkTime)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return &linkError{atTCP, err}
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	_ = nc.SetDeadline(time.Now().Add(linkTime)) // a new connection accepts deadlines
	// The listening side greets at once: ff, eight bytes, 7f (rfc.zeromq.org/spec/23).
	var greeting [10]byte
	n, err := io.ReadFull(nc, greeting[:])
	switch {
	case n > 0 && greeting[0] != 0xff, err == nil && greeting[9] != 0x7f:
		return &linkError{atZMTP, fmt.Errorf("no ZeroMQ greeting but %q", greeting[:n])}
	case err != nil:
		return &linkError{atZMTP, fmt.Errorf("no ZeroMQ greeting: %w", err)}
	}
	return nil
}

// openLink follows source, of every topic, until close. It never returns nil.
func openLink(ctx context.Context, source kvevents.Source, of *fleet) *link {
	l := &link{prompts: &of.prompts, news: make(chan struct{}, 1), done: make(chan struct{})}
	if l.err = listens(ctx, source.Endpoint); l.err != nil {
		close(l.done)
		return l
	}
	source.Topic = ""
	if source.Replay != "" {
		if l.replayErr = listens(ctx, source.Replay); l.replayErr != nil {
			source.Replay = ""
		}
	}
	ctx, l.stop = context.WithCancel(ctx)
	l.follower = kvevents.NewFollower(source, l, kvevents.Options{Context: &of.zmq, Topic: l.topic})
	go func() { // ended by close
		defer close(l.done)
		if err := l.follower.Run(ctx); err != nil {
			l.State(kvevents.Stale, err.Error())
		}
	}()
	return l
}
