package orchestrator

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

// captures are the traces that are being taken of what is served. Nothing is kept while there is none.
//
// Safe for concurrent use.
type captures struct {
	any atomic.Int32 // how many there are: requests look no further

	mu  sync.Mutex // guards the following
	all map[*taking]struct{}
}

// taking is one trace being taken. Names of blocks and sessions are hashed under a seed of its own, which
// nobody is told: they can be compared within the trace, and neither with another nor with the hashes of
// guessed prompts.
type taking struct {
	began time.Time
	seed  maphash.Seed
	lines chan capture.Request
	lost  atomic.Uint64
}

// captureBuffer is how many requests may end while a slow reader is waited for.
const captureBuffer = 4096

func (c *captures) begin(now time.Time) (t *taking, end func()) {
	t = &taking{began: now, seed: maphash.MakeSeed(), lines: make(chan capture.Request, captureBuffer)}
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

// note adds a request that has ended well to the traces that were begun before it came.
func (c *captures) note(j *job) {
	if c.any.Load() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := range c.all {
		if j.q.start.Before(t.began) {
			continue
		}
		select {
		case t.lines <- t.of(j):
		default:
			t.lost.Add(1)
		}
	}
}

// of is what of a request goes into the trace: when it came, how long it was, which beginnings it shares with
// others, never what it said.
func (t *taking) of(j *job) capture.Request {
	line := capture.Request{
		T: j.q.start.Sub(t.began).Seconds(), Model: j.rec.Model, Input: max(j.rec.Prompt, 1), Output: j.rec.Output,
		Asked: t.asked(j),
	}
	if s := j.q.r.Header.Get("X-Session-Id"); s != "" {
		line.Session = strconv.FormatUint(maphash.String(t.seed, s), 36)
	}
	if j.ids != nil { // else the keys are of chunks of text
		line.Blocks = t.blocks(j.plan.PrefillKeys)
	}
	return line
}

// asked is what of a request tells of its answer's length.
func (t *taking) asked(j *job) capture.Asked {
	a := capture.Asked{API: path.Base(j.q.path)}
	if j.q.tenant != 0 {
		a.Tenant = strconv.FormatUint(maphash.Comparable(t.seed, j.q.tenant), 36)
	}
	if j.req != nil {
		c := j.class()
		a.Tools = c.Tools
		a.Form = c.Structured
		a.Stops = c.Stops
		a.Expects = c.Hint
	}
	return a
}

func (t *taking) blocks(keys []kv.Key) []uint64 {
	names := make([]uint64, len(keys))
	for i, k := range keys {
		names[i] = maphash.Comparable(t.seed, k)
	}
	return names
}

// capture streams what is served as a trace until the client leaves or `for` has passed: a first line, then a
// line for each request when it has ended, in that order, then how many lines were lost to a reader that was
// too slow. `tandem replay capture` makes a trace of it that can be played.
func (o *Orchestrator) capture(w http.ResponseWriter, r *http.Request) {
	length := 10 * time.Minute
	if text := r.URL.Query().Get("for"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			writeJSON(w, http.StatusBadRequest,
				map[string]string{"error": `for must be a time like "10m", and not ` + strconv.Quote(text)})
			return
		}
		length = d
	}
	t, end := o.captures.begin(time.Now())
	defer end()
	w.Header().Set("Content-Type", "application/x-ndjson")
	out, flush := json.NewEncoder(w), http.NewResponseController(w).Flush
	err := out.Encode(capture.Header{Version: capture.Version, BlockSize: o.prefill.BlockSize()})
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
