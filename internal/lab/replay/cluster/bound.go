package cluster

import (
	"errors"
	"io"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/lab/trace"
)

// Ideal is the work of a trace for an ideal fleet, whose engines share one cache that never forgets, and have
// no queue. No real fleet has more cache hits, and no fleet of the same engines has a higher capacity.
type Ideal struct {
	Requests int     `json:"requests"`
	Prompt   int64   `json:"prompt_tokens"`
	Cached   int64   `json:"cached_tokens"` // prompt tokens seen before
	Prefill  float64 `json:"prefill_s"`     // seconds of one engine for the other prompt tokens, in full steps
	// Seconds of one engine for the answers' tokens, added to steps that run anyway.
	Decode float64       `json:"decode_s"`
	Span   time.Duration `json:"span"` // from the first start of a session to the last
}

// Hit is the ideal share of cached tokens.
func (x *Ideal) Hit() float64 { return float64(x.Cached) / float64(max(x.Prompt, 1)) }

// Load is the smallest share of the engines' time that prefills need if the trace is scale times as dense.
// Above 1 no policy keeps up. The scale with a Load of 1 is an upper bound on the capacity of n engines.
func (x *Ideal) Load(n int, scale float64) float64 {
	return x.Prefill * scale / (x.Span.Seconds() * float64(max(n, 1)))
}

// Capacity is the scale at which n engines that only prefill are busy all the time.
func (x *Ideal) Capacity(n int) float64 { return 1 / x.Load(n, 1) }

// TotalCapacity is the scale at which n engines are busy all the time, for any split of prefill and decode.
func (x *Ideal) TotalCapacity(n int) float64 {
	return float64(n) * x.Span.Seconds() / (x.Prefill + x.Decode)
}

// Measure reads a trace to its end. It adds sessions one after the other, in the order of their start.
func Measure(source Source, engine core.Config) (*Ideal, error) {
	m := meter{engine: core.New(
		core.Config{BlockSize: engine.BlockSize, MaxBatchedTokens: engine.MaxBatchedTokens, Blocks: 2},
	).Config()}
	m.engine.Cost = engine.Cost
	m.seen = map[kv.Key]struct{}{}
	for {
		s, err := source.Next()
		if errors.Is(err, io.EOF) {
			m.Span = m.last - m.first
			return &m.Ideal, nil
		}
		if err != nil {
			return nil, err
		}
		if m.Requests == 0 {
			m.first = s.At
		}
		m.last = s.At
		for i := range s.Calls {
			m.add(s, i)
		}
	}
}

// meter adds calls up.
type meter struct {
	Ideal
	engine      core.Config
	seen        map[kv.Key]struct{} // heads of prompts, named by all their blocks
	blocks      []uint64
	first, last time.Duration
}

func (m *meter) add(s *trace.Session, i int) {
	call, size := &s.Calls[i], m.engine.BlockSize
	cached := min(m.found(s, i)/size, (call.Input-1)/size) * size
	m.Requests++
	m.Prompt += int64(call.Input)
	m.Cached += int64(cached)
	u := float64(call.Input - cached)
	c := float64(cached)
	cost := &m.engine.Cost
	speed := 1.0
	if cost.Speed > 0 {
		speed = cost.Speed
	}
	m.Prefill += ((cost.T0+cost.Host)*u/float64(m.engine.MaxBatchedTokens) + cost.A*u +
		cost.B*(u*c+u*u/2)) / speed
	out := float64(call.Output - 1) // the first token is the prefill's
	m.Decode += (cost.D1*out + cost.D2*out*(float64(call.Input)+out/2)) / speed
}

// found returns the tokens of the longest known beginning of a prompt, and remembers all its full blocks.
func (m *meter) found(s *trace.Session, i int) int {
	if s.BlockSize == 0 {
		return 0
	}
	m.blocks = s.AppendBlocks(m.blocks[:0], i)
	full := s.Calls[i].Input / s.BlockSize
	head, known := kv.Key(1), 0
	for n, id := range m.blocks {
		head = chained(head, id)
		if _, ok := m.seen[head]; ok && known == n {
			known = n + 1
		}
		if n < full {
			m.seen[head] = struct{}{}
		}
	}
	return min(known*s.BlockSize, s.Calls[i].Input)
}

// chained is the key of a prompt's beginning: from the key of the beginning before it, and its last block.
func chained(before kv.Key, id uint64) kv.Key {
	x := uint64(before)*0x9e3779b97f4a7c15 ^ id
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return kv.Key(x ^ x>>31)
}
