package decode

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
)

// others is engines that have so many leading tokens each. A pull of a token takes each seconds, below 0
// if none is possible.
func others(each float64, tokens ...int) (p roster.Pulls) {
	for _, n := range tokens {
		p.Sources = append(p.Sources, roster.Source{Replica: &replica.Replica{ID: "other"}, Tokens: n})
	}
	p.Time = func(_, _ *replica.Replica, tokens int) float64 { return each * float64(tokens) }
	return p
}

// A pull is in the price if the prompt is there sooner with it, and the best source counts. Nothing else
// about the replica changes.
func TestAPullIsPricedWhereItIsFaster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := inPieces()
		q := &Query{
			Model: "m", Tokens: rapid.IntRange(1, 20_000).Draw(t, "tokens"), MaxTokens: 16, Local: true,
			Pieces: rapid.Bool().Draw(t, "pieces"), PullsWhole: true, Depth: make([]int32, p.Holders()),
		}
		for i := range q.Depth {
			q.Depth[i] = int32(rapid.IntRange(0, q.Tokens/16).Draw(t, "matched"))
		}
		without, _, _ := p.Candidates(q, start, nil, nil)
		q.Pulls = others(rapid.Float64Range(-1e-5, 2e-4).Draw(t, "each"),
			rapid.SliceOfN(rapid.IntRange(0, 25_000), 0, 4).Draw(t, "sources")...)
		with, _, _ := p.Candidates(q, start, nil, nil)
		was, is := without[0].Local, with[0].Local
		speed := p.learned.pricing(with[0].member, start)
		least := was.Warm
		memory := kv.Below{CPU: 1000}.Tiers()
		read := p.learned.of(with[0].member).Reading(&with[0].member.learned.Prompts, memory, start) / 1000
		for _, s := range q.Pulls.Sources {
			took := q.Pulls.Time(nil, nil, s.Tokens-with[0].Expected)
			if took >= 0 {
				took += read * float64(s.Tokens-with[0].Expected)
			}
			if s.Tokens > with[0].Expected && s.Tokens < q.Tokens && took >= 0 {
				least = min(least, took+speed.Prefill(q.Tokens-s.Tokens, s.Tokens))
			}
		}
		if is.Pull > 0 && q.Pieces && is.Between <= 0 {
			t.Error("the piece that pulls costs nothing")
		}
		if got := is.Pull + is.Warm; got > least+1e-9 || got < least-1e-9 {
			t.Errorf("pulling and computing take %v s, want %v", got, least)
		}
		if with[0].Source.Replica == nil && (is.Pull != 0 || is.Warm != was.Warm) {
			t.Errorf("without a source %v s of pull, and %v s of computing instead of %v", is.Pull, is.Warm, was.Warm)
		}
		if is.Wait > was.Wait+1e-9 {
			t.Errorf("the prompt waits for %v s instead of %v", is.Wait, was.Wait)
		}
		a, b := without[0], with[0]
		if a.Missing != b.Missing || a.Matched != b.Matched || a.Expected != b.Expected || a.Need != b.Need {
			t.Errorf("the candidate was %+v and is %+v", a, b)
		}
	})
}

func TestNothingToPull(t *testing.T) {
	for name, change := range map[string]func(q *Query){
		"another replica computes":    func(q *Query) { q.Local = false },
		"nothing shows its end":       func(q *Query) { q.PullsWhole, q.Pieces = false, false },
		"slower than computing":       func(q *Query) { q.Pulls = others(1e-3, 4000) },
		"the engines do not fit":      func(q *Query) { q.Pulls = others(-1, 4000) },
		"the source has no more":      func(q *Query) { q.Depth[0] = 250 },
		"the source has all":          func(q *Query) { q.Tokens = 4000 },
		"nobody else has a beginning": func(q *Query) { q.Pulls = roster.Pulls{} },
	} {
		p := inPieces()
		q := &Query{
			Model: "m", Tokens: 4400, MaxTokens: 16, Local: true, Pieces: true, PullsWhole: true,
			Pulls: others(1e-6, 4000), Depth: make([]int32, p.Holders()),
		}
		if c, _, _ := p.Candidates(q, start, nil, nil); c[0].Source.Tokens != 4000 {
			t.Fatalf("%s: it pulls %d tokens, want 4000", name, c[0].Source.Tokens)
		}
		change(q)
		if c, _, _ := p.Candidates(q, start, nil, nil); c[0].Source.Replica != nil || c[0].Local.Pull != 0 {
			t.Errorf("%s: it pulls %d tokens in %v s", name, c[0].Source.Tokens, c[0].Local.Pull)
		}
	}
}

// A prompt in pieces begins behind what is pulled. The piece that pulls computes next to nothing, and another
// prompt gets its piece meanwhile.
func TestPiecesBeginBehindThePull(t *testing.T) {
	for tokens, pieces := range map[int][]int{6400: {4000, 4800, 5600, 6400}, 4400: {4000, 4400}} {
		p := inPieces()
		defer stream1(t, p).Release(start)
		q := &Query{
			Model: "m", Tokens: tokens, MaxTokens: 16, Local: true, Pieces: true, Pulls: others(1e-6, 4000),
		}
		l, _ := computes(t, p, q, start)
		now := start
		for i, want := range pieces {
			n := l.Next(now, nil)
			if n.Upto < want-16 || n.Upto > want+16 || n.Upto != tokens && n.Upto%16 != 0 {
				t.Errorf("piece %d goes up to %d, want some %d", i, n.Upto, want)
			}
			if i == 0 {
				another, _ := alone(t, p, 1200, now)
				if next := another.Next(now, nil); next.Upto == 0 {
					t.Errorf("another prompt waits %v for the pull", next.Ask)
				}
				another.Release(now)
			}
			now = now.Add(time.Second)
			l.Computed(true, -1, Pauses{}, now)
		}
		l.Release(now)
	}
}

// The time of a pull is no speed of computing: neither of a whole prompt nor of a piece.
func TestAPullTeachesNoSpeed(t *testing.T) {
	learned := func(whole bool, pull time.Duration) float64 {
		p, now := inPieces(), start
		for range 20 {
			q := &Query{
				Model: "m", Tokens: 4800, MaxTokens: 16, Local: true, Pieces: !whole, PullsWhole: whole,
				Pulls: others(1e-6, 4000),
			}
			l, _ := computes(t, p, q, now)
			for l.Next(now, nil).Upto < q.Tokens {
				now = now.Add(pull)
				l.Computed(true, 3984, Pauses{}, now)
			}
			l.MarkSent(now)
			if now = now.Add(80 * time.Millisecond); whole {
				now = now.Add(pull)
			}
			l.FirstToken(now)
			l.Finish(10, 100*time.Millisecond, now)
			now = now.Add(time.Second)
		}
		m, _ := p.members.Find("d1")
		speed := p.learned.speed(m)
		return speed.Prefill(4000, 0)
	}
	for _, whole := range []bool{true, false} {
		for _, pull := range []time.Duration{10 * time.Millisecond, 2 * time.Second} {
			if got := learned(whole, pull); got < 0.3 || got > 0.5 { // 0.4 before
				t.Errorf("whole: %v; after pulls of %v 4,000 tokens take %.3f s, want 0.4", whole, pull, got)
			}
		}
	}
}
