package decode

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"tandem/internal/replica"
	"tandem/scoring"
)

// inPieces has one member that keeps prefixes and computes 10,000 tokens a second, and pieces of 100 ms.
func inPieces() *Pool {
	p := New(Options{})
	p.Configure(Settings{
		LoadTTL: usualTTL, ExpectedOutput: 160, Piece: 100 * time.Millisecond,
		Speed: scoring.Speed{A: 1e-4, D0: 10e-3},
	})
	r := engine("d1", 10_000)
	r.Facts.PrefixCaching = true
	p.SetMembers([]replica.Replica{r}, start)
	p.Observe("d1", load(start, 0, 0), start)
	return p
}

// alone books a prompt of so many tokens that the replica computes itself.
func alone(t interface{ Fatal(...any) }, p *Pool, tokens int, now time.Time) (*Lease, Candidate) {
	q := &Query{Model: "m", Tokens: tokens, MaxTokens: 16, Pieces: true}
	c, _, _ := p.Candidates(q, now, nil, nil)
	if len(c) == 0 {
		t.Fatal("no candidate")
	}
	l := p.Book(&c[0], q, Schedule{Local: true, AdmitAt: now}, now)
	if l == nil {
		t.Fatal("not booked")
	}
	return l, c[0]
}

// stream books a request that decodes there.
func stream1(t interface{ Fatalf(string, ...any) }, p *Pool) *Lease {
	l := book(t, p, 10, start, start)
	l.MarkSent(start)
	l.FirstToken(start)
	return l
}

// A piece is as long as streams there can bear, and twice that where there are none; all pieces of a prompt
// are about as long, and whole blocks.
func TestPiecesAreAsLongAsStreamsCanBear(t *testing.T) {
	for _, c := range []struct {
		name    string
		streams bool
		tokens  int
		want    []int
	}{
		{"a short prompt goes at once", true, 1200, []int{1200}},
		{"a long one in equal pieces", true, 4000, []int{992, 1984, 2976, 4000}},
		{"nobody decodes", false, 4000, []int{1984, 4000}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := inPieces()
			if c.streams {
				defer stream1(t, p).Release(start)
			}
			l, _ := alone(t, p, c.tokens, start)
			now := start
			for i, want := range c.want {
				n := l.Next(now, nil)
				if n.Upto < want-16 || n.Upto > want+16 || n.Upto != c.tokens && n.Upto%16 != 0 {
					t.Errorf("piece %d goes up to %d, want some %d", i, n.Upto, want)
				}
				now = now.Add(100 * time.Millisecond)
				l.Computed(true, now)
			}
			l.Release(now)
		})
	}
}

// Who has less left goes first, but who has waited for as long as that is more goes before it.
func TestTurnsOfPieces(t *testing.T) {
	p := inPieces()
	defer stream1(t, p).Release(start)
	long, _ := alone(t, p, 20_000, start)
	if got := long.Next(start, nil).Upto; got == 0 || got > 1300 {
		t.Fatalf("the first piece has %d tokens", got)
	}
	short, _ := alone(t, p, 3000, start)
	woken := ""
	if got := short.Next(start, func() { woken += "short " }); got.Upto != 0 || got.Ask <= 0 {
		t.Fatalf("a second prompt gets %+v beside a piece", got)
	}
	now := start.Add(100 * time.Millisecond)
	long.Computed(true, now)
	if got := long.Next(now, func() { woken += "long " }); got.Upto != 0 || woken != "short " {
		t.Fatalf("the longer one gets %+v before the shorter one, which was woken: %q", got, woken)
	}
	if got := short.Next(now, nil); got.Upto < 800 {
		t.Fatalf("the shorter one gets %+v", got)
	}
	now = now.Add(100 * time.Millisecond)
	short.Release(now)
	if woken != "short long " {
		t.Errorf("woken when the shorter one has gone: %q", woken)
	}
	if got := long.Next(now, nil); got.Upto == 0 {
		t.Error("the longer one has to wait for nobody")
	}
	now = now.Add(time.Second)
	later, _ := alone(t, p, 15_000, now.Add(time.Second))
	long.Computed(true, now)
	if got := later.Next(now.Add(time.Second), nil).Upto; got == 0 {
		t.Fatal("nothing is flying")
	}
	later.Computed(true, now.Add(1100*time.Millisecond))
	if got := long.Next(now.Add(1100*time.Millisecond), nil).Upto; got == 0 {
		t.Error("who has waited for two seconds still comes behind who has half a second less left")
	}
	for _, l := range []*Lease{long, later} {
		l.Release(now)
	}
}

// Short prompts share the time of one piece.
func TestShortPromptsShareAPiece(t *testing.T) {
	p := inPieces()
	defer stream1(t, p).Release(start)
	for i, want := range []bool{true, true, true, false} {
		l, _ := alone(t, p, 300, start)
		defer l.Release(start)
		if got := l.Next(start, nil).Upto > 0; got != want {
			t.Errorf("prompt %d of 30 ms goes at once: %v", i, got)
		}
	}
}

// What nobody hears of ends by itself: a request whose first token nobody sees, or a router that forgets.
func TestAPieceThatIsNotHeardOfHoldsUpNobodyForLong(t *testing.T) {
	p := inPieces()
	defer stream1(t, p).Release(start)
	quiet, _ := alone(t, p, 1000, start)
	if quiet.Next(start, nil).Upto != 1000 {
		t.Fatal("it does not go at once")
	}
	next, _ := alone(t, p, 1000, start)
	got := next.Next(start, nil)
	if got.Upto != 0 {
		t.Fatal("both at once")
	}
	if next.Next(start.Add(got.Ask), nil).Upto != 1000 {
		t.Errorf("still not after %v", got.Ask)
	}
	quiet.Release(start)
	next.Release(start)
}

// A piece that failed is the last: the request itself comes next.
func TestAfterAFailedPieceComesTheRequest(t *testing.T) {
	p := inPieces()
	defer stream1(t, p).Release(start)
	l, _ := alone(t, p, 9000, start)
	defer l.Release(start)
	l.Next(start, nil)
	l.Computed(false, start)
	if got := l.Next(start, nil).Upto; got != 9000 {
		t.Errorf("up to %d", got)
	}
}

// A plan in pieces is priced as what it is: streams stand still for a piece, it takes longer itself, and
// whoever comes meanwhile gets in between.
func TestPricesOfPieces(t *testing.T) {
	p := inPieces()
	defer stream1(t, p).Release(start)
	l, c := alone(t, p, 10_000, start)
	defer l.Release(start)
	if got := c.Local; got.Piece < 0.08 || got.Piece > 0.13 || got.Between < 0.08 || got.Between > 0.13 {
		t.Errorf("a second of work in pieces of %.3f s, with %.3f s between them", got.Piece, got.Between)
	}
	_, behind := alone(t, p, 1000, start)
	if got := behind.Local; got.Wait > 0.001 || got.Busy > 0.11 || got.Busy < 0.09 || got.Delayed < 0.09 {
		t.Errorf("a short prompt waits %.3f s, others %.3f s for it, and a transfer %.3f s",
			got.Wait, got.Delayed, got.Busy)
	}
	p.Configure(Settings{LoadTTL: usualTTL, ExpectedOutput: 160, Speed: scoring.Speed{A: 1e-4, D0: 10e-3}})
	q := &Query{Model: "m", Tokens: 10_000, MaxTokens: 16, Pieces: true}
	cs, _, _ := p.Candidates(q, start, nil, nil)
	if got := cs[0].Local; got.Piece != 0 || got.Between != 0 {
		t.Errorf("priced in pieces of %.3f s where there are none", got.Piece)
	}
}

// Whatever is asked, computed, heard and ended in which order: what an engine has at once is bounded, a
// prompt only grows, and nothing is left at the end.
func TestPiecesOfAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, now := inPieces(), start
		m, _ := p.members.Find("d1")
		var live []*Lease
		upto := map[*Lease]int{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "ms")) * time.Millisecond)
			if len(live) == 0 || rapid.IntRange(0, 4).Draw(t, "do") == 0 {
				l, _ := alone(t, p, rapid.IntRange(1, 20_000).Draw(t, "tokens"), now)
				live = append(live, l)
				continue
			}
			i := rapid.IntRange(0, len(live)-1).Draw(t, "which")
			l := live[i]
			switch {
			case rapid.IntRange(0, 9).Draw(t, "leaves") == 0, upto[l] == l.tokens:
				l.Release(now)
				live = append(live[:i], live[i+1:]...)
			case upto[l] > 0 && l.pieces.upto > 0:
				l.Computed(rapid.Bool().Draw(t, "ok"), now)
			default:
				n := l.Next(now, func() {}).Upto
				if n > 0 && n < upto[l] {
					t.Fatalf("up to %d behind %d", n, upto[l])
				}
				upto[l] = max(upto[l], n)
				if n == l.tokens {
					l.MarkSent(now)
				}
			}
			if sum := m.turns.inFlight(); sum > 4 {
				t.Fatalf("the engine has %.2f s at once", sum)
			}
		}
		for _, l := range live {
			l.Release(now)
		}
		if tr := &m.turns; len(tr.flying)+len(tr.waiting)+tr.asked != 0 || m.ledger.local.work != 0 {
			t.Fatalf("%d flying, %d waiting, %d asked, %v of work left",
				len(tr.flying), len(tr.waiting), tr.asked, m.ledger.local.work)
		}
	})
}
