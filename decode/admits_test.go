package decode

import (
	"testing"
	"time"
)

// prompt asks for so many blocks.
func prompt(blocks int, ready time.Duration) *Query {
	return &Query{Model: "m", Tokens: blocks * 16, MaxTokens: 160, Ready: ready}
}

// Whoever waits for prefill has to find room when it begins, by what is free and what comes free until then.
func TestWhoWaitsForPrefillKeepsOthersOut(t *testing.T) {
	for _, tt := range []struct {
		name  string
		admit time.Duration // when the lease of 500 blocks is admitted
		query *Query
		taken bool
	}{
		{"room for both", 100 * time.Millisecond, prompt(200, 0), true},
		{"no room for both, and nothing comes free by then", 100 * time.Millisecond, prompt(400, 0), false},
		{"others will have ended when the first begins", 5 * time.Second, prompt(400, 0), true},
		{"others will have ended when its own blocks come", 100 * time.Millisecond, prompt(400, time.Minute), true},
		{"never for all three", time.Minute, prompt(495, 0), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := pool(0.2) // 800 free
			first := book(t, p, 500, start.Add(tt.admit), start)
			c, _, o := p.Candidates(tt.query, start, nil, nil)
			if (len(c) == 1) != tt.taken {
				t.Fatalf("%d candidates, rejected %+v, want it to be one: %v", len(c), o, tt.taken)
			}
			if !tt.taken && (o.Full != 1 || o.Retry <= 0) {
				t.Errorf("rejected %+v, want a full replica and a hint", o)
			}
			if !tt.taken {
				return
			}
			second := p.Book(&c[0], tt.query, Schedule{AdmitAt: start}, start)
			if second == nil {
				t.Error("what was offered cannot be booked")
			}
			second.Release(start)
			first.Release(start)
			if c, _, _ := p.Candidates(prompt(400, 0), start, nil, nil); len(c) != 1 || c[0].Decode.Room != 0 {
				t.Errorf("released: %+v, want a candidate without a wait", c)
			}
		})
	}
}

// Half of what should come free until a prompt's blocks are there is counted on, but not by who would prefill
// here and now.
func TestRoomIsNeededWhenTheBlocksCome(t *testing.T) {
	p := pool(0.8) // 200 free
	if c, _, _ := p.Candidates(prompt(300, 0), start, nil, nil); len(c) != 0 {
		t.Fatalf("%d candidates without room", len(c))
	}
	q := prompt(300, time.Minute)
	c, _, _ := p.Candidates(q, start, nil, nil)
	if len(c) != 1 || !c[0].Crowded {
		t.Fatalf("%+v, want a crowded candidate", c)
	}
	if p.Book(&c[0], q, Schedule{AdmitAt: start, Local: true}, start) != nil {
		t.Error("it was booked to prefill where there is no room now")
	}
	l := p.Book(&c[0], q, Schedule{AdmitAt: start}, start)
	if l == nil {
		t.Fatal("it was not booked")
	}
	if c, _, _ := p.Candidates(prompt(600, time.Minute), start, nil, nil); len(c) != 0 {
		t.Error("more is promised than half of what may come free")
	}
	l.Release(start)
	if c, _, _ := p.Candidates(prompt(190-1, 0), start, nil, nil); len(c) != 1 || c[0].Crowded {
		t.Errorf("%+v, want a candidate with room", c)
	}
}
