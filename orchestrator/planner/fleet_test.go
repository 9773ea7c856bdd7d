package planner

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/prefill"
)

// fleet is two pools and a planner in fake time.
type fleet struct {
	prefill *prefill.Pool
	decode  *decode.Pool
	pl      *Planner
	now     time.Time
	ps, ds  []replica.Replica
	seq     uint64
	locals  map[replica.ID]int // what prefills has booked
	firstBy time.Duration      // of requests
}

const blockSize = 16

// newFleet has prefill replicas p1.. and decode replicas d1.., alike, idle and just heard of. edit may change
// a replica before it joins.
func newFleet(prefills, decodes int, edit func(r *replica.Replica)) *fleet {
	f := &fleet{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	f.prefill = prefill.New(prefill.Options{})
	f.decode = decode.New(decode.Options{})
	f.pl = New(f.prefill, f.decode, complete(Policy{}), rand.New(rand.NewPCG(7, 7)))
	f.ps = replicas("p", replica.Prefill, prefills, edit)
	f.ds = replicas("d", replica.Decode, decodes, edit)
	f.prefill.SetMembers(f.ps, f.now)
	f.decode.SetMembers(f.ds, f.now)
	for _, r := range f.ps {
		f.prefill.SetTrust(r.ID, replica.Live)
		f.says(f.prefill, r.ID, 0, 0, 0)
	}
	for _, r := range f.ds {
		f.decode.SetTrust(r.ID, replica.Live)
		f.says(f.decode, r.ID, 0, 0, 0)
	}
	return f
}

func replicas(prefix string, role replica.Role, n int, edit func(r *replica.Replica)) []replica.Replica {
	var rs []replica.Replica
	for i := range n {
		r := replica.Replica{
			ID: replica.ID(fmt.Sprintf("%s%d", prefix, i+1)), Role: role, Host: fmt.Sprintf("%s-host-%d", prefix, i+1),
		}
		r.Place = replica.Place{Rack: "r1", Zone: "z1"}
		r.Facts = replica.Facts{
			Model: "m", Root: "org/m", Models: []string{"m"}, Version: "0.32.0", MaxModelLen: 160_000,
			BlockSize: blockSize, Blocks: 20_000,
			CacheDType: "auto", PrefixCaching: true, Ranks: 1, Events: replica.EventSource{Endpoint: "tcp://x:1"},
		}
		if edit != nil {
			edit(&r)
		}
		rs = append(rs, r)
	}
	return rs
}

func (f *fleet) load(running, waiting int, usage float64) replica.Load {
	return replica.Load{At: f.now, Source: replica.Metrics, Running: running, Waiting: waiting, Usage: usage}
}

type observer interface {
	Observe(id replica.ID, l replica.Load, now time.Time)
}

// says reports the load of id twice: what only one report says of others' requests may be an accident.
func (f *fleet) says(to observer, id replica.ID, running, waiting int, usage float64) {
	for range 2 {
		to.Observe(id, f.load(running, waiting, usage), f.now)
	}
}

// pass lets time go by.
func (f *fleet) pass(d time.Duration) { f.now = f.now.Add(d) }

// prompt makes the token ids of a prompt; prompts of one seed share all that the shorter one has.
func prompt(seed uint32, tokens int) []uint32 {
	ids := make([]uint32, tokens)
	for i := range ids {
		ids[i] = seed*1_000_003 + uint32(i)
	}
	return ids
}

// request asks for tokens of the prompt named seed, with a client's limit of 100 new tokens.
func (f *fleet) request(seed uint32, tokens int) *Request {
	ids := prompt(seed, tokens)
	r := &Request{
		ID: "req-1", Model: "m", Tokens: tokens, Exact: true, MaxTokens: 100, Sequences: 1, SplitOK: true,
		LocalOK: true, FirstBy: f.firstBy,
	}
	if c, adapter, ok := f.prefill.Chain("m"); ok {
		r.PrefillKeys = c.Append(nil, c.Root(adapter, ""), ids)
	}
	if c, adapter, ok := f.decode.Chain("m"); ok {
		r.DecodeKeys = c.Append(nil, c.Root(adapter, ""), ids)
	}
	return r
}

// prefills lets the decode replica id compute a prompt itself.
func (f *fleet) prefills(t *testing.T, id replica.ID, tokens int) {
	t.Helper()
	r := f.request(99, tokens)
	r.SplitOK = false
	for _, d := range f.ds {
		if d.ID != id {
			r.AvoidDecode = append(r.AvoidDecode, d.ID)
		}
	}
	f.plan(t, r)
	if f.locals == nil {
		f.locals = map[replica.ID]int{}
	}
	f.locals[id]++
}

// fataler is a test, or a property.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

type applier interface {
	Apply(id replica.ID, b *kv.Batch) kv.Applied
}

// store tells the pool that id has the first blocks of the prompt named seed.
func (f *fleet) store(tb fataler, to applier, id replica.ID, seed uint32, blocks int) {
	tb.Helper()
	f.seq++
	e := kv.Event{
		Kind: kv.Stored, Tokens: prompt(seed, blocks*blockSize), BlockSize: blockSize, Group: kv.NoGroup,
	}
	for i := range blocks {
		e.Hashes = append(e.Hashes, kv.EngineHash(uint64(seed)<<32|uint64(i)|1<<62))
	}
	if got := to.Apply(id, &kv.Batch{Seq: f.seq, Events: []kv.Event{e}}); got.Stored != blocks {
		tb.Fatalf("storing %d blocks on %s: %+v", blocks, id, got)
	}
}

func (f *fleet) plan(tb testing.TB, r *Request) *Booking {
	tb.Helper()
	b, err := f.pl.Plan(r, f.now)
	if err != nil {
		tb.Fatalf("Plan: %v", err)
	}
	return b
}
