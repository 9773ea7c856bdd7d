package peers

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tandem-router/tandem/internal/answercache/valkey"
	"github.com/tandem-router/tandem/internal/config"
)

// store is a Valkey or Redis server through which routers share their bookings. They need not know each
// other's addresses. Each router publishes changes on one channel at once, and from time to time all of its
// bookings. Each router receives all messages, its own included. Its own messages show whether the server
// works, and how long messages take. The server stores nothing.
//
// The bookings of another router count until it reports others, says that it ends, or is silent for the
// patience. No request waits for the server: decisions use the newest received bookings.
type store struct {
	// These fields are immutable.
	ps       *Peers
	cfg      config.ValkeyServer
	trust    *tls.Config
	interval time.Duration
	patience time.Duration // how long a router, and the server, may be silent
	channel  string
	client   redis.UniversalClient
	ended    chan struct{}      // closed when run has ended
	stop     context.CancelFunc // nil until it runs

	mu      sync.Mutex // guards the following, but health.up
	health  storeHealth
	routers map[string]*stored
}

// storeHealth describes the state of the server.
type storeHealth struct {
	up    atomic.Bool   // the server works as far as known
	first *firstTime    // all others have had the time to report everything; immutable
	heard time.Time     // when this router first received one of its own messages; zero before
	echo  time.Time     // when it last received one of its own messages, or has waited since
	delay time.Duration // that it took
	err   error         // why the newest attempt failed
}

const (
	tellEvery   = 5 * time.Millisecond // how often the store checks for news to send
	mostRouters = 256                  // most other routers; more can only be wrong messages
	storeConns  = 4
	// These are parts of the patience. wholePart says how many whole messages are sent in one patience. A server
	// that is silent for the share downPart counts as down, before the routers behind it count as silent.
	wholePart = 4
	downPart  = 0.75
)

// storeOf returns the store of cfg; nil if there is none. It does not connect yet.
func (ps *Peers) storeOf(cfg *config.Config) (*store, error) {
	v := cfg.Routers.Valkey
	if len(v.Addresses) == 0 {
		return nil, nil
	}
	trust, err := v.ServerTLS()
	if err != nil {
		return nil, err
	}
	interval := cfg.Experimental.Routers.Interval
	s := &store{
		ps: ps, cfg: v, trust: trust, interval: interval, patience: patienceOf(interval),
		channel: v.Prefix + "routers", ended: make(chan struct{}), routers: map[string]*stored{},
	}
	s.health.up.Store(true)
	s.health.first = newFirst()
	return s, nil
}

// same reports whether o and s do the same.
func (s *store) same(o *store) bool {
	return s != nil && o != nil && reflect.DeepEqual(s.cfg, o.cfg) && s.interval == o.interval &&
		config.SameTLS(s.trust, o.trust)
}

// leave stops sending and receiving, and returns when no received report counts any more.
func (s *store) leave() {
	if s != nil && s.stop != nil {
		s.stop()
		<-s.ended
	}
}

// run sends and receives until ctx ends.
func (s *store) run(ctx context.Context) {
	v := &s.cfg
	s.client = valkey.NewClient(valkey.Server{
		Addresses: v.Addresses, Cluster: v.Mode == config.ValkeyCluster, Master: v.Master, Username: v.Username,
		Password: v.Password.Reveal(), TLS: s.trust, Dial: s.ps.opt.Dial,
	}, storeConns, s.patience/2)
	s.health.echo = time.Now()
	var parts sync.WaitGroup
	for where, part := range map[string]func(context.Context){
		"telling routers": s.tell, "hearing routers": s.listen, "watching routers": s.watch,
	} {
		parts.Go(func() { s.ps.opt.Panics.KeepRunning(ctx, where, func() { part(ctx) }) })
	}
	parts.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.routers {
		s.forgetLocked(r)
	}
	_ = s.client.Close() // nothing is running any more
}

// tell publishes the bookings until ctx ends, and then the end of this router.
func (s *store) tell(ctx context.Context) {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	var t teller
	for {
		select {
		case <-ctx.Done():
			s.publishEnd()
			return
		case <-tick.C:
		}
		m := t.next(s.ps, s.patience, time.Now())
		if m != nil && !s.publish(ctx, m) {
			t.wholeAt, t.uses = time.Time{}, usesReported{} // the next message makes up for the lost one
			sleep(ctx, jitter(s.patience/wholePart))
		}
	}
}

// teller finds the news to send.
type teller struct {
	before    reported
	changes   uint64    // of the pools, as of before
	distrusts uint64    // changes of the distrusted engines, when the last message was made
	wholeAt   time.Time // when the next whole message is due
	has       guessed   // which guesses were told
	uses      usesReported
}

// next returns the next message; nil for none.
func (t *teller) next(ps *Peers, patience time.Duration, now time.Time) *message {
	o := &ps.opt
	changes, whole := o.Prefill.Changes()+o.Decode.Changes(), !now.Before(t.wholeAt)
	distrusts := o.Distrusts.DistrustChanges()
	found, used := distrusts != t.distrusts, o.Keys.Version() != t.uses.version
	if !whole && !found && !used && changes == t.changes {
		return nil
	}
	all := reported{o.Prefill.PeerLoads(now), o.Decode.PeerLoads(now)}
	fresh := all
	if !whole {
		fresh, whole = t.before.news(&all)
	}
	gs := ps.guessesFrom(t.has)
	t.before, t.changes = all, changes
	t.distrusts = distrusts
	t.has = gs.From
	switch {
	case whole:
		t.wholeAt = now.Add(jitter(patience / wholePart))
	case !found && !used && len(fresh.prefill)+len(fresh.decode)+len(gs.Prefill)+len(gs.Decode) == 0:
		return nil
	}
	m := &message{bookings: bookings{Prefill: fresh.prefill, Decode: fresh.decode, Guesses: gs}, Whole: whole}
	if whole || found {
		m.Distrusted = o.Distrusts.Distrusted()
	}
	m.Uses = ps.usesSince(t.uses.since(now), now)
	t.uses.note(&m.Uses, now)
	return m
}

// publish reports whether the server has received m.
func (s *store) publish(ctx context.Context, m *message) bool {
	m.Instance, m.Sent = s.ps.instance, s.ps.clock()
	body, err := json.Marshal(m)
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, s.patience/2)
		defer cancel()
		err = s.client.Publish(limited, s.channel, body).Err()
	}
	switch {
	case err == nil:
		s.ps.messages.WithLabelValues(sent).Inc()
	case ctx.Err() == nil:
		s.ps.messages.WithLabelValues(unsent).Inc()
		s.failed(err)
	}
	return err == nil
}

// publishEnd announces the end of this router, so that others need not wait until it counts as silent.
func (s *store) publishEnd() {
	ctx, cancel := context.WithTimeout(context.Background(), s.patience/2) // bounded, at the end
	defer cancel()
	s.publish(ctx, &message{Left: true})
}

// listen receives messages until ctx ends.
func (s *store) listen(ctx context.Context) {
	for ctx.Err() == nil {
		s.receive(ctx)
		sleep(ctx, jitter(s.patience/wholePart))
	}
}

// receive receives messages until reading fails, or until no message comes for the patience. At least this
// router's own messages should come.
func (s *store) receive(ctx context.Context) {
	sub := s.client.Subscribe(ctx, s.channel)
	closing := context.AfterFunc(ctx, func() { _ = sub.Close() }) // ends the wait for a message
	defer func() {
		if closing() {
			_ = sub.Close()
		}
	}()
	for {
		got, err := sub.ReceiveTimeout(ctx, s.patience)
		if err != nil { // a message may have been read in part, so the connection is of no use
			if ctx.Err() == nil {
				s.failed(err)
			}
			return
		}
		if m, ok := got.(*redis.Message); ok {
			s.take([]byte(m.Payload), time.Now())
		}
	}
}

// failed records why the server does not work. The reason is reported if the failure lasts.
func (s *store) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health.err = err
}

// watch removes silent routers, and logs when the server stops working, until ctx ends.
func (s *store) watch(ctx context.Context) {
	tick := time.NewTicker(s.patience / 20)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.judge(now)
		}
	}
}

func (s *store) judge(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.health.heard; !h.IsZero() && now.Sub(h) > s.patience*2/wholePart {
		s.health.first.is()
	}
	long := now.Sub(s.health.echo).Seconds() > downPart*s.patience.Seconds()
	if long && s.health.up.Swap(false) {
		s.ps.opt.Log.Warn("the server through which routers tell their bookings does not work; "+
			"those that routers.peers names are asked, what others have booked is not known",
			"reason", s.reason())
	}
	for _, r := range s.routers {
		if now.Sub(r.since) <= s.patience {
			continue
		}
		s.forgetLocked(r)
		if s.health.up.Load() {
			s.ps.opt.Log.Warn("router is silent, its bookings are not known", "instance", r.instance)
		}
	}
}

// reason returns a reason on which an operator can act.
func (s *store) reason() string {
	switch {
	case s.health.err == nil:
		return "it does not give back what is published"
	case redis.IsAuthError(s.health.err):
		return "it refuses the user or the password (routers.valkey.username, routers.valkey.password): " +
			s.health.err.Error()
	case redis.IsPermissionError(s.health.err):
		return "the user may not publish at or subscribe to the channel " + s.channel + ": " + s.health.err.Error()
	}
	return s.health.err.Error()
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
