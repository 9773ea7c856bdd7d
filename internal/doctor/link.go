package doctor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/kvevents"
)

// heard is what batches said, of whichever topic.
type heard struct {
	batches int
	topics  []string // distinct, at most maxTopics
	sizes   []int    // distinct block sizes of GPU stores, at most maxSizes
	stored  int      // blocks in GPU stores
	unread  int      // batches that are no batches
	ranks   []int    // distinct ranks that batches named, at most maxSizes
	copies  map[copyOf]int
}

// copyOf is a block of a KV cache group, on the GPU.
type copyOf struct {
	group int
	hash  kv.EngineHash
}

// count takes over how many copies of each block there must be: an engine announces each, and its removal.
func (h *heard) count(e *kv.Event) {
	if h.copies == nil {
		h.copies = map[copyOf]int{}
	}
	for _, hash := range e.Hashes {
		switch c := (copyOf{e.Group, hash}); {
		case e.Tier != kv.GPU:
		case e.Kind == kv.Stored:
			h.copies[c]++
		case h.copies[c] > 1:
			h.copies[c]--
		default:
			delete(h.copies, c)
		}
	}
	if e.Kind == kv.Cleared {
		clear(h.copies)
	}
}

// held is the number of copies that there must be.
func (h *heard) held() (n int) {
	for _, copies := range h.copies {
		n += copies
	}
	return n
}

const (
	maxTopics = 8
	maxSizes  = 8
)

// take reads one batch into b, whose memory it uses again.
func (h *heard) take(topic string, payload []byte, b *kv.Batch) {
	h.batches++
	if topic != unsaid {
		h.topics = note(h.topics, topic, maxTopics)
	}
	if _, err := kvevents.Decode(payload, b); err != nil {
		h.unread++
		return
	}
	if b.Rank >= 0 {
		h.ranks = note(h.ranks, b.Rank, maxSizes)
	}
	for i := range b.Events {
		h.count(&b.Events[i])
		if e := &b.Events[i]; e.Kind == kv.Stored && e.Tier == kv.GPU && e.BlockSize > 0 {
			h.sizes = note(h.sizes, e.BlockSize, maxSizes)
			h.stored += len(e.Hashes)
		}
	}
}

// unsaid stands for the topic of replies that carry none: vLLM's before 0.26.
const unsaid = "\x00"

func note[T comparable](all []T, one T, limit int) []T {
	if slices.Contains(all, one) || len(all) >= limit {
		return all
	}
	return append(all, one)
}

// link is a connection to the PUB socket of a rank that hears every topic.
type link struct {
	err  *linkError
	pong bool   // answered a ping
	want string // prefix of the topics that Tandem subscribes to
	peer *peer
	news chan struct{} // has a token when one of these came
	done chan struct{} // closed when the reader has left, or was never there

	mu      sync.Mutex // guards the following until done
	heard   heard
	lag     time.Duration // from the newest batch's time stamp to its arrival
	stamped bool          // it has one
	kept    []kv.Batch    // copies of those of the wanted topic, the newest, at most maxKept
}

const maxKept = 4096

// noLink is a link that hears nothing.
func noLink() *link {
	l := &link{done: make(chan struct{})}
	close(l.done)
	return l
}

// openLink connects, subscribes to everything, and reads until close; it keeps what has a topic that begins
// with want. It never returns nil.
func openLink(ctx context.Context, endpoint, want string) *link {
	l := &link{want: want, news: make(chan struct{}, 1), done: make(chan struct{})}
	l.peer, l.err = dialPeer(ctx, endpoint, "SUB", "PUB", linkTime)
	if l.err == nil {
		if err := l.peer.subscribe(); err != nil {
			l.peer.close()
			l.err = &linkError{layer: atTCP, err: err}
		}
	}
	if l.err != nil {
		close(l.done)
		return l
	}
	go l.read() // ended by close, and by the end of ctx
	return l
}

func (l *link) close() {
	if l.err == nil {
		l.peer.close()
	}
	<-l.done
}

func (l *link) read() {
	defer close(l.done)
	var b kv.Batch
	for {
		frames, err := l.peer.message()
		if err != nil {
			return
		}
		now := time.Now()
		if len(frames) != 3 || len(frames[1]) != 8 {
			continue
		}
		l.take(string(frames[0]), frames[2], &b, now)
	}
}

func (l *link) take(topic string, payload []byte, b *kv.Batch, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.At = time.Time{}
	l.heard.take(topic, payload, b)
	l.lag, l.stamped = now.Sub(b.At), !b.At.IsZero()
	if !strings.HasPrefix(topic, l.want) {
		return
	}
	if len(l.kept) == maxKept {
		l.kept = slices.Delete(l.kept, 0, maxKept/2)
	}
	l.kept = append(l.kept, clone(b))
	select {
	case l.news <- struct{}{}:
	default:
	}
}

func clone(b *kv.Batch) kv.Batch {
	c := *b
	c.Events = slices.Clone(b.Events)
	for i := range c.Events {
		ev := &c.Events[i]
		ev.Hashes = slices.Clone(ev.Hashes)
		ev.Tokens = slices.Clone(ev.Tokens)
		ev.Extra = slices.Clone(ev.Extra)
		for j := range ev.Extra {
			ev.Extra[j] = slices.Clone(ev.Extra[j])
		}
	}
	return c
}

// all returns the batches kept up to now.
func (l *link) all() []kv.Batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.kept)
}

// ping waits for the answer to a ZMTP ping. It comes when the subscription has arrived; the publisher takes
// it in with its next batch, but libzmq looks for subscriptions no more than once in three million ticks of
// the processor, so settleTime more makes sure that nothing is missed from then on.
func (l *link) ping(ctx context.Context) {
	if l.err != nil || l.peer.ping() != nil {
		return
	}
	wait := time.NewTimer(pongTime)
	defer wait.Stop()
	select {
	case <-l.peer.pongs:
		l.pong = true
		time.Sleep(settleTime)
	case <-wait.C:
	case <-l.done:
	case <-ctx.Done():
	}
}

// replay is what a replay from the first batch brought.
type replay struct {
	err    *linkError // it could not be asked for
	silent error      // why it ended before its end marker
	heard  heard
	first  uint64 // sequence number of its first batch
	holes  int    // batches missing between the first and the last
	took   time.Duration
	span   time.Duration // from the first batch's time stamp to the last's
}

var (
	endMarker    = []byte{255, 255, 255, 255, 255, 255, 255, 255}
	errMalformed = errors.New("an answer of another form than vLLM's")
)

// askReplay asks for everything, as a router does at its start, and reads to the end marker.
func askReplay(ctx context.Context, endpoint string) *replay {
	began := time.Now()
	r := &replay{}
	var p *peer
	if p, r.err = dialPeer(ctx, endpoint, "DEALER", "ROUTER", linkTime); r.err != nil {
		return r
	}
	defer p.close()
	_ = p.nc.SetDeadline(began.Add(replayTime))
	if r.silent = p.send(nil, make([]byte, 8)); r.silent == nil {
		r.silent = r.read(p)
	}
	r.took = time.Since(began)
	return r
}

func (r *replay) read(p *peer) error {
	var b kv.Batch
	var firstAt time.Time
	next := uint64(math.MaxUint64)
	for {
		frames, err := p.message()
		if err != nil {
			return err
		}
		n := len(frames)
		if n != 3 && n != 4 || len(frames[n-2]) != 8 {
			return fmt.Errorf("%w: %d frames", errMalformed, n)
		}
		if slices.Equal(frames[n-2], endMarker) {
			return nil
		}
		topic := unsaid
		if n == 4 {
			topic = string(frames[1])
		}
		b.At = time.Time{}
		r.heard.take(topic, frames[n-1], &b)
		seq := binary.BigEndian.Uint64(frames[n-2])
		if r.heard.batches == 1 {
			r.first, firstAt = seq, b.At
		} else if seq > next {
			r.holes += int(seq - next)
		}
		next = seq + 1
		r.span = b.At.Sub(firstAt)
	}
}
