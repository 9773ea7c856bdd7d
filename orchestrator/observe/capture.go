package observe

import (
	"encoding/json"
	"hash/maphash"
	"net/http"
	"path"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/internal/capture"
	"github.com/tandem-router/tandem/internal/kv"
)

// Captures are the running captures of traffic as traces. Without a capture nothing is kept.
//
// Safe for concurrent use.
type Captures struct {
	any atomic.Int32 // how many captures run: without one, requests check nothing else

	mu  sync.Mutex // guards the following
	all map[*taking]struct{}
}

// taking is one running capture. Names of blocks and sessions are hashed under a secret seed of its own. So
// they can be compared within the trace, but neither with another trace nor with the hashes of guessed
// prompts.
type taking struct {
	began time.Time
	seed  maphash.Seed
	block int // tokens of a named block
	lines chan capture.Request
	lost  atomic.Uint64
}

// captureBuffer is how many requests may end while a slow reader is waited for.
const captureBuffer = 4096

func (c *Captures) begin(now time.Time, block int) (t *taking, end func()) {
	t = &taking{
		began: now, seed: maphash.MakeSeed(), block: block, lines: make(chan capture.Request, captureBuffer),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[*taking]struct{}{}
	}
	c.all[t] = struct{}{}
	c.any.Add(1)
	return t, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.all, t)
		c.any.Add(-1)
	}
}

// Served holds the facts of a request that has ended well, for captures.
type Served struct {
	Came          time.Time
	Model         string
	Path          string // of the API
	Session       string // "": the client named none
	Tenant        uint32 // 0 where there is none
	Input, Output int    // tokens
	Keys          []kv.Key
	Block         int           // tokens of a block of Keys
	Hints         capture.Asked // without API and tenant
}

// Note adds a request that has ended well to the captures that began before the request arrived. of is called
// only while a capture runs.
func (c *Captures) Note(of func() Served) {
	if c.any.Load() == 0 {
		return
	}
	s := of()
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := range c.all {
		if s.Came.Before(t.began) {
			continue
		}
		select {
		case t.lines <- t.of(&s):
		default:
			t.lost.Add(1)
		}
	}
}

// of returns a request's line in the capture: its time, its length, and the prefixes that it shares with
// other requests, but never its text.
func (t *taking) of(s *Served) capture.Request {
	line := capture.Request{
		T: s.Came.Sub(t.began).Seconds(), Model: s.Model, Input: max(s.Input, 1), Output: s.Output, Asked: s.Hints,
	}
	line.API = path.Base(s.Path)
	if s.Tenant != 0 {
		line.Tenant = strconv.FormatUint(maphash.Comparable(t.seed, s.Tenant), 36)
	}
	if s.Session != "" {
		line.Session = strconv.FormatUint(maphash.String(t.seed, s.Session), 36)
	}
	if s.Keys != nil && s.Block == t.block { // a trace has one size
		line.Blocks = t.blocks(s.Keys)
	}
	return line
}

func (t *taking) blocks(keys []kv.Key) []uint64 {
	names := make([]uint64, len(keys))
	for i, k := range keys {
		names[i] = maphash.Comparable(t.seed, k)
	}
	return names
}

// Stream writes the traffic as a capture until the client leaves or length has passed. It writes a first line
// at once, and a line for each request that ends. The last line says how many lines were lost because the
// reader was too slow. `tandem replay capture` turns the capture into a trace for replay.
func (c *Captures) Stream(w http.ResponseWriter, r *http.Request, length time.Duration, blockSize int) {
	t, end := c.begin(time.Now(), blockSize)
	defer end()
	w.Header().Set("Content-Type", "application/x-ndjson")
	out, flush := json.NewEncoder(w), http.NewResponseController(w).Flush
	err := out.Encode(capture.Header{Version: capture.Version, BlockSize: blockSize})
	over := time.NewTimer(length)
	defer over.Stop()
	for err == nil {
		if err = flush(); err != nil {
			return
		}
		select {
		case line := <-t.lines:
			err = out.Encode(line)
		case <-over.C:
			_ = out.Encode(capture.End{Lost: t.lost.Load()})
			return
		case <-r.Context().Done():
			return
		}
	}
}
