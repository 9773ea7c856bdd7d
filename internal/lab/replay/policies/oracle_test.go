package policies

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/lab/trace"
)

// prophet records what an oracle expects.
type prophet struct {
	*Oracle
	said map[int]float64 // expected time to first token in s, by prompt tokens
}

func (p *prophet) Place(q *cluster.Query, now time.Time) (i, j int, room bool) {
	i, j, room = p.Oracle.Place(q, now)
	p.said[q.Tokens] = p.alone(j, now)
	if i >= 0 {
		p.said[q.Tokens] = p.split(i, j, now)
	}
	return i, j, room
}

// even is a fleet whose engines take 1 ms for a prompt token and 10 ms for a decode step. A token has
// 1,000 bytes, and a link carries 1 GB/s.
func even(p, d int) cluster.Config {
	node := cluster.Node{Engine: core.Config{Blocks: 4000, BlockSize: 16, Cost: core.Cost{A: 1e-3, D0: 0.010}}}
	c := cluster.Config{TokenBytes: 1000, Hop: time.Microsecond}
	for side, n := range []int{p, d} {
		for range n {
			c.Nodes[side] = append(c.Nodes[side], node)
		}
	}
	for i := range c.Links {
		c.Links[i] = 1e9
	}
	return c
}

func playOracle(t *testing.T, c cluster.Config, o *Oracle, text string) (map[int]cluster.Record, *prophet) {
	t.Helper()
	p := &prophet{Oracle: o, said: map[int]float64{}}
	r := played(t, "oracle", c, p, text)
	by := map[int]cluster.Record{}
	for _, x := range r.Records {
		by[x.Prompt] = x
	}
	return by, p
}

// The first lines of traces with and without block identities.
const (
	named    = `{"tandem_trace":1,"block_size":16}` + "\n"
	nameless = `{"tandem_trace":1}` + "\n"
)

// blocksFrom returns n block identities as JSON.
func blocksFrom(first, n int) string {
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprint(first+i))
	}
	return strings.Join(ids, ",")
}

// The first prompt of 1,600 tokens takes 1.6 s. Half a second later two more requests arrive. One begins
// with the first prompt: waiting 1.1 s and computing 0.16 s is better than computing 1.76 s. The other
// shares only 16 tokens and goes elsewhere. At that time no event and no report has arrived.
func TestOracleSeesWhatIsComputedNow(t *testing.T) {
	o := NewGreedyOracle(even(2, 1), 1)
	by, said := playOracle(t, even(2, 1), o, fmt.Sprintf(named+`{"t":0,"in":1600,"out":400,"blocks":[%s]}
{"t":0.5,"in":1760,"out":4,"blocks":[%s]}
{"t":0.6,"in":1280,"out":4,"blocks":[1,%s]}
`, blocksFrom(1, 100), blocksFrom(1, 110), blocksFrom(500, 79)))
	first := by[1600]
	if first.Prefill >= 0 {
		t.Fatalf("the first went to prefill replica %d, want decode only, without a transfer", first.Prefill)
	}
	if x := by[1760]; x.Prefill != -1 || x.Cached != 1600 {
		t.Errorf("the second: %+v, want it on the replica of the first", x)
	}
	if x := by[1280]; x.Prefill < 0 || x.Cached != 0 {
		t.Errorf("the third: %+v, want it on another replica", x)
	}
	for tokens, x := range by {
		if math.Abs(said.said[tokens]-x.TTFT.Seconds()) > 0.015 {
			t.Errorf("%d tokens: expected %.3f s, took %v", tokens, said.said[tokens], x.TTFT)
		}
	}
}

// The greedy oracle's expectation is exact when no later request fits into a step: here all steps are
// full.
func TestOracleExpectsWhatHappens(t *testing.T) {
	var text strings.Builder
	text.WriteString(nameless)
	for i, in := range []int{2000, 12_000, 1000, 5_000, 3000, 4000} {
		fmt.Fprintf(&text, `{"t":%g,"in":%d,"out":1}`+"\n", 0.001*float64(i), in)
	}
	c := even(2, 1)
	for side := range c.Nodes {
		for i := range c.Nodes[side] {
			c.Nodes[side][i].Engine.MaxBatchedTokens = 1000
		}
	}
	c.Nodes[cluster.Decode][0].Engine.Cost.A = 1 // makes the decode replica a bad place for a prompt
	by, said := playOracle(t, c, NewGreedyOracle(c, 1), text.String())
	if len(by) != 6 {
		t.Fatalf("%d requests", len(by))
	}
	for tokens, x := range by {
		if x.Prefill < 0 {
			t.Errorf("%d tokens are prefilled where they are decoded", tokens)
		}
		if want := x.TTFT.Seconds(); math.Abs(said.said[tokens]-want) > 0.02 {
			t.Errorf("%d tokens at %d and %d: expected %.3f s, took %.3f",
				tokens, x.Prefill, x.Decode, said.said[tokens], want)
		}
	}
}

// Decode replica 0 is full for 2 s. Only an oracle knows in advance when that ends.
func TestOracleKnowsWhenRoomComes(t *testing.T) {
	c := even(0, 1)
	c.Nodes[cluster.Decode][0].Engine.Blocks = 101 // 1,600 tokens
	o := NewGreedyOracle(c, 1)
	by, said := playOracle(t, c, o, nameless+`{"t":0,"in":1000,"out":201}
{"t":1.5,"in":900,"out":1}
`)
	// The first request is done at 3 s: 1 s and 200 steps of 10 ms. Then the second computes for 0.9 s.
	if x := by[900]; math.Abs(x.TTFT.Seconds()-2.4) > 0.05 || math.Abs(said.said[900]-2.4) > 0.05 {
		t.Errorf("took %v, expected %.2f s, want 2.4", x.TTFT, said.said[900])
	}
}

// With weights the oracle avoids a busy decode replica that a greedy oracle uses: 0.25 x 40 sequences x
// 0.5 s against 0.5 s of transfer and setup.
func TestOracleWithWeights(t *testing.T) {
	c := even(1, 1)
	for i := range c.Links {
		c.Links[i] = 1e6
	}
	var text strings.Builder
	text.WriteString(nameless)
	for i := range 40 {
		fmt.Fprintf(&text, `{"t":0,"in":%d,"out":900}`+"\n", 16+i)
	}
	text.WriteString(`{"t":6,"in":500,"out":2}`)
	greedy, _ := playOracle(t, c, NewGreedyOracle(c, 1), text.String())
	o, err := New("oracle-terms", c, 1)
	if err != nil {
		t.Fatal(err)
	}
	social, _ := playOracle(t, c, o.(*Oracle), text.String())
	if greedy[500].Prefill != -1 || social[500].Prefill != 0 {
		t.Errorf("greedy goes to %d, with weights to %d; want -1 and 0", greedy[500].Prefill, social[500].Prefill)
	}
}

// Two oracles see each other's requests before any of them runs: eight prompts that arrive at once go to
// eight replicas.
func TestOraclesSeeEachOthersRequests(t *testing.T) {
	c := even(8, 1)
	c.Hop = time.Second
	c.Nodes[cluster.Decode][0].Engine.Cost.A = 1 // makes the decode replica a bad place for a prompt
	var text strings.Builder
	text.WriteString(nameless)
	for i := range 8 {
		fmt.Fprintf(&text, `{"t":%g,"in":2000,"out":1}`+"\n", 0.01*float64(i))
	}
	source, err := trace.Open(strings.NewReader(text.String()), "sample", trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cl, err := cluster.NewSeveral(c, []cluster.Router{NewGreedyOracle(c, 1), NewGreedyOracle(c, 2)}, source, 1)
	if err != nil {
		t.Fatal(err)
	}
	r, err := cl.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	used := map[int]int{}
	for _, x := range r.Records {
		used[x.Prefill]++
	}
	if len(used) != 8 {
		t.Errorf("prompts went to %v, want one to each of eight", used)
	}
}
