package decode

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// inPieces is a pool with one member that has a prefix cache and computes 10,000 tokens per second. Pieces
// take 100 ms.
func inPieces() *Pool { return inPiecesOf(16) }

// inPiecesOf is inPieces with another number of tokens per KV block.
func inPiecesOf(blockSize int) *Pool {
	p := New(Options{})
	p.Configure(Settings{
		LoadTTL: usualTTL, ExpectedOutput: 160, Piece: 100 * time.Millisecond,
		Speed: estimate.Speed{A: 1e-4, D0: 10e-3},
	})
	r := engine("d1", 10_000)
	r.Facts.PrefixCaching, r.Facts.BlockSize = true, blockSize
	p.SetMembers([]replica.Replica{r}, start)
	p.Observe("d1", load(start, 0, 0), start)
	return p
}

// alone books a local prompt of this number of tokens.
func alone(t interface{ Fatal(...any) }, p *Pool, tokens int, now time.Time) (*Lease, Candidate) {
	return computes(t, p, &Query{Model: "m", Tokens: tokens, MaxTokens: 16, Pieces: true}, now)
}

// computes books a local prompt.
func computes(t interface{ Fatal(...any) }, p *Pool, q *Query, now time.Time) (*Lease, Candidate) {
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

// A piece is as long as streams there can bear. All pieces of a prompt are about as long, and whole blocks.
func TestPiecesAreAsLongAsStreamsCanBear(t *testing.T) {
	for _, c := range []struct {
		name    string
		streams bool
		tokens  int
		want    []int
	}{
		{"a short prompt goes at once", true, 1200, []int{1200}},
		{"a long one in equal pieces", true, 4000, []int{992, 1984, 2976, 4000}},
		{"nobody decodes", false, 4000, []int{992, 1984, 2992, 4000}},
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
				l.Computed(true, -1, Pauses{}, now)
			}
			l.Release(now)
		})
	}
}

// Hybrid models have blocks of a thousand tokens and more, which take longer than a piece should. A piece
// has one block at least, because the next piece would find less than a block not cached.
func TestPiecesOfLargeBlocks(t *testing.T) {
	for _, size := range []int{528, 1056, 2096, 8192} {
		p, now := inPiecesOf(size), start
		s := stream1(t, p)
		const tokens = 20_000
		l, _ := alone(t, p, tokens, now)
		for before := 0; before < tokens; {
			next := l.Next(now, nil)
			if next.Upto != tokens && (next.Upto <= before || next.Upto%size != 0) {
				t.Fatalf("blocks of %d tokens: up to %d behind %d, ask in %v", size, next.Upto, before, next.Ask)
			}
			before = next.Upto
			now = now.Add(time.Second)
			l.Computed(true, -1, Pauses{}, now)
		}
		l.Release(now)
		s.Release(now)
		if m, _ := p.members.Find("d1"); m.local.turns.Flying()+m.local.turns.Asked() > 0 {
			t.Errorf("blocks of %d tokens: %d flying, %d asked", size, m.local.turns.Flying(), m.local.turns.Asked())
		}
	}
}

// The prompt with the least left goes first, but not before one that has waited for more than twice its own
// rest.
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
	long.Computed(true, -1, Pauses{}, now)
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
	long.Computed(true, -1, Pauses{}, now)
	if got := later.Next(now.Add(time.Second), nil).Upto; got == 0 {
		t.Fatal("nothing is flying")
	}
	later.Computed(true, -1, Pauses{}, now.Add(1100*time.Millisecond))
	if got := long.Next(now.Add(1100*time.Millisecond), nil).Upto; got == 0 {
		t.Error("who has waited for two seconds still comes behind who has half a second less left")
	}
	for _, l := range []*Lease{long, later} {
		l.Release(now)
	}
}

// A turn does not move while its prompt waits. Otherwise new samples of the replica would move an asking
// prompt behind all prompts that have not asked again, and the engine would idle until they ask.
func TestTurnsStayWhileSpeedsAreLearned(t *testing.T) {
	p := inPieces()
	defer stream1(t, p).Release(start)
	before, _ := alone(t, p, 1000, start)
	if before.Next(start, nil).Upto != 1000 {
		t.Fatal("it does not go at once")
	}
	var woken []*Lease
	ask := func(l *Lease) Next { return l.Next(start, func() { woken = append(woken, l) }) }
	for i := range 5 {
		l, _ := alone(t, p, 600+i, start)
		defer l.Release(start)
		if got := ask(l).Upto; got != 0 {
			t.Fatalf("%d tokens beside a piece", got)
		}
	}
	s := p.settings
	s.Speed.T0 = 30e-3
	p.Configure(s)
	before.Release(start)
	sent := 0
	for asked := 0; len(woken) > 0; asked++ {
		if asked > 20 {
			t.Fatal("they wake each other for ever")
		}
		l := woken[0]
		woken = woken[1:]
		if ask(l).Upto > 0 {
			sent++
		}
	}
	if sent == 0 {
		t.Error("the engine has nothing, five wait, and nobody is woken")
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

// A request without an observable end expires: a request whose first token cannot be observed, or a lease
// that a router forgot.
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
	l.Computed(false, -1, Pauses{}, start)
	if got := l.Next(start, nil).Upto; got != 9000 {
		t.Errorf("up to %d", got)
	}
}

// The price of a plan in pieces includes the pause of streams for one piece, the longer time of the prompt,
// and the requests that come between pieces.
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
	p.Configure(Settings{LoadTTL: usualTTL, ExpectedOutput: 160, Speed: estimate.Speed{A: 1e-4, D0: 10e-3}})
	q := &Query{Model: "m", Tokens: 10_000, MaxTokens: 16, Pieces: true}
	cs, _, _ := p.Candidates(q, start, nil, nil)
	if got := cs[0].Local; got.Piece != 0 || got.Between < 0.004 || got.Between > 0.006 {
		t.Errorf("priced in pieces of %.3f s where there are none, with %.3f s beside it, want half a step",
			got.Piece, got.Between)
	}
}

// A short prompt goes before a long prompt that has just come, or that has waited for as long as it takes.
// It goes behind a long prompt that has waited for twice as long. The price follows the turn.
func TestWhoHasWaitedGoesBeforeAShortPrompt(t *testing.T) {
	p := inPieces()
	defer stream1(t, p).Release(start)
	runs, _ := alone(t, p, 10_000, start)
	defer runs.Release(start)
	waits, c := alone(t, p, 10_000, start)
	defer waits.Release(start)
	for _, x := range []struct {
		after            time.Duration
		waits, keepsThem float64 // seconds
	}{{0, 0, 0.2}, {1500 * time.Millisecond, 0, 0.2}, {2500 * time.Millisecond, c.Local.Took(), 0}} {
		now := start.Add(x.after)
		p.Observe("d1", load(now, 1, 0.1), now)
		cs, _, _ := p.Candidates(&Query{Model: "m", Tokens: 1000, MaxTokens: 16, Pieces: true}, now, nil, nil)
		got := cs[0].Local
		if math.Abs(got.Wait-x.waits) > 0.05 || math.Abs(got.Delayed-x.keepsThem) > 0.05 {
			t.Errorf("after %v a short prompt waits %.3f s and keeps others waiting for %.3f, want %.3f and %.3f",
				x.after, got.Wait, got.Delayed, x.waits, x.keepsThem)
		}
	}
}

// Questions, computed pieces, observations and ends come in any order. The work in the engine stays bounded,
// a prompt only grows, and nothing is left at the end.
func TestPiecesOfAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, now := inPiecesOf(rapid.SampledFrom([]int{16, 528, 1056, 3000}).Draw(t, "block")), start
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
			case rapid.IntRange(0, 9).Draw(t, "leaves") == 0, upto[l] == l.entry.Tokens:
				l.Release(now)
				live = append(live[:i], live[i+1:]...)
			case upto[l] > 0 && l.pieces.Upto > 0:
				l.Computed(rapid.Bool().Draw(t, "ok"), -1, Pauses{}, now)
			default:
				n := l.Next(now, func() {}).Upto
				if n > 0 && n < upto[l] {
					t.Fatalf("up to %d behind %d", n, upto[l])
				}
				upto[l] = max(upto[l], n)
				if n == l.entry.Tokens {
					l.MarkSent(now)
				}
			}
			for _, l := range live {
				if x := &l.pieces; x.Due != l.due() {
					t.Fatalf("a prompt that is due at %d takes its turn as if it were at %d", l.due(), x.Due)
				}
			}
			if sum := m.local.turns.InFlight(0); sum > 4 {
				t.Fatalf("the engine has %.2f s at once", sum)
			}
		}
		for _, l := range live {
			l.Release(now)
		}
		if tr := &m.local.turns; tr.Flying()+tr.Waiting()+tr.Asked() != 0 || m.local.turns.Work() != 0 {
			t.Fatalf("%d flying, %d waiting, %d asked, %v of work left",
				tr.Flying(), tr.Waiting(), tr.Asked(), m.local.turns.Work())
		}
	})
}

// A waiting prompt asks again when woken or told to, and at no other time. Under any arrivals, departures
// and samples, no prompt waits while the engine has nothing to compute.
func TestTurnsComeToAll(t *testing.T) {
	const slowest = 30 * time.Millisecond // a step at least
	rapid.Check(t, func(t *rapid.T) {
		p, now := inPieces(), start
		work := time.Duration(0)
		asks := map[*Lease]time.Time{}  // the prompt that asks next, and when
		flies := map[*Lease]time.Time{} // whose piece is computed, until when
		next := func() time.Time {
			at := start.Add(time.Hour)
			for _, of := range []map[*Lease]time.Time{asks, flies} {
				for _, when := range of {
					if when.Before(at) {
						at = when
					}
				}
			}
			return at
		}
		for range rapid.IntRange(1, 30).Draw(t, "prompts") {
			tokens := rapid.IntRange(1, 12_000).Draw(t, "tokens")
			l, _ := alone(t, p, tokens, now)
			work += time.Duration(tokens)*100*time.Microsecond + time.Duration(tokens/leastPiece+1)*slowest
			asks[l] = now.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "comes")) * time.Millisecond)
		}
		for len(asks)+len(flies) > 0 {
			before := now
			if rapid.IntRange(0, 3).Draw(t, "learns") == 0 {
				s := p.settings
				s.Speed.T0 = (time.Duration(rapid.IntRange(0, 30).Draw(t, "base")) * slowest / 30).Seconds()
				p.Configure(s)
			}
			if now = next(); len(flies) == 0 && now.Sub(before) > 50*time.Millisecond {
				t.Fatalf("the engine has nothing for %v while %d wait", now.Sub(before), len(asks))
			}
			if now.Sub(start) > 2*work+time.Second {
				t.Fatalf("%v of work, and %d still wait after %v", work, len(asks), now.Sub(start))
			}
			for l, at := range flies {
				if at.After(now) {
					continue
				}
				delete(flies, l)
				if leaves := rapid.IntRange(0, 20).Draw(t, "leaves") == 0; leaves || l.pieces.Upto == l.entry.Tokens {
					l.Release(now)
					continue
				}
				l.Computed(true, -1, Pauses{}, now)
				asks[l] = now
			}
			for l, at := range asks {
				if at.After(now) {
					continue
				}
				n := l.Next(now, func() { asks[l] = now })
				switch {
				case n.Upto == 0:
					asks[l] = now.Add(n.Ask)
				default:
					delete(asks, l)
					flies[l] = now.Add(seconds(l.pieces.Lasts))
				}
			}
		}
	})
}

// Thousands of prompts may wait at an overloaded replica.
func BenchmarkTurnsOfMany(b *testing.B) {
	for _, waiting := range []int{10, 100, 1000, 10_000} {
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			p := inPieces()
			r := engine("d1", 100_000_000)
			r.Facts.PrefixCaching, r.Facts.BlockSize = true, 16
			p.SetMembers([]replica.Replica{r}, start)
			all := make([]*Lease, waiting)
			for i := range all {
				all[i], _ = alone(b, p, 4000+i%100, start)
				all[i].Next(start, nil)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				all[i%waiting].Next(start.Add(time.Duration(i)*time.Microsecond), nil)
			}
		})
	}
}

// The fixed time of a step is counted once for all short prompts in it: otherwise an engine would have so
// few prompts at a time that most of its steps were empty.
func TestShortPromptsShareAStep(t *testing.T) {
	p := inPieces()
	s := p.settings
	s.Speed.T0 = 30e-3
	p.Configure(s)
	defer stream1(t, p).Release(start)
	atOnce := 0
	for range 30 {
		l, _ := alone(t, p, 100, start) // of 10 ms, beside those 30
		defer l.Release(start)
		if l.Next(start, nil).Upto > 0 {
			atOnce++
		}
	}
	if atOnce < 9 || atOnce > 10 {
		t.Errorf("%d prompts of 10 ms share 100 ms", atOnce)
	}
}

// due is the turn that l should have by its booking and its remaining time.
func (l *Lease) due() int64 { return l.pool.cutter.turnOf(l.pieces.BookedAt, l.pieces.Predicted) }
