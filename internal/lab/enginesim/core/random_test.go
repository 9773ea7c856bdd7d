package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// chaos runs random requests and faults on a P and a D, one step at a time.
type chaos struct {
	*bench
	p, d, solo *Engine
	n          int
	prompts    map[string][]uint32
	outs       map[string]int
	legs       []string // finished prefills with unused params
	live       map[string]*Engine
	aborted    map[string]bool
	failed     map[string]bool
}

func newChaos(t *rapid.T) *chaos {
	c := Config{
		BlockSize: rapid.IntRange(1, 5).Draw(t, "block size"), Blocks: rapid.IntRange(30, 80).Draw(t, "blocks"),
		MaxBatchedTokens: rapid.IntRange(1, 40).Draw(t, "budget"), MaxSeqs: rapid.IntRange(1, 6).Draw(t, "seqs"),
		LoadPolicy: LoadPolicy(rapid.IntRange(0, 1).Draw(t, "policy")),
		Tier: Tier{
			Blocks: rapid.IntRange(0, 60).Draw(t, "host memory"), Read: 100 * time.Millisecond,
			Write: 20 * time.Millisecond, Telling: rapid.Bool().Draw(t, "telling"),
		},
	}
	if rapid.Bool().Draw(t, "hybrid") {
		window := Group{Kind: "sliding_window", Window: rapid.IntRange(2, 9).Draw(t, "window")}
		c.Groups = []Group{{Kind: fullAttention}, window}
		c.Retain = rapid.Bool().Draw(t, "retain")
		c.MaxModelLen = (c.Blocks - 1) * c.BlockSize / 2
	}
	b, p, d, solo := pair(t, c)
	x := &chaos{
		bench: b, p: p, d: d, solo: solo, prompts: map[string][]uint32{}, outs: map[string]int{},
		live:    map[string]*Engine{},
		aborted: map[string]bool{}, failed: map[string]bool{},
	}
	b.engines = []*Engine{p, d}
	b.delay = func() time.Duration { return time.Second }
	return x
}

func (x *chaos) request(t *rapid.T) *Request {
	x.n++
	limit := x.p.cfg.MaxModelLen - 1
	ids := append(prompt(uint64(rapid.IntRange(0, 2).Draw(t, "family")),
		rapid.IntRange(1, limit/2).Draw(t, "shared")),
		prompt(uint64(x.n+10), rapid.IntRange(0, limit-limit/2).Draw(t, "own"))...)
	return &Request{ID: fmt.Sprint("r", x.n), Prompt: ids, MaxTokens: rapid.IntRange(1, 30).Draw(t, "out")}
}

func (x *chaos) send(e *Engine, r *Request) {
	x.add(e, r)
	x.prompts[r.ID], x.outs[r.ID] = r.Prompt, r.MaxTokens
	x.live[r.ID] = e
}

func (x *chaos) local(t *rapid.T) {
	x.send([]*Engine{x.p, x.d}[rapid.IntRange(0, 1).Draw(t, "engine")], x.request(t))
}

func (x *chaos) leg1(t *rapid.T) {
	r := x.request(t)
	r.MaxTokens, r.Transfer = 1, &Transfer{DoRemoteDecode: true}
	x.legs = append(x.legs, r.ID)
	x.send(x.p, r)
}

// leg2 uses the params of a prefill once and while they are valid, as a router should.
func (x *chaos) leg2(t *rapid.T) {
	for i, id := range x.legs {
		if x.params[id] == nil || x.p.known.held[id] == nil {
			continue
		}
		x.legs = slices.Delete(x.legs, i, i+1)
		x.n++
		r := &Request{
			ID: fmt.Sprint("r", x.n), Prompt: x.prompts[id], MaxTokens: rapid.IntRange(1, 20).Draw(t, "out"),
			Transfer: x.take(id),
		}
		if rapid.IntRange(0, 9).Draw(t, "reject") == 0 {
			x.d.Reject(x.now, r.Transfer)
			return
		}
		if rapid.IntRange(0, 5).Draw(t, "lost peer") == 0 {
			r.Transfer.Port.V = "9"
			x.failed[r.ID] = true
		}
		x.send(x.d, r)
		return
	}
}

func (x *chaos) abort(t *rapid.T) {
	ids := make([]string, 0, len(x.live))
	for id := range x.live {
		if _, ended := x.ends[id]; !ended {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return
	}
	slices.Sort(ids)
	id := rapid.SampledFrom(ids).Draw(t, "aborted")
	x.live[id].Abort(x.now, id)
	x.aborted[id] = true
	delete(x.live, id)
}

func (x *chaos) pass(t *rapid.T) {
	x.now += time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond
	for len(x.pending) > 0 && rapid.Bool().Draw(t, "land") {
		x.land()
	}
	for range rapid.IntRange(0, 5).Draw(t, "steps") {
		x.step(x.p)
		x.step(x.d)
		x.audit(t)
	}
}

func (x *chaos) audit(t *rapid.T) {
	for _, e := range []*Engine{x.p, x.d} {
		if err := e.Audit(); err != nil {
			t.Fatalf("%s: %v", e.cfg.EngineID, err)
		}
	}
}

// finish waits until everything has ended, leases too.
func (x *chaos) finish(t *rapid.T) {
	for range 5000 { // prompts may wait one after another for unread leases to expire
		x.settle()
		if len(x.p.known.held)+len(x.p.known.reqs)+len(x.d.known.reqs) == 0 {
			break
		}
		x.now += 5 * time.Second
	}
	x.settle()
	for _, e := range []*Engine{x.p, x.d} {
		s := e.Stats()
		if s.Usage != 0 || s.Running+s.Waiting+s.Leases+s.FetchToStart != 0 ||
			len(e.known.reqs)+len(e.known.held) != 0 ||
			e.leasing.beating != 0 || e.loads.arrived != 0 || e.loads.failures != 0 {
			t.Fatalf("%s is not empty: %+v", e.cfg.EngineID, s)
		}
		if s.PromptTokens != s.PromptComputed+s.PromptLocal+s.PromptExternal {
			t.Fatalf("prompt tokens do not add up: %+v", s)
		}
		if s.NixlNotifiedLate != 0 {
			t.Fatalf("%d late notifications, though no lease has expired", s.NixlNotifiedLate)
		}
	}
	for id := range x.live {
		x.check(t, id)
	}
}

func (x *chaos) check(t *rapid.T, id string) {
	end, ok := x.ends[id]
	switch {
	case !ok:
		t.Fatalf("%s never ended", id)
	case end.Reason == FinishError:
		if !x.failed[id] || x.d.cfg.LoadPolicy == Recompute {
			t.Fatalf("%s failed: %v", id, end.Err)
		}
		return
	}
	room := x.p.cfg.MaxModelLen - len(x.prompts[id])
	if got, want := len(x.text[id]), min(x.outs[id], room); got != want || end.Reason != FinishLength {
		t.Fatalf("%s: %d tokens and %v, want %d", id, got, end.Reason, want)
	}
	must2(t, x.solo.Add(0, &Request{ID: id, Prompt: x.prompts[id], MaxTokens: len(x.text[id])}))
	for i := 0; ; i++ {
		st := x.solo.Step(0)
		if st.Idle {
			break
		}
		for _, o := range st.Outputs {
			if x.text[id][o.Out-1] != o.Token {
				t.Fatalf("%s: token %d is %d, want %d", id, o.Out, x.text[id][o.Out-1], o.Token)
			}
		}
	}
}

func must2(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

func TestEveryRequestEndsAndEveryBlockComesBack(t *testing.T) {
	for range 5 {
		rapid.Check(t, func(t *rapid.T) {
			x := newChaos(t)
			t.Repeat(map[string]func(*rapid.T){
				"local": x.local, "leg 1": x.leg1, "leg 2": x.leg2, "abort": x.abort, "pass": x.pass,
			})
			x.finish(t)
		})
	}
}
