package decode

import (
	"fmt"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
)

// crowd is one member with many requests.
type crowd struct {
	*Pool
	b      *testing.B
	leases []*Lease
	now    time.Time
}

// Stages of a request of the crowd.
const (
	waitingForPrefill = iota // on another replica
	onItsWay                 // its blocks are arriving
	waitingToCompute         // its prompt is computed here, in pieces
	answering                // its answer is generated
)

// crowded returns a crowd with n requests at the given stage.
func crowded(b *testing.B, n, place int) *crowd {
	c := &crowd{Pool: New(Options{}), b: b, now: start}
	c.Configure(Settings{
		LoadTTL: time.Hour, ExpectedOutput: 160, Piece: 100 * time.Millisecond,
		Speed: estimate.Speed{A: 1e-4, D0: 10e-3},
	})
	r := engine("d1", 100_000_000)
	r.Facts.PrefixCaching = true
	c.SetMembers([]replica.Replica{r}, start)
	c.report()
	for i := range n {
		c.leases = append(c.leases, c.come(i, place))
	}
	c.now = c.now.Add(time.Second)
	c.report()
	c.now = c.now.Add(time.Second)
	return c
}

// keysOf returns the keys of a prompt of 1,600 tokens. One prompt in ten shares its beginning with others.
func keysOf(i int) []kv.Key {
	keys := make([]kv.Key, 100)
	for at := range keys {
		keys[at] = kv.Key(uint64(i%10)<<32 | uint64(at))
		if at >= 50 {
			keys[at] = kv.Key(uint64(i+1)<<40 | uint64(at))
		}
	}
	return keys
}

func (c *crowd) question(i, place int) *Query {
	return &Query{
		Model: "m", Tokens: 1600 + i%100, MaxTokens: 160, Keys: keysOf(i), Pieces: place == waitingToCompute,
	}
}

// come books request i.
func (c *crowd) come(i, place int) *Lease {
	q := c.question(i, place)
	found, _, _ := c.Candidates(q, c.now, nil, nil)
	lands := c.now.Add(time.Millisecond)
	s := Schedule{AdmitAt: c.now, SendAt: c.now, LandAt: lands, Transfer: time.Millisecond}
	switch place {
	case waitingForPrefill:
		later := c.now.Add(time.Duration(i+1) * time.Minute)
		s.AdmitAt = later
		s.SendAt = later.Add(time.Second)
		s.LandAt = later.Add(2 * time.Second)
	case waitingToCompute:
		s.Local = true
	}
	l := c.Book(&found[0], q, s, c.now)
	if l == nil {
		c.b.Fatal("not booked")
	}
	switch place {
	case onItsWay:
		l.MarkSent(c.now)
	case waitingToCompute:
		l.Next(c.now, func() {})
	case answering:
		l.MarkSent(c.now)
		l.FirstToken(c.now)
	}
	return l
}

// report applies the load report of an answer.
func (c *crowd) report() {
	c.Observe("d1", replica.Load{At: c.now, Source: replica.ORCA, Running: -1, Loading: -1, Usage: 0.001}, c.now)
}

// The cost of one request or one answer beside many other requests.
func BenchmarkCrowd(b *testing.B) {
	for _, does := range []struct {
		name  string
		place int
		do    func(c *crowd, i int)
	}{
		{"plan beside prefills elsewhere", waitingForPrefill, (*crowd).plan},
		{"plan beside blocks on their way", onItsWay, (*crowd).plan},
		{"plan beside prompts in pieces", waitingToCompute, (*crowd).planPieces},
		{"plan beside answers", answering, (*crowd).plan},
		{"come and go beside prefills elsewhere", waitingForPrefill, (*crowd).comeAndGoSplit},
		{"come and go beside prompts in pieces", waitingToCompute, (*crowd).comeAndGoLocal},
		{"come and go beside answers", answering, (*crowd).comeAndGo},
		{"blocks ahead", onItsWay, func(c *crowd, i int) { c.leases[i%len(c.leases)].Ahead(c.now) }},
		{"exact", onItsWay, func(c *crowd, i int) { c.leases[i%len(c.leases)].others() }},
		{"report of an answer", answering, func(c *crowd, _ int) {
			c.now = c.now.Add(time.Millisecond)
			c.report()
		}},
		{"report that is asked for", answering, func(c *crowd, _ int) {
			c.now = c.now.Add(time.Millisecond)
			c.Observe("d1", replica.Load{
				At: c.now, Source: replica.Metrics, Running: len(c.leases), Loading: -1, Usage: 0.001,
			}, c.now)
		}},
		{"what is told to others", waitingToCompute, func(c *crowd, _ int) {
			c.PeerLoads(c.now)
		}},
	} {
		for _, n := range []int{10, 100, 1000, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", does.name, n), func(b *testing.B) {
				c := crowded(b, n, does.place)
				b.ResetTimer()
				for i := 0; b.Loop(); i++ {
					does.do(c, i)
				}
			})
		}
	}
}

func (c *crowd) plan(int) { c.Candidates(c.question(1<<20, onItsWay), c.now, nil, nil) }
func (c *crowd) planPieces(int) {
	c.Candidates(c.question(1<<20, waitingToCompute), c.now, nil, nil)
}

func (c *crowd) comeAndGo(i int) {
	l := c.come(len(c.leases)+i, onItsWay)
	l.FirstToken(c.now)
	c.leases[i%len(c.leases)].Finish(100, time.Second, c.now)
	c.leases[i%len(c.leases)] = l
}

func (c *crowd) comeAndGoSplit(i int) {
	l := c.come(i%len(c.leases), waitingForPrefill)
	c.leases[i%len(c.leases)].Release(c.now)
	c.leases[i%len(c.leases)] = l
}

func (c *crowd) comeAndGoLocal(i int) {
	l := c.come(len(c.leases)+i, waitingToCompute)
	c.leases[i%len(c.leases)].Release(c.now)
	c.leases[i%len(c.leases)] = l
}
