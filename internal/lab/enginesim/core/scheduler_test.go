package core

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// hits runs prompt on e once more and returns the number of its cached tokens.
func hits(b *bench, e *Engine, id string, ids []uint32) int {
	b.plain(e, id, ids, 1)
	return b.ends[id].Cached
}

// The hit is floor(min(match, N-1)/B)*B: the last token is always computed.
func TestHitRule(t *testing.T) {
	long := prompt(1, 40)
	for _, c := range []struct {
		name  string
		first int // how many tokens of long were computed before
		n     int // how many tokens of long are requested
		want  int
	}{
		{"whole blocks, again", 16, 16, 12},
		{"one more token", 16, 17, 16},
		{"partial tail is not cached", 18, 20, 16},
		{"longer", 16, 40, 16},
		{"shorter", 40, 10, 8},
		{"one token", 40, 1, 0},
		{"less than a block", 3, 3, 0},
	} {
		e := New(Config{BlockSize: 4})
		b := newBench(t, e)
		b.plain(e, "first", long[:c.first], 1)
		if got := hits(b, e, "second", long[:c.n]); got != c.want {
			t.Errorf("%s: %d tokens hit, want %d", c.name, got, c.want)
		}
		s := e.Stats()
		if s.PrefixQueries != uint64(c.first+c.n) || s.PrefixHits != uint64(c.want) ||
			s.PromptLocal != uint64(c.want) || s.PromptComputed+s.PromptLocal != s.PromptTokens {
			t.Errorf("%s: counters %+v", c.name, s.Counters)
		}
	}
}

// Salt, adapter and hash seed separate cached blocks. A salt and an adapter with the same name differ too.
func TestCacheIsParted(t *testing.T) {
	e := New(Config{BlockSize: 4})
	b := newBench(t, e)
	ids := prompt(1, 20)
	variants := []Request{{}, {Salt: "x"}, {LoRA: "x"}, {Salt: "x", LoRA: "x"}, {Salt: "y"}}
	for round := range 2 {
		for i, v := range variants {
			v.ID = fmt.Sprintf("%d%d", round, i)
			v.Prompt = ids
			v.MaxTokens = 3
			b.add(e, &v)
			b.settle()
			if got, want := b.ends[v.ID].Cached, round*16; got != want {
				t.Errorf("round %d, %+v: %d tokens hit, want %d", round, v, got, want)
			}
		}
	}
	same(t, "a salt changes no text", b.text["01"], b.text["00"])
	if slices.Equal(b.text["02"], b.text["00"]) {
		t.Error("an adapter does not change the text")
	}
	other := New(Config{BlockSize: 4, HashSeed: "7"})
	b.engines = append(b.engines, other)
	b.plain(other, "other", ids, 3)
	same(t, "a hash seed changes no text", b.text["other"], b.text["00"])
	if b.events[e][0].Hashes[0] == b.events[other][0].Hashes[0] {
		t.Error("a hash seed does not change the hashes")
	}
	if ev := b.events[e][1]; ev.Salt != "x" || ev.LoRA != "" {
		t.Errorf("salted event %+v", ev)
	}
	if ev := b.events[e][2]; ev.Salt != "" || ev.LoRA != "x" {
		t.Errorf("adapter's event %+v", ev)
	}
}

// Chunks of a prompt share steps with decodes. A block can be hit as soon as its chunk is scheduled.
func TestChunkedPrefill(t *testing.T) {
	e := New(Config{BlockSize: 4, MaxBatchedTokens: 10})
	ids := prompt(1, 25)
	must(t, e.Add(0, &Request{ID: "decode", Prompt: ids[:1], MaxTokens: 50}))
	e.Step(0)
	must(t, e.Add(0, &Request{ID: "long", Prompt: ids, MaxTokens: 2}))
	for i, want := range []struct{ prefill, outputs int }{{9, 1}, {9, 1}, {7, 2}, {0, 2}} {
		st := e.Step(0)
		if st.Prefill != want.prefill || len(st.Outputs) != want.outputs {
			t.Errorf("step %d: %d prompt tokens, %d outputs; want %+v", i, st.Prefill, len(st.Outputs), want)
		}
		if i == 0 {
			stored := 0
			for _, ev := range st.Events {
				stored += len(ev.Hashes)
			}
			if stored != 2 { // 9 tokens
				t.Errorf("first chunk announced %d blocks, want 2", stored)
			}
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A prompt that does not fit stops the queue, even if a later prompt would fit.
func TestHeadOfLineStops(t *testing.T) {
	e := New(Config{BlockSize: 4, Blocks: 11, MaxBatchedTokens: 8})
	// It holds 5 of 10 blocks, and will need more.
	must(t, e.Add(0, &Request{ID: "holder", Prompt: prompt(1, 20), MaxTokens: 10}))
	must(t, e.Add(0, &Request{ID: "big", Prompt: prompt(2, 30), MaxTokens: 1})) // 8 blocks
	must(t, e.Add(0, &Request{ID: "small", Prompt: prompt(3, 4), MaxTokens: 1}))
	var order []string
	for range 100 {
		for _, o := range e.Step(0).Outputs {
			if o.Finished {
				order = append(order, o.ID)
			}
		}
	}
	if want := []string{"holder", "big", "small"}; !slices.Equal(order, want) {
		t.Errorf("ended in the order %v, want %v", order, want)
	}
}

func TestMaxSeqs(t *testing.T) {
	e := New(Config{BlockSize: 4, MaxSeqs: 3})
	for i := range 5 {
		must(t, e.Add(0, &Request{ID: fmt.Sprint(i), Prompt: prompt(uint64(i), 4), MaxTokens: 9}))
	}
	e.Step(0)
	if s := e.Stats(); s.Running != 3 || s.Waiting != 2 || s.WaitingCapacity != 2 {
		t.Errorf("%+v, want 3 running, 2 waiting", s)
	}
}

// When blocks run out, the last request loses its blocks, goes to the head of the queue, and later
// generates the same text. No request is admitted in that step.
func TestPreemption(t *testing.T) {
	e := New(Config{BlockSize: 4, Blocks: 11, MaxModelLen: 40})
	solo := New(Config{BlockSize: 4, MaxModelLen: 40})
	b := newBench(t, e, solo)
	for _, id := range []string{"a", "b"} {
		r := Request{ID: id, Prompt: prompt(uint64(id[0]), 16), MaxTokens: 20}
		b.add(e, &r)
		r.ID += " solo"
		b.add(solo, &r)
	}
	b.step(e)
	b.add(e, &Request{ID: "c", Prompt: prompt(9, 4), MaxTokens: 20})
	saw := false
	for b.step(e) {
		if s := e.Stats(); s.Preemptions == 1 && !saw {
			saw = true
			if e.queues.waiting.front().id != "c" && e.queues.waiting.front().id != "b" {
				t.Errorf("head of the queue is %s", e.queues.waiting.front().id)
			}
		}
	}
	b.settle()
	same(t, "a", b.text["a"], b.text["a solo"])
	same(t, "b", b.text["b"], b.text["b solo"])
	if s := e.Stats(); s.Preemptions == 0 || s.Usage != 0 {
		t.Errorf("%+v, want a preemption and nothing held", s)
	}
	if b.ends["b"].Cached != 0 {
		t.Errorf("hits after the preemption count as cached tokens: %d", b.ends["b"].Cached)
	}
}

// A load takes the blocks of its whole prompt at once, but leaves those that a prompt in computation still
// needs.
func TestLoadLeavesRoomForPrompts(t *testing.T) {
	b, p, d, _ := pair(t, Config{BlockSize: 4, Blocks: 13, MaxBatchedTokens: 8, MaxModelLen: 48})
	ids := prompt(1, 20) // 5 blocks
	b.prefill(p, "p", ids)
	b.delay = func() time.Duration { return time.Second }
	b.add(d, &Request{ID: "local", Prompt: prompt(2, 32), MaxTokens: 1}) // 8 of 12 blocks
	b.add(d, &Request{ID: "remote", Prompt: ids, MaxTokens: 1, Transfer: b.take("p")})
	for d.Stats().FetchInProgress == 0 {
		if !b.step(d) {
			t.Fatal("the load never starts")
		}
		if _, ended := b.ends["local"]; !ended && d.Stats().FetchInProgress > 0 {
			t.Fatal("the load took blocks that the prompt needs")
		}
	}
	b.settle()
	if b.ends["remote"].Reason != FinishLength {
		t.Errorf("%+v", b.ends["remote"])
	}
}

// A running load takes no run slot, but needs a free one to start.
func TestLoadAndRunSlots(t *testing.T) {
	b, p, d, _ := pair(t, Config{BlockSize: 4, MaxSeqs: 1})
	ids := prompt(1, 20)
	b.prefill(p, "p1", ids)
	b.prefill(p, "p2", ids)
	b.delay = func() time.Duration { return time.Second }
	b.add(d, &Request{ID: "r1", Prompt: ids, MaxTokens: 2, Transfer: b.take("p1")})
	b.add(d, &Request{ID: "r2", Prompt: ids, MaxTokens: 2, Transfer: b.take("p2")})
	b.add(d, &Request{ID: "slot", Prompt: prompt(3, 3), MaxTokens: 90})
	b.step(d)
	if s := d.Stats(); s.FetchInProgress != 2 || s.Running != 1 || s.WaitingDeferred != 2 ||
		s.WaitingCapacity != 0 {
		t.Errorf("%+v, want two loads beside a running request", s)
	}
	for len(b.pending) > 0 {
		b.land()
	}
	b.step(d)
	if s := d.Stats(); s.FetchDone != 2 || s.FetchInProgress != 0 {
		t.Errorf("%+v, want two loads waiting for a slot", s)
	}
	b.settle()
	if len(b.text["r1"]) != 2 || len(b.text["r2"]) != 2 {
		t.Errorf("texts %v, %v", b.text["r1"], b.text["r2"])
	}
}

func TestAddRefuses(t *testing.T) {
	e := New(Config{BlockSize: 4, Blocks: 9})
	if e.Config().MaxModelLen != 32 {
		t.Fatalf("model length %d, want what the pool holds", e.Config().MaxModelLen)
	}
	for _, n := range []int{0, 32} {
		if err := e.Add(0, &Request{ID: "r", Prompt: prompt(1, n)}); !errors.Is(err, ErrLength) {
			t.Errorf("%d tokens: %v", n, err)
		}
	}
	must(t, e.Add(0, &Request{ID: "r", Prompt: prompt(1, 31)}))
	if err := e.Add(0, &Request{ID: "r", Prompt: prompt(1, 3)}); !errors.Is(err, ErrDuplicate) {
		t.Errorf("same id: %v", err)
	}
	if st := e.Step(0); len(st.Outputs) != 1 || st.Outputs[0].Reason != FinishLength {
		t.Errorf("%+v, want the end at the model's length", st.Outputs)
	}
}

func TestStopping(t *testing.T) {
	ids := prompt(1, 10)
	e := New(Config{})
	b := newBench(t, e)
	text := b.plain(e, "free", ids, 40)
	stop := text[5]
	at := slices.Index(text, stop)
	b.add(e, &Request{ID: "stop", Prompt: ids, MaxTokens: 40, StopIDs: []uint32{stop}})
	b.add(e, &Request{ID: "min", Prompt: ids, MaxTokens: 40, MinTokens: 20, StopIDs: []uint32{stop}})
	b.settle()
	if o := b.ends["stop"]; o.Reason != FinishStop || !o.Stopped || o.Out != at+1 || o.Token != stop {
		t.Errorf("stop: %+v, want the end after %d tokens", o, at+1)
	}
	if o := b.ends["min"]; o.Out < 20 || slices.Contains(b.text["min"][:20], stop) {
		t.Errorf("min_tokens: %d tokens, %v", o.Out, b.text["min"])
	}
	eos := New(Config{EOS: 1, FirstToken: 8, EOSEvery: 10})
	b = newBench(t, eos)
	for i := range 50 {
		id := fmt.Sprint(i)
		b.add(eos, &Request{ID: id, Prompt: prompt(uint64(i), 9), MaxTokens: 500, IgnoreEOS: i == 0})
		b.settle()
		o := b.ends[id]
		if i == 0 && (o.Reason != FinishLength || !slices.Contains(b.text[id], 1)) {
			t.Errorf("ignore_eos: %+v", o)
		}
		if i > 0 && (o.Reason != FinishStop || o.Token != 1 || o.Stopped) {
			t.Errorf("EOS: %+v", o)
		}
	}
}

func TestSeed(t *testing.T) {
	e := New(Config{})
	b := newBench(t, e)
	for i, seed := range []uint64{0, 5, 6, 5} {
		b.add(e, &Request{ID: fmt.Sprint(i), Prompt: prompt(1, 9), MaxTokens: 12, Seed: seed})
	}
	b.settle()
	same(t, "same seed", b.text["3"], b.text["1"])
	if slices.Equal(b.text["0"], b.text["1"]) || slices.Equal(b.text["1"], b.text["2"]) {
		t.Error("another seed gives the same text")
	}
}

// The text depends on the whole context: another token at any position changes it, and so do other
// weights.
func TestTextDependsOnEverything(t *testing.T) {
	e, other := New(Config{BlockSize: 4}), New(Config{BlockSize: 4, Weights: "other"})
	b := newBench(t, e, other)
	ids := prompt(1, 37)
	right := b.plain(e, "right", ids, 6)
	for i := range ids {
		changed := slices.Clone(ids)
		changed[i] ^= 1
		if slices.Equal(b.plain(e, fmt.Sprint(i), changed, 6), right) {
			t.Errorf("token %d does not change the text", i)
		}
	}
	if slices.Equal(b.plain(other, "other", ids, 6), right) {
		t.Error("other weights do not change the text")
	}
}

func TestAbortRunning(t *testing.T) {
	e := New(Config{BlockSize: 4})
	must(t, e.Add(0, &Request{ID: "r", Prompt: prompt(1, 20), MaxTokens: 100}))
	e.Step(0)
	e.Abort(0, "r")
	e.Abort(0, "r")
	e.Abort(0, "unknown")
	if st := e.Step(0); !st.Idle || len(st.Outputs) != 0 {
		t.Errorf("%+v", st)
	}
	if s := e.Stats(); s.Usage != 0 || s.Finished[FinishAbort] != 1 {
		t.Errorf("%+v", s)
	}
}

// A request with a lease has ended: an abort does not free its blocks.
func TestAbortDoesNotEndALease(t *testing.T) {
	b, p, _, _ := pair(t, Config{BlockSize: 4})
	b.prefill(p, "p", prompt(1, 22))
	p.Abort(0, "p")
	if s := p.Stats(); s.Leases != 1 || s.FreeBlocks != s.Blocks-1-6 {
		t.Errorf("%+v", s)
	}
	if p.ResetPrefixCache() {
		t.Error("the cache was reset under a lease")
	}
}

// An abort during the last step of a prefill leaves no lease; an abort at its end is too late.
func TestAbortDuringTheLastStep(t *testing.T) {
	for _, c := range []struct {
		at     time.Duration
		leases int
	}{{9 * time.Millisecond, 0}, {10 * time.Millisecond, 1}} {
		e := New(Config{BlockSize: 4, Cost: Cost{T0: 10e-3}})
		must(t, e.Add(0,
			&Request{ID: "p", Prompt: prompt(1, 22), MaxTokens: 1, Transfer: &Transfer{DoRemoteDecode: true}}))
		if st := e.Step(0); st.Took != 10*time.Millisecond || len(st.Outputs) != 1 {
			t.Fatalf("%+v", st)
		}
		e.Abort(c.at, "p")
		if s := e.Stats(); s.Leases != c.leases || (s.Usage > 0) != (c.leases > 0) {
			t.Errorf("aborted at %v: %+v", c.at, s)
		}
	}
}
