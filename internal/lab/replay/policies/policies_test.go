package policies

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/lab/trace"
)

func query(tokens int) *Query {
	return &Query{Tokens: tokens, Rand: rand.New(rand.NewPCG(1, 2))}
}

func TestFormulas(t *testing.T) {
	for _, tt := range []struct {
		name   string
		picker Picker
		ps, ds []Replica
		p, d   int
	}{
		{
			"least requests",
			leastRequests{},
			[]Replica{{Requests: 3}, {Requests: 2}},
			[]Replica{{Requests: 1}, {Requests: 2}},
			1, 0,
		},
		{
			"least tokens: queued and own uncached",
			leastTokens{},
			[]Replica{{Tokens: 500, Matched: 900}, {Tokens: 0}},
			[]Replica{{Prompts: 2}, {Prompts: 1}},
			0, 1,
		},
		// (500+100)*3 = 1800 against (0+1000)*2 = 2000; (10+1000)*1 against (0+1000)*2.
		{
			"lmetric multiplies",
			lmetric{},
			[]Replica{{Tokens: 500, Matched: 900, Requests: 2}, {Requests: 1}},
			[]Replica{{Prompts: 10}, {Requests: 1}},
			0, 0,
		},
		{
			"lmetric leaves the busy",
			lmetric{},
			[]Replica{{Tokens: 500, Matched: 900, Requests: 3}, {Requests: 1}},
			[]Replica{{Requests: 1}, {Prompts: 10}},
			1, 1,
		},
		// 2*0.6+0 = 1.2 against 0+1 = 1; then 2*0.4+0 = 0.8 against 1.
		{
			"llm-d follows a long match", defaultLLMD(),
			[]Replica{{Matched: 600, Waiting: 9}, {}},
			[]Replica{{Waiting: 1}, {}},
			0, 1,
		},
		{
			"llm-d leaves a short match", defaultLLMD(),
			[]Replica{{Matched: 400, Waiting: 9}, {}},
			[]Replica{{Waiting: 1}, {}},
			1, 1,
		},
		{"llm-d skips prefill", defaultLLMD(), []Replica{{}, {}}, []Replica{{}, {Matched: 990}}, -1, 1},
		{
			"kv-aware adds, and counts on the other side", &kvAware{},
			[]Replica{{Tokens: 800, Matched: 900}, {}},
			[]Replica{{Requests: 2, Prompts: 1}, {Requests: 1, Prompts: 99}},
			0, 1,
		},
		{
			"smg follows the overlap", defaultSMGCacheAware(),
			[]Replica{{Matched: 16, Requests: 32}, {}},
			[]Replica{{Requests: 1}, {}},
			0, 1,
		},
		{
			"smg balances", defaultSMGCacheAware(),
			[]Replica{{Matched: 16, Requests: 33}, {}},
			[]Replica{{Requests: 1}, {}},
			1, 1,
		},
		{
			"smg without overlap", defaultSMGCacheAware(),
			[]Replica{{Requests: 3}, {Requests: 2}},
			[]Replica{{}, {Requests: 1}},
			1, 0,
		},
		// 400/2000 = 0.2 s against 0.15*0.5/0.5 = 0.15 s.
		{
			"dynamo gives credit", withCredit(1.5),
			[]Replica{{Matched: 400, Tokens: 590}, {}},
			[]Replica{{Prompts: 1}, {}},
			0, 1,
		},
		{
			"dynamo charges the queue", defaultDynamo(),
			[]Replica{{Matched: 400, Tokens: 410}, {}},
			[]Replica{{Prompts: 1}, {}},
			1, 1,
		},
		{"dynamo prefills locally", defaultDynamo(), []Replica{{}}, []Replica{{Matched: 320}}, -1, 0},
		{"dynamo splits what is new", defaultDynamo(), []Replica{{}}, []Replica{{Matched: 288}}, 0, 0},
		// 0.1*(100-40) + 1 = 7 against 10 + 0.
	} {
		if p, d := tt.picker.Pick(query(1000), tt.ps, tt.ds); p != tt.p || d != tt.d {
			t.Errorf("%s: picks %d and %d, want %d and %d", tt.name, p, d, tt.p, tt.d)
		}
	}
}

func withCredit(credit float64) *dynamo {
	d := defaultDynamo()
	d.credit = credit
	return d
}

func TestRoundRobinAndSticky(t *testing.T) {
	r := &roundRobin{}
	ps, ds := make([]Replica, 3), make([]Replica, 2)
	for i := range 7 {
		if p, d := r.Pick(query(1), ps, ds); p != i%3 || d != i%2 {
			t.Errorf("pick %d is %d and %d", i, p, d)
		}
	}
	counts := make([]int, 3)
	for i := range 3000 {
		q := query(1)
		q.Session = uint64(i + 1)
		p, d := defaultSticky().Pick(q, ps, ds)
		if again, e := defaultSticky().Pick(q, ps, ds); again != p || e != d {
			t.Fatal("a session changed its replica")
		}
		counts[p]++
	}
	for i, n := range counts {
		if n < 900 || n > 1100 {
			t.Errorf("replica %d gets %d sessions of 3000", i, n)
		}
	}
}

func TestBoundedLoads(t *testing.T) {
	q := query(1000)
	q.Keys, q.Block = make([]kv.Key, 62), 16
	q.Keys[15] = 77
	first, _ := newPrefixHash().Pick(q, make([]Replica, 4), make([]Replica, 1))
	rs := make([]Replica, 4)
	rs[first].Requests = 1 // one request; (1+1)*1.25/4 = 0.6 is the bound
	if second, _ := newPrefixHash().Pick(q, rs, make([]Replica, 1)); second == first {
		t.Error("a replica above the bound was chosen")
	}
	for i := range rs {
		rs[i].Requests = 10
	}
	if again, _ := newPrefixHash().Pick(q, rs, make([]Replica, 1)); again != first {
		t.Error("evenly loaded replicas do not get their keys")
	}
}

// played runs the text of a trace under a router and returns the result. A failure names the router.
func played(t *testing.T, name string, c cluster.Config, r cluster.Router, text string) *cluster.Result {
	t.Helper()
	source, err := trace.Open(strings.NewReader(text), "sample", trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cl, err := cluster.New(c, r, source, 1)
	if err != nil {
		t.Fatal(err)
	}
	res, err := cl.Run(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return res
}

// conversations is a trace at steady times. Each turn extends the turn before it, and all users share the
// first blocks.
func conversations(n int) string {
	var text strings.Builder
	text.WriteString(`{"tandem_trace":1,"block_size":64}` + "\n")
	for i := range n {
		user, turn := i%20, i/20
		var blocks strings.Builder
		blocks.WriteString("1,2")
		for b := range 4 * (turn + 1) {
			blocks.WriteString(fmt.Sprintf(",%d", 1000*(user+1)+b))
		}
		fmt.Fprintf(&text, `{"t":%g,"in":%d,"out":%d,"blocks":[%s]}`+"\n", float64(i)*0.1, 64*(2+4*(turn+1)),
			20+i%50, blocks.String())
	}
	return text.String()
}

func fleet() cluster.Config {
	preset, _ := core.FindPreset("8b")
	node := cluster.Node{
		Engine: core.Config{Blocks: 20_000, Cost: preset.Cost, MaxModelLen: 40_000, BlockSize: 16},
	}
	c := cluster.Config{TokenBytes: preset.TokenBytes, EventLag: 100 * time.Millisecond}
	c.Nodes[cluster.Prefill] = []cluster.Node{node, node, node}
	c.Nodes[cluster.Decode] = []cluster.Node{node, node}
	for i := range c.Links {
		c.Links[i] = 40e9
	}
	return c
}

// Every policy serves every request, and the cluster's final checks pass. Policies that look for prefixes
// hit more blocks than a random choice.
func TestEveryPolicyServesAll(t *testing.T) {
	const requests = 240
	hits := map[string]float64{}
	for _, name := range Names() {
		r, err := New(name, fleet(), 1)
		if err != nil {
			t.Fatal(err)
		}
		source, err := trace.Open(strings.NewReader(conversations(requests)), "sample", trace.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := cluster.New(fleet(), r, source, 1)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Run(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		cached, prompt := 0, 0
		for _, x := range res.Records {
			cached, prompt = cached+x.Cached, prompt+x.Prompt
			if x.Refused || x.TTFT <= 0 || x.Total < x.TTFT {
				t.Fatalf("%s: %+v", name, x)
			}
		}
		if len(res.Records) != requests {
			t.Errorf("%s: %d of %d requests", name, len(res.Records), requests)
		}
		hits[name] = float64(cached) / float64(prompt)
		if f, ok := r.(*Field); ok {
			checkEmpty(t, name, f)
		}
		if x, ok := r.(*Tandem); ok {
			if x.Stats.Split+x.Stats.Local != requests || name == "tandem-split" && x.Stats.Local > 0 {
				t.Errorf("%s: %+v", name, x.Stats)
			}
			for _, s := range x.decode.Status(cluster.Time(res.End)) {
				if s.Leases != 0 || s.Promised != 0 || s.Growth != 0 {
					t.Errorf("%s: a decode replica at the end: %+v", name, s)
				}
			}
			for _, s := range x.prefill.Status(cluster.Time(res.End)) {
				if s.Requests != 0 || s.Tokens != 0 {
					t.Errorf("%s: a prefill replica has %d requests at the end", name, s.Requests)
				}
			}
		}
	}
	for _, name := range []string{"tandem", "tandem-split", "lmetric", "llm-d", "kv-aware", "session-sticky"} {
		if hits[name] < hits["random"]+0.05 {
			t.Errorf("%s hits %.2f, random %.2f", name, hits[name], hits["random"])
		}
	}
}

// checkEmpty checks that a field router counts no work when all requests have ended.
func checkEmpty(t *testing.T, name string, f *Field) {
	t.Helper()
	for side := range f.sides {
		for i, r := range f.sides[side] {
			if r.Requests != 0 || r.Tokens != 0 || r.Prompts != 0 || r.Work != 0 {
				t.Errorf("%s: %s at the end: %+v", name, cluster.ID(cluster.Side(side), i), r)
			}
		}
	}
}

// Without a prefill pool every policy makes its prefill choice among the decode replicas, and knows what
// is cached and queued on them.
func TestWithoutPrefillPool(t *testing.T) {
	c := fleet()
	c.Nodes[cluster.Prefill], c.Nodes[cluster.Decode] = nil, append(c.Nodes[cluster.Prefill],
		c.Nodes[cluster.Decode]...)
	hits := map[string]float64{}
	for _, name := range Names() {
		r, err := New(name, c, 1)
		if err != nil {
			t.Fatal(err)
		}
		res := played(t, name, c, r, conversations(120))
		cached, prompt := 0, 0
		for _, x := range res.Records {
			cached, prompt = cached+x.Cached, prompt+x.Prompt
			if x.Prefill != -1 || x.Refused {
				t.Fatalf("%s: %+v", name, x)
			}
		}
		hits[name] = float64(cached) / float64(prompt)
		if f, ok := r.(*Field); ok {
			checkEmpty(t, name, f)
		}
	}
	if hits["kv-aware"] < hits["random"]+0.05 || hits["lmetric"] < hits["random"]+0.05 {
		t.Errorf("hits %v", hits)
	}
}

// A policy that uses a profile gets the profile of each replica.
func TestProfileOfASlowReplica(t *testing.T) {
	c := fleet()
	c.Nodes[cluster.Prefill][1].Engine.Cost.Speed = 0.5
	f := newField(entry{}, leastTokens{}, c, 1)
	quick := f.sides[cluster.Prefill][0].Speed.Prefill(1000, 0)
	slow := f.sides[cluster.Prefill][1].Speed.Prefill(1000, 0)
	if slow < 1.999*quick || slow > 2.001*quick {
		t.Errorf("a replica of half the speed takes %v s, others %v", slow, quick)
	}
}

func TestUnknownPolicy(t *testing.T) {
	if _, err := New("best", fleet(), 1); err == nil || !strings.Contains(err.Error(), "round-robin") {
		t.Errorf("error %v does not list the known policies", err)
	}
}
