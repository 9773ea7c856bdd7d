package decode

import (
	"testing"
	"time"

	"pgregory.net/rapid"

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

// Whoever asks for calls of tools, for a form, with a long prompt or as another tenant gets answers of other
// lengths than others of the same model. What nobody has seen yet is taken for the closest that is known.
func TestLengthsAreLearnedByClass(t *testing.T) {
	chat := Query{Model: "m", Tokens: 200, Class: Class{Tenant: 7}}
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

// A client's word for the length of its answer is believed until it has shown how far off it is, never beyond
// its own limit, and says nothing of what others get.
func TestAHintIsBelievedAsFarAsItHolds(t *testing.T) {
	p := pool(0)
	hinted := func(tenant uint32, hint int) Query {
		return Query{Model: "m", Tokens: 200, Class: Class{Tenant: tenant, Hint: hint}}
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

// However long a client says that its answer will be: what it lets the answer have is priced, and room kept.
func TestAnAbsurdHintBooksRoomAllTheSame(t *testing.T) {
	p := pool(0)
	for _, hint := range []int{100_000, 1 << 20} {
		for _, limit := range []int{17, 500} {
			q := Query{Model: "m", Tokens: 160, MaxTokens: limit, Class: Class{Tenant: 7, Hint: hint}}
			c, _, _ := p.Candidates(&q, start, nil, nil)
			if len(c) != 1 {
				t.Fatal("no room")
			}
			if got, want := c[0].Need-c[0].blocks, blocksOf(limit, 16); int(c[0].Output) != limit || got != want {
				t.Errorf("of %d tokens, of which the client takes %d, %v are priced and %d blocks kept, want %d",
					hint, limit, c[0].Output, got, want)
			}
		}
	}
}

// Where all requests are of one class they are expected to be what those of their model are, to the token:
// nothing is kept apart that is the same, however often it was seen.
func TestOneClassIsItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := configured()
		q := &Query{Model: "m", Tokens: 3000, Class: Class{Tenant: 7, API: 1, Tools: true}}
		short := rapid.IntRange(1, 6000)
		for range rapid.IntRange(0, 40).Draw(t, "answers") {
			e, told := p.expects(q, true), 0
			for range rapid.IntRange(0, 2).Draw(t, "reports") {
				to := short.Draw(t, "so far")
				e.passed(told, to)
				told = to
			}
			switch tokens := short.Draw(t, "tokens"); rapid.IntRange(0, 2).Draw(t, "goes on, ends, is cut") {
			case 1:
				e.learn(told, tokens)
			case 2:
				e.cut(told, tokens)
			}
			has, limit := rapid.IntRange(0, 9000).Draw(t, "has"), rapid.IntRange(-1, 9000).Draw(t, "limit")
			model, got := p.lengths.models["m"], p.expects(q, false)
			if got, want := got.rest(has, limit), model.Rest(has, limit); got != want {
				t.Fatalf("%d tokens more are expected, and %d of the model's", got, want)
			}
			if got, want := got.room(has, limit), model.Room(has, limit); got != want {
				t.Fatalf("room for %d tokens more, and for %d of the model's", got, want)
			}
			var lives, ofModel [looks]float64
			got.survive(has, lookSteps[:], lives[:])
			model.Survive(has, 1, lookSteps[:], ofModel[:])
			if lives != ofModel {
				t.Fatalf("they go on by %v, and those of the model by %v", lives, ofModel)
			}
		}
	})
}

// However many groups there are, lengths are kept for no more than some of them: those that came last. The
// others count as their model's, and whoever is above another stays as long as that one.
func TestGroupsAreBounded(t *testing.T) {
	p := pool(0)
	keeps := Query{Model: "m", Tokens: 100, Class: Class{Tenant: 5}}
	p.answered(t, keeps, 60, 400)
	for i := range 2 * maxGroups {
		q := Query{Model: "m", Tokens: 100, Class: Class{Tenant: uint32(10 + i), Hint: 1 + i%2*50}}
		p.answered(t, q, 1, 50)
		if i%100 == 0 {
			p.answered(t, keeps, 1, 400)
		}
		for g := range p.lengths.groups {
			if g.of == ofClass && p.lengths.groups[group{of: ofTenant, model: g.model, tenant: g.tenant}] == nil {
				t.Fatalf("a class of tenant %d is kept, and the tenant is not", g.tenant)
			}
		}
	}
	if n := len(p.lengths.groups); n > maxGroups {
		t.Errorf("lengths are kept for %d groups", n)
	}
	if got := p.expected(t, Query{Model: "m", Tokens: 100, Class: Class{Tenant: 11}}); got > 70 {
		t.Errorf("of one that was forgotten %d tokens are expected, want the 50 of most others", got)
	}
	if got := p.expected(t, keeps); got < 300 {
		t.Errorf("of one that came now and then %d tokens are expected, want its 400", got)
	}
	if len(p.lengths.models) != 1 {
		t.Errorf("of %d models", len(p.lengths.models))
	}
}

// Whoever asks what is to be expected leaves nothing behind: only what is booked makes a group.
func TestAskingMakesNoGroup(t *testing.T) {
	p := pool(0)
	for i := range 10 {
		p.expected(t, Query{Model: "m", Tokens: 100, Class: Class{Tenant: uint32(1 + i), Hint: 7}})
	}
	if n := len(p.lengths.groups) + len(p.lengths.models); n != 0 {
		t.Errorf("%d groups and models", n)
	}
}
