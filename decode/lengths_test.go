package decode

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// answered lets n answers to requests like q have so many tokens.
func (p *Pool) answered(t *testing.T, q Query, n, tokens int) {
	t.Helper()
	for range n {
		c, _, _ := p.Candidates(&q, start, nil, nil)
		if len(c) == 0 {
			t.Fatal("no room")
		}
		l := p.Book(&c[0], &q, Schedule{AdmitAt: start}, start)
		l.MarkSent(start)
		l.Finish(tokens, time.Duration(tokens)*10*time.Millisecond, start)
	}
}

// expected returns how many tokens the answer to q is expected to have.
func (p *Pool) expected(t *testing.T, q Query) int {
	t.Helper()
	c, _, _ := p.Candidates(&q, start, nil, nil)
	if len(c) == 0 {
		t.Fatal("no room")
	}
	return int(c[0].Output)
}

// Requests with tools, with a form, with a long prompt or of another tenant get answers of other lengths
// than the model's other requests. An unknown class begins with the closest known one.
func TestLengthsAreLearnedByClass(t *testing.T) {
	chat := Query{Model: "m", Tokens: 200, Class: estimate.Class{Tenant: 7}}
	others := map[string]func(*Query){
		"tools":           func(q *Query) { q.Class.Tools = true },
		"a form":          func(q *Query) { q.Class.Structured = true },
		"its own stops":   func(q *Query) { q.Class.Stops = true },
		"another API":     func(q *Query) { q.Class.API = 3 },
		"a longer prompt": func(q *Query) { q.Tokens = 2000 },
		"a long prompt":   func(q *Query) { q.Tokens = 10_000 },
		"another tenant":  func(q *Query) { q.Class.Tenant = 8 },
		"another model":   func(q *Query) { q.Model = "adapter" },
	}
	for name, change := range others {
		t.Run(name, func(t *testing.T) {
			p := pool(0)
			e := engine("d1", 10_000)
			e.Facts.Models = append(e.Facts.Models, "adapter")
			p.SetMembers([]replica.Replica{e}, start)
			p.Observe("d1", load(start, 0, 0), start)
			p.answered(t, chat, 100, 600)
			other := chat
			change(&other)
			if got := p.expected(t, other); got < 400 {
				t.Errorf("before any was seen %d tokens are expected, want about the 600 of others", got)
			}
			p.answered(t, other, 60, 30)
			if got := p.expected(t, other); got > 130 {
				t.Errorf("after 60 answers of 30 tokens %d are expected", got)
			}
			if got := p.expected(t, chat); got < 500 {
				t.Errorf("of the others' %d are expected, want about 600", got)
			}
		})
	}
}

// A client's hint of the answer's length is believed until its error is known, and never beyond the
// request's own limit. It does not change the lengths of other requests.
func TestAHintIsBelievedAsFarAsItHolds(t *testing.T) {
	p := pool(0)
	hinted := func(tenant uint32, hint int) Query {
		return Query{Model: "m", Tokens: 200, Class: estimate.Class{Tenant: tenant, Hint: hint}}
	}
	for _, hint := range []int{10, 1000, 3000} {
		if got := p.expected(t, hinted(7, hint)); got < hint*9/10 || got > hint*11/10 {
			t.Errorf("the client says %d tokens, and %d are expected", hint, got)
		}
	}
	q := hinted(7, 3000)
	q.MaxTokens = 100
	if got := p.expected(t, q); got > 100 {
		t.Errorf("%d tokens are expected, and the client takes 100", got)
	}
	p.answered(t, hinted(7, 4000), 60, 200)
	if got := p.expected(t, hinted(7, 4000)); got > 900 {
		t.Errorf("after 60 answers of 200 tokens where 4,000 were said %d are expected", got)
	}
	if got := p.expected(t, hinted(7, 400)); got > 90 {
		t.Errorf("of 400 that the same client says %d are expected, want a twentieth", got)
	}
	p.answered(t, hinted(8, 500), 60, 500)
	if got := p.expected(t, hinted(8, 500)); got < 350 {
		t.Errorf("of one that says what comes %d tokens are expected, want about 500", got)
	}
	for _, wrong := range []int{1, 1 << 20} {
		q := hinted(9, wrong)
		if got := p.expected(t, q); got < 1 {
			t.Errorf("with a hint of %d %d tokens are expected", wrong, got)
		}
	}
}

// An absurd hint is limited by the request's own limit of tokens. This limit is priced and reserved.
func TestAnAbsurdHintBooksRoomAllTheSame(t *testing.T) {
	p := pool(0)
	for _, hint := range []int{100_000, 1 << 20} {
		for _, limit := range []int{17, 500} {
			q := Query{Model: "m", Tokens: 160, MaxTokens: limit, Class: estimate.Class{Tenant: 7, Hint: hint}}
			c, _, _ := p.Candidates(&q, start, nil, nil)
			if len(c) != 1 {
				t.Fatal("no room")
			}
			if got, want := c[0].Need-c[0].prompt, blocksOf(limit, 16); int(c[0].Output) != limit || got != want {
				t.Errorf("of %d tokens, of which the client takes %d, %v are priced and %d blocks kept, want %d",
					hint, limit, c[0].Output, got, want)
			}
		}
	}
}
