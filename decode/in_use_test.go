package decode

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
)

// shares books a local prompt of this number of blocks. All prompts share all blocks but the last. It returns
// nil without room.
func shares(t *testing.T, p *Pool, blocks, n int, ready, now time.Duration) *Lease {
	t.Helper()
	at := start.Add(now)
	keys := make([]kv.Key, blocks)
	for i := range keys {
		keys[i] = kv.Key(i + 1)
	}
	keys[blocks-1] = kv.Key(1000 + n)
	q := &Query{Model: "m", Tokens: blocks * 16, MaxTokens: 16, Keys: keys, Ready: ready}
	if n > 0 { // the index has the blocks of the first prompt
		q.Depth = []int32{int32(blocks - 1)}
	}
	c, _, _ := p.Candidates(q, at, nil, nil)
	if len(c) == 0 {
		return nil
	}
	l := p.Book(&c[0], q, Schedule{Local: true, AdmitAt: at}, at)
	if l == nil {
		t.Fatal("the candidate could not be booked")
	}
	l.MarkSent(at)
	l.FirstToken(at)
	return l
}

// Forty requests with a common prefix find room on a replica that would hold ten of the same size without
// it. A request that is prefilled elsewhere first finds none.
func TestAPrefixInUseIsBookedOnce(t *testing.T) {
	for _, c := range []struct {
		name  string
		ready time.Duration
		want  int
	}{
		{"computed there", 0, 40},
		{"computed elsewhere", time.Millisecond, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := New(Options{})
			slow := estimate.Speed{A: 1e-4, D0: 100} // no answer ends meanwhile
			p.Configure(Settings{LoadTTL: usualTTL, ExpectedOutput: 16, Speed: slow})
			p.SetMembers([]replica.Replica{engine("d1", 1050)}, start)
			now := time.Duration(0)
			used, n := 100, 0
			for range 40 {
				now += time.Second
				p.Observe("d1", load(start.Add(now), n, float64(used)/1050), start.Add(now))
				if shares(t, p, 100, n, c.ready, now) == nil {
					break
				}
				n, used = n+1, used+3
				if c.ready > 0 { // the engine does as if it shared nothing
					used += 97
				}
			}
			if n < c.want-1 || n > c.want {
				t.Errorf("%d found room, want %d", n, c.want)
			}
		})
	}
}
