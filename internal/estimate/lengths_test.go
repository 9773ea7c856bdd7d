package estimate

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// If all requests are of one class, the class has the lengths of its model, to the token. Equal groups are
// not kept apart, however often they were seen.
func TestOneClassIsItsModel(t *testing.T) {
	steps := []float64{8, 11, 16, 90, 1000, 16384}
	rapid.Check(t, func(t *rapid.T) {
		l := NewLengths(256, 1, 0)
		c := Class{Tenant: 7, API: 1, Tools: true}
		short := rapid.IntRange(1, 6000)
		for range rapid.IntRange(0, 40).Draw(t, "answers") {
			e := l.Expect("m", 3000, &c, true)
			for range rapid.IntRange(0, 2).Draw(t, "reports") {
				to := short.Draw(t, "so far")
				e.passed(to)
				e.told = to
			}
			switch tokens := short.Draw(t, "tokens"); rapid.IntRange(0, 2).Draw(t, "goes on, ends, is cut") {
			case 1:
				e.learn(tokens)
			case 2:
				e.cut(tokens)
			}
			has, limit := rapid.IntRange(0, 9000).Draw(t, "has"), rapid.IntRange(-1, 9000).Draw(t, "limit")
			model, got := l.models["m"], l.Expect("m", 3000, &c, false)
			if got, want := got.Rest(has, limit), model.Rest(has, limit); got != want {
				t.Fatalf("%d tokens more are expected, and %d of the model's", got, want)
			}
			if got, want := got.Room(has, limit), model.Room(has, limit); got != want {
				t.Fatalf("room for %d tokens more, and for %d of the model's", got, want)
			}
			lives, ofModel := make([]float64, len(steps)), make([]float64, len(steps))
			got.Survive(has, steps, lives)
			model.Survive(has, 1, steps, ofModel)
			for k := range lives {
				if lives[k] != ofModel[k] {
					t.Fatalf("they go on by %v, and those of the model by %v", lives, ofModel)
				}
			}
		}
	})
}

// ended lets n answers of a class end with this number of tokens.
func (l *Lengths) ended(c Class, n, tokens int) {
	for range n {
		e := l.Expect("m", 100, &c, true)
		l.Learn(&e, Sample{Of: AnswerTokens, At: time.Unix(1000, 0), Range: Exactly(float64(tokens))})
	}
}

// With any number of groups, lengths are kept only for the most recently used. The other groups use their
// model's lengths, and a group above another stays as long as the lower one.
func TestGroupsAreBounded(t *testing.T) {
	l := NewLengths(256, 1, 0)
	expected := func(c Class) int {
		e := l.Expect("m", 100, &c, false)
		return e.Rest(0, -1)
	}
	keeps := Class{Tenant: 5}
	l.ended(keeps, 60, 400)
	for i := range 2 * maxGroups {
		l.ended(Class{Tenant: uint32(10 + i), Hint: 1 + i%2*50}, 1, 50)
		if i%100 == 0 {
			l.ended(keeps, 1, 400)
		}
		for g := range l.groups {
			if g.of == ofClass && l.groups[group{of: ofTenant, model: g.model, tenant: g.tenant}] == nil {
				t.Fatalf("a class of tenant %d is kept, and the tenant is not", g.tenant)
			}
		}
	}
	if n := len(l.groups); n > maxGroups {
		t.Errorf("lengths are kept for %d groups", n)
	}
	if got := expected(Class{Tenant: 11}); got > 70 {
		t.Errorf("of one that was forgotten %d tokens are expected, want the 50 of most others", got)
	}
	if got := expected(keeps); got < 300 {
		t.Errorf("of one that came now and then %d tokens are expected, want its 400", got)
	}
	if len(l.models) != 1 {
		t.Errorf("of %d models", len(l.models))
	}
}

// A question about an expected length makes no group. Only a booking does.
func TestAskingMakesNoGroup(t *testing.T) {
	l := NewLengths(256, 1, 0)
	for i := range 10 {
		l.Expect("m", 100, &Class{Tenant: uint32(1 + i), Hint: 7}, false)
	}
	if n := len(l.groups) + len(l.models); n != 0 {
		t.Errorf("%d groups and models", n)
	}
}
