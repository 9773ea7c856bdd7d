package doctor

import (
	"slices"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// heard has what the batches of a stream reported since the last Forget.
type heard struct {
	topics  []string // distinct, at most maxTopics
	sizes   []int    // distinct block sizes of GPU stores, at most maxSizes
	batches int
	first   uint64        // sequence number of the first batch
	firstAt time.Time     // its time stamp
	span    time.Duration // from there to the newest batch's
	stored  int           // blocks in GPU stores
	copies  map[copyOf]int
	kept    []kv.Batch // copies of the events of test prompts
}

const (
	maxTopics = 8
	maxSizes  = 8
)

// copyOf is a block of a KV cache group on the GPU.
type copyOf struct {
	group int
	hash  kv.EngineHash
}

// take records one batch.
func (h *heard) take(b *kv.Batch) {
	if h.batches == 0 {
		h.first, h.firstAt = b.Seq, b.At
	}
	h.batches++
	h.span = b.At.Sub(h.firstAt)
	for i := range b.Events {
		e := &b.Events[i]
		h.count(e)
		if e.Kind == kv.Stored && e.Tier == kv.GPU && e.BlockSize > 0 {
			h.sizes = note(h.sizes, e.BlockSize, maxSizes)
			h.stored += len(e.Hashes)
		}
	}
}

// count records how many copies of each block exist by the events: an engine announces each copy, and its
// removal.
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

// held returns the number of copies that exist by the events.
func (h *heard) held() (n int) {
	for _, copies := range h.copies {
		n += copies
	}
	return n
}

func note[T comparable](all []T, one T, limit int) []T {
	if slices.Contains(all, one) || len(all) >= limit {
		return all
	}
	return append(all, one)
}

// prompts are the test prompts of all ranks. Of each stream only their events are kept, because a busy engine
// has thousands of others. The zero value is ready.
type prompts struct {
	mu  sync.RWMutex // guards all
	all [][]kv.Token
}

// add must be called before the prompt is sent.
func (p *prompts) add(prompt []kv.Token) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, prompt)
}

// eventsOf returns copies of the events of b that are about blocks of a test prompt. These events store the
// beginning of a test prompt, store a block after a block in kept, remove a block in kept, or clear all
// blocks.
func (p *prompts) eventsOf(b *kv.Batch, kept []kv.Batch) (events []kv.Event) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if len(p.all) == 0 {
		return nil
	}
	ours := func(hash kv.EngineHash) bool {
		has := func(e kv.Event) bool { return slices.Contains(e.Hashes, hash) }
		return slices.ContainsFunc(kept, func(b kv.Batch) bool { return slices.ContainsFunc(b.Events, has) }) ||
			slices.ContainsFunc(events, has)
	}
	for i := range b.Events {
		e := &b.Events[i]
		switch {
		case e.Kind == kv.Stored && !e.HasParent && p.has(e.Tokens):
		case e.Kind == kv.Stored && e.HasParent && ours(e.Parent):
		case e.Kind == kv.Removed && slices.ContainsFunc(e.Hashes, ours):
		case e.Kind == kv.Cleared:
		default:
			continue
		}
		events = append(events, copied(e))
	}
	return events
}

// has reports whether tokens are the beginning of a prompt.
func (p *prompts) has(tokens []kv.Token) bool {
	return slices.ContainsFunc(p.all, func(prompt []kv.Token) bool { return begins(prompt, tokens) })
}

func copied(e *kv.Event) kv.Event {
	c := *e
	c.Hashes = slices.Clone(e.Hashes)
	c.Tokens = slices.Clone(e.Tokens)
	c.Extra = slices.Clone(e.Extra)
	for i := range c.Extra {
		c.Extra[i] = slices.Clone(c.Extra[i])
	}
	return c
}
