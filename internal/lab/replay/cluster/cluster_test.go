package cluster

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/lab/trace"
	"github.com/tandem-router/tandem/internal/replica"
)

// script is a router that follows the test's instructions and records what it sees.
type script struct {
	place  func(q *Query, now time.Time) (p, d int, room bool)
	wants  [2]bool
	heard  []string
	loads  []string
	marks  []string
	stored int
}

func (s *script) Events() [2]bool { return s.wants }
func (s *script) Place(q *Query, now time.Time) (p, d int, room bool) {
	s.mark("place", q, now)
	if s.place == nil {
		return 0, 0, true
	}
	return s.place(q, now)
}

func (s *script) mark(what string, q *Query, now time.Time) {
	s.marks = append(s.marks, fmt.Sprintf("%s %d at %v", what, q.Tokens, now.Sub(Time(0))))
}

func (s *script) Answered(q *Query, cached int, took time.Duration, now time.Time) {
	s.mark(fmt.Sprintf("answered %d cached after %v", cached, took), q, now)
}

func (s *script) Bind(q *Query, now time.Time) int {
	s.mark("bind", q, now)
	return 0
}
func (s *script) First(q *Query, now time.Time) { s.mark("first", q, now) }
func (s *script) Done(q *Query, output int, _, _ time.Duration, now time.Time) {
	s.mark(fmt.Sprintf("done %d", output), q, now)
}

func (s *script) Apply(side Side, i int, b *kv.Batch) {
	for _, e := range b.Events {
		s.stored += len(e.Hashes)
	}
	s.heard = append(s.heard,
		fmt.Sprintf("%s seq %d, %d events of %v", ID(side, i), b.Seq, len(b.Events), b.At.Sub(Time(0))))
}

func (s *script) Observe(side Side, i int, l replica.Load, now time.Time) {
	s.loads = append(s.loads, fmt.Sprintf("%s %d at %v", ID(side, i), l.Source, now.Sub(Time(0))))
}
func (s *script) Tick(time.Time) {}

// config is a fleet whose engines prefill a token in 1 ms and decode a step in 10 ms. A token has 1,000
// bytes of KV, and the links carry 1 MB/s.
func config(p, d int) Config {
	node := Node{Engine: core.Config{Blocks: 1000, Cost: core.Cost{A: 1e-3, D0: 0.010}}}
	c := Config{TokenBytes: 1000, Setup: time.Millisecond, Hop: 2 * time.Millisecond}
	for range p {
		c.Nodes[Prefill] = append(c.Nodes[Prefill], node)
	}
	for range d {
		c.Nodes[Decode] = append(c.Nodes[Decode], node)
	}
	for i := range c.Links {
		c.Links[i] = 1e6
	}
	return c
}

const (
	header = `{"tandem_trace":1}` + "\n"
	blocks = `{"tandem_trace":1,"block_size":16}` + "\n"
)

func play(t *testing.T, c Config, r Router, text string, seed uint64) (*Result, error) {
	t.Helper()
	return playSeveral(t, c, []Router{r}, text, seed)
}

func playSeveral(t *testing.T, c Config, rs []Router, text string, seed uint64) (*Result, error) {
	t.Helper()
	source, err := trace.Open(strings.NewReader(text), "sample", trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cl, err := NewSeveral(c, rs, source, seed)
	if err != nil {
		t.Fatal(err)
	}
	return cl.Run(t.Context())
}

func must(t *testing.T, r *Result, err error) *Result {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// One request, calculated by hand: 2 ms to P, 32 ms of prefill, 2 ms back, 2 ms to D, 32 ms on the link
// and 1 ms of setup, a step of 10 ms, 2 ms back.
func TestSplitRequestByHand(t *testing.T) {
	s := &script{}
	res, err := play(t, config(1, 1), s, header+`{"t":0,"in":32,"out":3}`, 1)
	r := must(t, res, err)
	want := Record{
		TTFT: 83 * time.Millisecond, Total: 103 * time.Millisecond, Prompt: 32, Output: 3, Moved: 32_000,
		Transfer: 33 * time.Millisecond, Gap: 10 * time.Millisecond,
	}
	if got := r.Records[0]; got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	marks := []string{
		"place 32 at 0s", "answered 0 cached after 36ms 32 at 36ms", "bind 32 at 36ms", "first 32 at 83ms",
		"done 3 32 at 103ms",
	}
	if !reflect.DeepEqual(s.marks, marks) {
		t.Errorf("the router saw %q", s.marks)
	}
}

func TestLocalRequestByHand(t *testing.T) {
	s := &script{place: func(*Query, time.Time) (int, int, bool) { return -1, 0, true }}
	res, err := play(t, config(1, 1), s, header+`{"t":0,"in":32,"out":3}`, 1)
	r := must(t, res, err)
	if got := r.Records[0]; got.TTFT != 36*time.Millisecond || got.Total != 56*time.Millisecond ||
		got.Moved != 0 || got.Prefill != -1 {
		t.Errorf("got %+v", got)
	}
}

// Two prompts from one P to two D share the network of P. Two prompts from two P to one D share the
// network of D.
func TestLinksAreShared(t *testing.T) {
	text := header + `{"t":0,"in":320,"out":2}` + "\n" + `{"t":0,"in":320,"out":2}`
	for _, shape := range [][2]int{{1, 2}, {2, 1}, {2, 2}} {
		n := 0
		s := &script{place: func(*Query, time.Time) (int, int, bool) {
			n++
			return (n - 1) % shape[0], 0, true
		}}
		c := config(shape[0], shape[1])
		for i := range c.Links {
			c.Links[i] = 1e5
		}
		if shape[1] == 2 {
			r := &other{script: s}
			res, err := play(t, c, r, text, 1)
			checkLinks(t, shape, must(t, res, err))
			continue
		}
		res, err := play(t, c, s, text, 1)
		checkLinks(t, shape, must(t, res, err))
	}
}

// other binds every second request to the second decode replica.
type other struct {
	*script
	n int
}

func (o *other) Bind(*Query, time.Time) int {
	o.n++
	return (o.n - 1) % 2
}

func checkLinks(t *testing.T, shape [2]int, r *Result) {
	t.Helper()
	longest := max(r.Records[0].Transfer, r.Records[1].Transfer)
	alone := 3201 * time.Millisecond
	if shared := shape != [2]int{2, 2}; shared == (longest == alone) {
		t.Errorf("%v: transfers took %v and %v, a single transfer takes %v",
			shape, r.Records[0].Transfer, r.Records[1].Transfer, alone)
	}
}

// The router receives its knowledge as late as in production.
func TestRouterHearsLate(t *testing.T) {
	s := &script{wants: [2]bool{true, false}}
	c := config(1, 1)
	c.EventLag = 500 * time.Millisecond
	res, err := play(t, c, s, header+`{"t":0,"in":48,"out":200}`, 1)
	must(t, res, err)
	if len(s.heard) != 1 || s.stored != 3 || s.heard[0] != "p0 seq 1, 1 events of 50ms" {
		t.Errorf("the router received %d blocks: %q", s.stored, s.heard)
	}
	orca, polls := 0, 0
	for _, l := range s.loads {
		if strings.Contains(l, " 1 at ") {
			orca++
		} else {
			polls++
		}
	}
	if orca != 1 || polls < 2 || polls > 8 {
		t.Errorf("%d reports came in answers, %d by polls of two engines in two seconds: %q", orca, polls, s.loads)
	}
}

// A copied batch does not change when the engine continues.
func TestEventsSurviveTheStepThatMadeThem(t *testing.T) {
	s := &script{wants: [2]bool{true, true}}
	c := config(2, 2)
	c.EventLag = time.Second
	var text strings.Builder
	text.WriteString(blocks)
	for i := range 40 {
		fmt.Fprintf(&text, `{"t":%g,"in":%d,"out":40,"blocks":[%d]}`+"\n", float64(i)*0.02, 16+i%3, i%5)
	}
	ix := kv.NewIndex(kv.Options{Chain: kv.NewChain("", 16)})
	res, err := play(t, c, &indexed{script: s, ix: ix}, text.String(), 1)
	must(t, res, err)
	if st := ix.Stats(); st.Orphans != 0 || st.Blocks == 0 {
		t.Errorf("the index of late events: %+v", st)
	}
}

type indexed struct {
	*script
	ix *kv.Index
}

func (x *indexed) Apply(side Side, i int, b *kv.Batch) { x.ix.Apply(kv.Holder(int(side)*2+i), b) }

const agents = `{"id":"a","block_size":64,"tool":0,"sys":0,"reqs":[` +
	`{"t":0,"in":70,"out":3,"p":-1,"keep":0,"new":[[1,1]],"think":0,"api":1},{"t":5,"in":140,"out":2,"p":0,` +
	`"keep":1,"new":[[2,1]],"think":4}]}`

func TestSessionsAreClosedLoops(t *testing.T) {
	res, err := play(t, config(1, 1), &script{}, agents, 1)
	r := must(t, res, err)
	a, b := r.Records[0], r.Records[1]
	if b.At != a.At+a.Total+4*time.Second {
		t.Errorf("the first ends at %v, the second comes at %v", a.At+a.Total, b.At)
	}
	if a.Cached != 0 || b.Cached != 64 {
		t.Errorf("cached %d and %d tokens, want 0 and 64", a.Cached, b.Cached)
	}
}

func TestWaitingForRoom(t *testing.T) {
	free := Time(1500 * time.Millisecond)
	s := &script{place: func(_ *Query, now time.Time) (int, int, bool) { return 0, 0, now.After(free) }}
	c := config(1, 1)
	c.QueueLimit = 2
	text := header + strings.Repeat(`{"t":0,"in":32,"out":3}`+"\n", 3)
	res, err := play(t, c, s, text, 1)
	r := must(t, res, err)
	refused, waited := 0, 0
	for _, x := range r.Records {
		if x.Refused {
			refused++
		} else if x.Waited > 1500*time.Millisecond && x.TTFT > x.Waited {
			waited++
		}
	}
	if refused != 1 || waited != 2 {
		t.Errorf("%d refused, %d waited: %+v", refused, waited, r.Records)
	}
	s.place = func(*Query, time.Time) (int, int, bool) { return 0, 0, false }
	c.QueueTime = 3 * time.Second
	res, err = play(t, c, s, text, 1)
	r = must(t, res, err)
	if len(r.Records) != 3 || !r.Records[2].Refused || r.End < 3*time.Second {
		t.Errorf("no request gets room, but the records are %+v", r.Records)
	}
}

// A request that the router refuses does not wait.
func TestRefusedAtOnce(t *testing.T) {
	calls := 0
	s := &script{place: func(*Query, time.Time) (p, d int, room bool) {
		calls++
		return 0, Refuse, false
	}}
	res, err := play(t, config(1, 1), s, header+strings.Repeat(`{"t":1,"in":32,"out":3}`+"\n", 2), 1)
	r := must(t, res, err)
	if len(r.Records) != 2 || !r.Records[0].Refused || !r.Records[1].Refused || calls != 2 ||
		r.End > 2*time.Second {
		t.Errorf("%+v after %d calls", r, calls)
	}
}

// The same seed gives the same run, exact to the nanosecond.
func TestRunsAreTheSameForASeed(t *testing.T) {
	var text strings.Builder
	text.WriteString(header)
	for i := range 200 {
		fmt.Fprintf(&text, `{"t":%g,"in":%d,"out":%d}`+"\n", float64(i)*0.05, 20+i*37%900, 5+i*13%90)
	}
	run := func(seed uint64) *Result {
		n := 0
		s := &script{wants: [2]bool{true, true}, place: func(*Query, time.Time) (int, int, bool) {
			n++
			return n % 3, 0, true
		}}
		res, err := play(t, config(3, 1), s, text.String(), seed)
		return must(t, res, err)
	}
	if a, b := run(1), run(1); !reflect.DeepEqual(a, b) {
		t.Error("two runs of one seed differ")
	}
}

// The cluster finds work that it did not start: through the answer, or because the work is still in an
// engine at the end.
func TestForeignWorkIsFound(t *testing.T) {
	source, err := trace.Open(strings.NewReader(header+`{"t":0,"in":32,"out":3}`+"\n"+`{"t":9,"in":32,"out":3}`),
		"sample", trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var c *Cluster
	foreign := func(at time.Duration) {
		if at != 3*time.Second {
			return
		}
		if err := c.engines.of[Prefill][0].core.Add(at,
			&core.Request{ID: "7", Prompt: make([]uint32, 40), MaxTokens: 9}); err != nil {
			t.Error(err)
		}
	}
	cfg := config(1, 1)
	cfg.Started = foreign
	if c, err = New(cfg, &script{}, source, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run(t.Context()); err == nil ||
		!strings.Contains(err.Error(), `p0 answers "7", which is no request in progress`) {
		t.Errorf("an answer that no request asked for: %v", err)
	}
	if c, err = New(config(1, 1), &script{}, source, 1); err != nil {
		t.Fatal(err)
	}
	foreign(3 * time.Second)
	if _, err := c.finish(); err == nil || !strings.Contains(err.Error(), "p0 is not empty at the end") {
		t.Errorf("a request is left: %v", err)
	}
}

func TestHeapKeepsOrder(t *testing.T) {
	var q queue
	for i := range 500 {
		q.add(event{at: time.Duration(i * 7919 % 101)})
	}
	last := event{at: -1}
	for len(q.heap) > 0 {
		ev := q.pop()
		if ev.before(&last) {
			t.Fatalf("%v/%d comes after %v/%d", ev.at, ev.seq, last.at, last.seq)
		}
		last = ev
	}
}
