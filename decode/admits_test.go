package decode

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
)

// prompt is a request whose prompt and answer need this number of blocks.
func prompt(blocks int, ready time.Duration) *Query {
	return &Query{Model: "m", Tokens: blocks * 16, MaxTokens: 160, Ready: ready}
}

// lasting is a pool whose answers take about two minutes.
func lasting(usage float64) *Pool {
	p := pool(usage)
	p.Configure(Settings{LoadTTL: usualTTL, ExpectedOutput: 16_000})
	return p
}

// A request in a prefill queue must find room when its prefill begins: free blocks, and blocks that come
// free until soon after.
func TestWhoWaitsForPrefillKeepsOthersOut(t *testing.T) {
	for _, tt := range []struct {
		name  string
		admit time.Duration // when the lease of 500 blocks is admitted
		query *Query
		taken bool
	}{
		{"room for both", time.Second, prompt(200, 0), true},
		{"no room for both, and nothing comes free by then", time.Second, prompt(400, 0), false},
		{"others will have ended when the first begins", 2 * time.Minute, prompt(400, 0), true},
		{"others will have ended when its own blocks come", time.Second, prompt(400, 2*time.Minute), true},
		{"never for all three", 2 * time.Minute, prompt(495, 0), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := lasting(0.2) // 800 free
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

// A booking counts on the blocks that should come free until soon after its own blocks arrive. For a local
// prefill that is now.
func TestRoomIsNeededWhenTheBlocksCome(t *testing.T) {
	p := lasting(0.8) // 200 free
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
		t.Error("more is promised than may come free")
	}
	l.Release(start)
	if c, _, _ := p.Candidates(prompt(190-1, 0), start, nil, nil); len(c) != 1 || c[0].Crowded {
		t.Errorf("%+v, want a candidate with room", c)
	}
}

// If answers are short, an ended answer soon gives its room to the next request. But an overbooked replica
// gives back no more room than its running requests hold.
func TestAShortWaitIsNoEndlessOne(t *testing.T) {
	p := pool(0.9) // an answer takes a second
	booked := 0
	for {
		q := prompt(290, 0)
		c, _, _ := p.Candidates(q, start, nil, nil)
		if len(c) == 0 {
			break
		}
		if p.Book(&c[0], q, Schedule{AdmitAt: start}, start) == nil {
			t.Fatal("what was offered cannot be booked")
		}
		if booked += 300; booked > 100_000 {
			t.Fatal("there is no end to what is promised")
		}
	}
	m := p.members.All[0]
	wait := func(blocks int) time.Duration {
		a := p.rooms.headroomNow(m, p.members.All, start)
		return p.rooms.in(m, &a, blocks-a.Left())
	}
	if last, next := wait(0), wait(300); last > ledger.ShortWait || next <= ledger.ShortWait {
		t.Errorf("%d blocks are promised: the last waits %v, the next would %v, want %v between",
			booked, last, next, ledger.ShortWait)
	}
}

// The time between two similar requests that find room on a full replica depends on the blocks that come
// free and on the request's share of these blocks. Blocks that are promised already do not count.
func TestHowOftenAFullReplicaHasRoom(t *testing.T) {
	p := pool(0.9)
	every := func(blocks int) time.Duration {
		var out []Excluded
		if c, _, _ := p.Candidates(prompt(blocks, 0), start, nil, &out); len(c) != 0 || len(out) != 1 {
			t.Fatalf("%d candidates, excluded %v, want the replica to be full", len(c), out)
		}
		return out[0].Every
	}
	book := func() bool {
		q := prompt(290, 0)
		c, _, _ := p.Candidates(q, start, nil, nil)
		return len(c) > 0 && p.Book(&c[0], q, Schedule{AdmitAt: start}, start) != nil
	}
	for book() {
	}
	whole, part := every(790), every(390)
	if whole <= 0 || whole > 2*time.Second {
		t.Errorf("every %v there is room for most of a replica whose answers take a second", whole)
	}
	if r := whole.Seconds() / part.Seconds(); r < 1.9 || r > 2.1 {
		t.Errorf("every %v for 790 blocks and %v for 390, want twice as long", whole, part)
	}
}
