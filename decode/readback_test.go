package decode

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// A decode replica that prefills reads blocks back, too: this has a price, which prompts teach. Without lower
// memories there is none.
func TestReadingBackIsLearnedFromLocalPrefills(t *testing.T) {
	for name, tt := range map[string]struct {
		cached int     // by the engine
		unseen bool    // the first token
		want   float64 // seconds of reading
	}{
		"streamed":            {cached: 11_200, want: 2},
		"fewer were there":    {cached: 8_000},
		"no count of cached":  {cached: -1},
		"the first is unseen": {cached: 11_200, unseen: true},
	} {
		t.Run(name, func(t *testing.T) {
			p, now := pool(0), start
			ask := func(below kv.Below) (*Query, *Candidate) {
				q := &Query{Model: "m", Tokens: 12_000, MaxTokens: 16, Depth: make([]int32, p.Holders()), Local: true}
				q.Below = make([]kv.Below, len(q.Depth))
				for i := range q.Depth {
					q.Depth[i], q.Below[i] = 700, below
				}
				cs, _, _ := p.Candidates(q, now, nil, nil)
				return q, &cs[0]
			}
			if _, c := ask(kv.Below{}); c.Local.Read != 0 {
				t.Errorf("%v s to read nothing back", c.Local.Read)
			}
			_, first := ask(kv.Below{CPU: 500})
			if first.Local.Read <= 0 {
				t.Error("reading takes no time before the first prompt")
			}
			for range 5 {
				q, c := ask(kv.Below{CPU: 500})
				schedule := Schedule{Local: true, AdmitAt: now}
				if tt.unseen {
					schedule.UnseenArrival = time.Second
				}
				l := p.Book(c, q, schedule, now)
				l.MarkSent(now)
				now = now.Add(seconds(c.Local.Took() + 2))
				l.FirstToken(now)
				l.Delivered(tt.cached, now)
				l.Release(now)
				now = now.Add(time.Second)
			}
			want := first.Local.Read
			if tt.want > 0 {
				want = tt.want
			}
			_, c := ask(kv.Below{CPU: 500})
			if got := c.Local.Read; got < 0.85*want || got > 1.1*want {
				t.Errorf("%.3f s to read back, want %.3f", got, want)
			}
			if got := c.Local.Ready() - c.Local.Took(); tt.want > 0 && got < 0.85*want {
				t.Errorf("the prompt is computed after %.3f s more than it takes, want %.3f", got, want)
			}
			if got := c.Local.Warm; tt.want > 0 && got > 1.5*first.Local.Warm {
				t.Errorf("computing takes %.3f s, %.3f s before: the reading counts as computing", got, first.Local.Warm)
			}
		})
	}
}
