package orchestrator

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"tandem/decode"
	"tandem/internal/config"
	"tandem/internal/engine"
	"tandem/internal/replica"
	"tandem/prefill"
)

// bookingsPath is where a router tells others what it has booked.
const bookingsPath = "/routers/bookings"

const (
	bookingsLimit  = 4 << 20          // bytes of an answer, far more than thousands of replicas take
	leastPatience  = time.Second      // how long a router may be silent at least
	redundantPause = 10 * time.Second // between two questions to an address that tells nothing new
)

// bookings is the answer of one router to all others. Fields that we do not know are those of a newer version, and left alone.
type bookings struct {
	Instance string             `json:"instance"` // of the process that answers, drawn when it starts
	Prefill  []prefill.PeerLoad `json:"prefill"`
	Decode   []decode.PeerLoad  `json:"decode"`
}

// tellBookings answers other routers.
func (o *Orchestrator) tellBookings(w http.ResponseWriter, _ *http.Request) {
	now := time.Now()
	body, err := json.Marshal(bookings{Instance: o.peers.instance, Prefill: o.prefill.PeerLoads(now), Decode: o.decode.PeerLoads(now)})
	if err != nil {
		writeJSON(w, http.StatusInternalServerError, map[string]string{"error": err.Error()})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

var (
	errBookings = errors.New("not the bookings of a router")
	errShare    = fmt.Errorf("%w: a replica stands there twice, or has a number that cannot be", errBookings)
)

// readBookings takes an answer, all of it or nothing.
func readBookings(body []byte) (*bookings, error) {
	b := &bookings{}
	if err := json.Unmarshal(body, b); err != nil {
		return nil, fmt.Errorf("%w: %.200s", errBookings, err.Error())
	}
	if b.Instance == "" || len(b.Instance) > 64 {
		return nil, fmt.Errorf("%w: no instance", errBookings)
	}
	prefills, decodes := map[replica.ID]bool{}, map[replica.ID]bool{}
	for i := range b.Prefill {
		s := &b.Prefill[i]
		if prefills[s.ID] || !s.Plausible() {
			return nil, errShare
		}
		prefills[s.ID] = true
	}
	for i := range b.Decode {
		s := &b.Decode[i]
		if decodes[s.ID] || !s.Plausible() {
			return nil, errShare
		}
		decodes[s.ID] = true
	}
	return b, nil
}

// older adds to the age of each report what the answer took at most. So none is taken for younger than it is.
func (b *bookings) older(by time.Duration) {
	for i := range b.Prefill {
		if r := b.Prefill[i].Report; r != nil {
			r.Age += by
		}
	}
	for i := range b.Decode {
		if r := b.Decode[i].Report; r != nil {
			r.Age += by
		}
	}
}

// peers asks the other routers what they have booked on the replicas, and tells the pools. docs/decisions/0013 says why.
type peers struct {
	o        *Orchestrator
	instance string // of this process

	mu      sync.Mutex // guards the following
	all     map[peerKey]*peer
	tellers map[string]*peer // by instance: whose bookings count
	ctx     context.Context  // of Run; nil before and after
	wg      sync.WaitGroup   // of the peers
}

// peerKey is what makes a peer the same across a reload.
type peerKey struct {
	url      string
	interval time.Duration
	token    string // what it wants to be shown
}

func newPeers(o *Orchestrator) *peers {
	return &peers{o: o, instance: rand.Text(), all: map[peerKey]*peer{}, tellers: map[string]*peer{}}
}

// run asks the peers, those of later reloads too, and waits until nobody is asked any more when ctx ends.
func (ps *peers) run(ctx context.Context) {
	ps.mu.Lock()
	ps.ctx = ctx
	for _, p := range ps.all {
		ps.startLocked(p)
	}
	ps.mu.Unlock()
	<-ctx.Done()
	ps.mu.Lock()
	ps.ctx = nil
	ps.mu.Unlock()
	ps.wg.Wait()
}

func (ps *peers) startLocked(p *peer) {
	ctx, cancel := context.WithCancel(ps.ctx)
	p.stop = cancel
	ps.wg.Go(func() {
		defer close(p.gone)
		ps.o.keepRunning(ctx, "peer", func() { p.run(ctx) })
	})
}

// wanted makes a peer for every router of cfg; those that are asked already are left alone by [peers.apply].
func (ps *peers) wanted(cfg *config.Config) (map[peerKey]*peer, error) {
	out := map[peerKey]*peer{}
	interval, token := cfg.Experimental.Routers.Interval, cfg.Admin.Token.Reveal()
	patience := max(5*interval, leastPatience)
	for _, url := range cfg.Routers.Peers {
		client, err := engine.New(engine.Options{
			URL: url, Dial: ps.o.opt.Dial, DialTimeout: patience, MaxIdle: 1, APIKey: token,
		})
		if err != nil {
			return nil, err
		}
		key := peerKey{url, interval, token}
		out[key] = &peer{ps: ps, key: key, patience: patience, client: client, gone: make(chan struct{})}
	}
	return out, nil
}

// apply makes the peers those that are wanted. One that stays goes on; one that leaves is forgotten before apply returns.
func (ps *peers) apply(wanted map[peerKey]*peer) {
	ps.mu.Lock()
	var left []*peer
	for key, p := range ps.all {
		if wanted[key] == nil {
			delete(ps.all, key)
			left = append(left, p)
		}
	}
	ps.mu.Unlock()
	for _, p := range left {
		p.leave()
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for key, p := range wanted {
		if ps.all[key] != nil {
			continue
		}
		ps.all[key] = p
		if ps.ctx != nil {
			ps.startLocked(p)
		}
	}
}

// list returns the peers by their addresses.
func (ps *peers) list() []*peer {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return slices.SortedFunc(maps.Values(ps.all), func(a, b *peer) int { return cmp.Compare(a.key.url, b.key.url) })
}

// claim lets p tell for an instance, "" where it may. Else the answer says why not: what this process has booked is known, and nobody counts twice.
func (ps *peers) claim(p *peer, instance string) (why string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if instance == ps.instance {
		return "it is this router itself"
	}
	if other := ps.tellers[instance]; other != nil && other != p {
		return "it is the same router as " + other.key.url
	}
	if ps.tellers[p.instance] == p {
		delete(ps.tellers, p.instance)
	}
	p.instance, ps.tellers[instance] = instance, p
	return ""
}

func (ps *peers) disclaim(p *peer) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.tellers[p.instance] == p {
		delete(ps.tellers, p.instance)
	}
}

// peer is one other router.
//
//	new --answers--> heard --no good answer for its patience--> silent --answers--> heard
//	 '-----------------------no good answer for its patience-----^
//	any of them --answers as one that is known already--> redundant --answers as another--> heard
//	                                                          '-----------no answer----------> new
//
// One goroutine runs it; other goroutines read its state.
type peer struct {
	// Immutable.
	ps       *peers
	key      peerKey
	patience time.Duration // how long it may be silent, and how long one answer may take
	client   *engine.Client
	gone     chan struct{}      // closed when run has ended
	stop     context.CancelFunc // nil until it runs

	state    atomic.Uint32 // a peerState
	instance string        // as which it tells; guarded by ps.mu

	// Of run alone.
	since time.Time // when it was heard last, or is asked since
	err   error     // why the newest question failed
}

// peerState is how far a peer is heard.
type peerState uint32

const (
	peerNew peerState = iota
	peerHeard
	peerSilent
	peerRedundant
)

// leave stops asking, and returns when nothing of what was told counts any more.
func (p *peer) leave() {
	if p.stop != nil {
		p.stop()
		<-p.gone
	}
	p.client.Close()
}

// run asks until ctx ends.
func (p *peer) run(ctx context.Context) {
	defer p.client.Close()
	defer p.forget()
	p.since = time.Now()
	for ctx.Err() == nil {
		p.lose()
		p.ask(ctx)
		pause := time.NewTimer(p.pause())
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// awaited reports whether silence is news of p.
func (p *peer) awaited() bool {
	s := peerState(p.state.Load())
	return s == peerNew || s == peerHeard
}

// pause is the time to the next question.
func (p *peer) pause() time.Duration {
	switch {
	case peerState(p.state.Load()) == peerRedundant:
		return redundantPause
	case p.awaited():
		return min(jitter(p.key.interval), time.Until(p.since.Add(p.patience)))
	}
	return jitter(p.key.interval)
}

// lose forgets what p told when it has been silent for too long.
func (p *peer) lose() {
	if !p.awaited() || time.Since(p.since) < p.patience {
		return
	}
	p.forget()
	p.state.Store(uint32(peerSilent))
	p.ps.o.log.Warn("router is silent, its bookings are not known", "peer", p.key.url, "reason", p.reason())
}

// reason says what an operator can act on.
func (p *peer) reason() string {
	switch {
	case p.err == nil:
		return "this process stood still"
	case errors.Is(p.err, syscall.ECONNREFUSED):
		return "connection refused: does it run, with its admin listener (admin.listen) at an address that can be reached from here?"
	}
	if answer, ok := errors.AsType[*engine.StatusError](p.err); ok && answer.Status == http.StatusUnauthorized {
		return "it wants another token: give all routers the same admin.token"
	}
	return explain(p.err)
}

// ask asks once. It takes no longer than p may be silent.
func (p *peer) ask(ctx context.Context) {
	asked := time.Now()
	limit := asked.Add(p.patience)
	if p.awaited() {
		limit = p.since.Add(p.patience)
	}
	limited, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	told, err := p.fetch(limited)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		p.err = err
		if peerState(p.state.Load()) == peerRedundant { // who is there now has to be seen anew
			p.state.Store(uint32(peerNew))
			p.since = time.Now()
		}
		p.ps.o.m.unanswered.WithLabelValues(p.key.url, failureReason(err)).Inc()
	default:
		told.older(time.Since(asked))
		p.take(told)
	}
}

func (p *peer) fetch(ctx context.Context) (*bookings, error) {
	resp, err := p.client.Do(ctx, &engine.Request{Method: http.MethodGet, Path: bookingsPath, Idempotent: true})
	if err != nil {
		return nil, err
	}
	defer resp.Close()
	if resp.Status != http.StatusOK {
		return nil, &engine.StatusError{Path: bookingsPath, Status: resp.Status}
	}
	body, err := resp.ReadAll(bookingsLimit)
	if err != nil {
		return nil, err
	}
	return readBookings(body)
}

// failureReason is the label of a failure.
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

// take tells the pools, unless they know already. Queued requests may have room now.
func (p *peer) take(told *bookings) {
	if why := p.ps.claim(p, told.Instance); why != "" {
		p.pass(why)
		return
	}
	now := time.Now()
	p.ps.o.prefill.MergePeer(p.key.url, told.Prefill, now)
	p.ps.o.decode.MergePeer(p.key.url, told.Decode, now)
	p.since, p.err = now, nil
	p.ps.o.queue.wake()
	switch peerState(p.state.Swap(uint32(peerHeard))) {
	case peerSilent:
		p.ps.o.log.Info("router is back", "peer", p.key.url)
	case peerNew, peerRedundant:
		p.ps.o.log.Info("router tells its bookings", "peer", p.key.url)
	}
}

// pass does without what p tells, which is known already.
func (p *peer) pass(why string) {
	if peerState(p.state.Swap(uint32(peerRedundant))) == peerRedundant {
		return
	}
	p.forget()
	p.ps.o.log.Info("router is not asked for its bookings", "peer", p.key.url, "reason", why)
}

// forget lets nothing count any more that p told.
func (p *peer) forget() {
	now := time.Now()
	p.ps.disclaim(p)
	p.ps.o.prefill.MergePeer(p.key.url, nil, now)
	p.ps.o.decode.MergePeer(p.key.url, nil, now)
	p.ps.o.queue.wake()
}
