package decode

import (
	"math"
	"testing"
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/roster"
)

// learningInPieces is [inPieces] whose replica's prefill is learned.
func learningInPieces(piece time.Duration) *Pool {
	p := inPieces()
	p.Configure(Settings{
		LoadTTL: usualTTL, ExpectedOutput: 160, Piece: piece, Speed: estimate.Speed{D0: stepOf},
	})
	return p
}

const stepOf = 10e-3 // seconds

// The speed of an engine is learned from pieces as from whole prompts: each piece follows the earlier pieces,
// and decode steps between pieces do not count.
func TestPiecesTeachAsWholePrompts(t *testing.T) {
	truth := estimate.DefaultSpeed()
	truth.A, truth.B = 4*truth.A, 4*truth.B
	for _, c := range []struct {
		name  string
		piece time.Duration
	}{{"whole", 0}, {"in pieces", 100 * time.Millisecond}} {
		t.Run(c.name, func(t *testing.T) {
			p := learningInPieces(c.piece)
			defer stream1(t, p).Release(start)
			now, pieces := start, 0
			for i := range 60 {
				tokens := 4000 + 4000*(i%5)
				l, _ := alone(t, p, tokens, now)
				for from := 0; from < tokens; pieces++ {
					upto := l.Next(now, nil).Upto
					if upto == tokens {
						l.MarkSent(now)
					}
					if from > 0 {
						now = now.Add(seconds(stepOf)) // has begun already
					}
					now = now.Add(seconds(truth.Prefill(upto-from, from)))
					from = upto
					l.Computed(true, -1, Pauses{}, now)
				}
				l.FirstToken(now)
				l.Finish(16, 15*seconds(stepOf), now)
				now = now.Add(300 * time.Millisecond)
				p.Observe("d1", load(now, 1, 0.1), now)
			}
			if (pieces > 60) != (c.piece > 0) {
				t.Fatalf("%d requests for 60 prompts", pieces)
			}
			for _, x := range [][2]int{{8000, 0}, {2000, 0}, {2000, 12_000}} {
				is, want := p.learned.speed(p.members.All[0]).Prefill(x[0], x[1]), truth.Prefill(x[0], x[1])
				if math.Abs(is/want-1) > 0.1 {
					t.Errorf("%d tokens after %d: predicted %.3f s, want %.3f", x[0], x[1], is, want)
				}
			}
		})
	}
}

// Unknown cached tokens of a piece take no time. The engine does not count as faster for this reason.
func TestPiecesThatWereThereTeachNoSpeed(t *testing.T) {
	p, now := learningInPieces(100*time.Millisecond), start
	defer stream1(t, p).Release(start)
	truth := estimate.DefaultSpeed()
	truth.A, truth.B = 4*truth.A, 4*truth.B
	for i := range 60 {
		tokens, had := 16_000+4000*(i%4), 6000
		l, _ := alone(t, p, tokens, now)
		for from := 0; from < tokens; {
			upto := l.Next(now, nil).Upto
			if upto == tokens {
				l.MarkSent(now)
			}
			if from > 0 {
				now = now.Add(seconds(stepOf))
			}
			found := min(max(from, had), upto)
			now = now.Add(seconds(truth.Prefill(upto-found, found)))
			from = upto
			l.Computed(true, found, Pauses{}, now)
		}
		l.FirstToken(now)
		l.Finish(16, 15*seconds(stepOf), now)
		now = now.Add(300 * time.Millisecond)
		p.Observe("d1", load(now, 1, 0.1), now)
	}
	is, want := p.learned.speed(p.members.All[0]).Prefill(8000, 0), truth.Prefill(8000, 0)
	if math.Abs(is/want-1) > 0.15 {
		t.Errorf("8,000 tokens are predicted to need %.3f s, and need %.3f", is, want)
	}
}

// After a failed piece it is unknown how much of the piece the engine has computed, and how much is left for
// the request.
func TestFailedPiecesTeachNothing(t *testing.T) {
	p, now := learningInPieces(100*time.Millisecond), start
	defer stream1(t, p).Release(start)
	for range 20 {
		l, _ := alone(t, p, 20_000, now)
		if upto := l.Next(now, nil).Upto; upto == 0 || upto == 20_000 {
			t.Fatalf("the first piece has %d tokens", upto)
		}
		now = now.Add(5 * time.Second)
		l.Computed(false, -1, Pauses{}, now)
		if upto := l.Next(now, nil).Upto; upto != 20_000 {
			t.Fatalf("up to %d behind a piece that failed", upto)
		}
		l.MarkSent(now)
		now = now.Add(5 * time.Second)
		l.FirstToken(now)
		l.Release(now)
		p.Observe("d1", load(now, 1, 0.1), now)
	}
	if n := p.members.All[0].learned.Fit.Samples(); n != 0 {
		t.Errorf("%d samples were learned from", n)
	}
}

// While another router's prompt is computed, too, the time of a prompt says nothing of the speed. The other
// router may tell of its prompt only after the prompt has ended.
func TestPromptsBesideThoseOfAnotherRouterTeachNothing(t *testing.T) {
	for _, beside := range []bool{false, true} {
		p, now := learningInPieces(0), start
		defer stream1(t, p).Release(start)
		for range 20 {
			l, _ := alone(t, p, 8000, now)
			l.MarkSent(now)
			now = now.Add(time.Second)
			if beside {
				p.MergePeer("b", []PeerLoad{{ID: "d1", First: roster.Running{Ended: time.Millisecond}}}, now)
			}
			now = now.Add(time.Second)
			l.FirstToken(now)
			l.Finish(16, 15*seconds(stepOf), now)
			p.Observe("d1", load(now.Add(time.Second), 1, 0.1), now.Add(time.Second))
			now = now.Add(2 * time.Second)
		}
		if n := p.members.All[0].learned.Fit.Samples(); n > 0 == beside {
			t.Errorf("beside prompts of another router %t: %d samples were learned from", beside, n)
		}
	}
}

// A report counts pieces as requests. The pieces are requests of this router, so they do not hide the
// requests behind the pieces.
func TestPiecesInReportsAreOurs(t *testing.T) {
	p, now := inPieces(), start
	m := p.members.All[0]
	defer stream1(t, p).Release(start)
	l, _ := alone(t, p, 20_000, now)
	sent := book(t, p, 10, now, now)
	if l.Next(now, nil).Upto == 20_000 {
		t.Fatal("it goes at once")
	}
	sent.MarkSent(now)
	for range 3 {
		now = now.Add(300 * time.Millisecond)
		p.Observe("d1", load(now, 2, 0.1), now) // the stream and the piece run, the other request waits
	}
	if n := m.Others.Count; n != 0 {
		t.Errorf("%d requests are others'", n)
	}
	if sent.entry.State() == ledger.Reported {
		t.Error("the piece counts as the request that was sent beside it")
	}
	if told := p.PeerLoads(now)[0].Sent; told != 3 {
		t.Errorf("other routers are told of %d requests that the engine has, want 3", told)
	}
	l.Release(now)
	sent.Release(now)
}
