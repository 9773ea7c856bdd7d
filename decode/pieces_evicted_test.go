package decode

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
)

// keeping is [inPieces]. Its member publishes events about prompts that share nothing.
type keeping struct {
	*Pool
	ids    [][]kv.Token
	hashes [][]kv.EngineHash
}

// keeps makes a keeping whose member has cached this number of prompts, each with this number of blocks.
func keeps(prompts, blocks int) *keeping {
	k := keepsIn(inPieces())
	for range prompts {
		k.stores(k.adds(blocks), 0)
	}
	return k
}

// keepsIn makes the member of p a large engine with events.
func keepsIn(p *Pool) *keeping {
	r := engine("d1", 100_000_000)
	r.Facts.PrefixCaching, r.Facts.BlockSize = true, 16
	r.Facts.MaxModelLen = 200_000
	p.SetMembers([]replica.Replica{r}, start)
	p.SetTrust("d1", replica.Live)
	return &keeping{Pool: p}
}

// adds invents a prompt of this number of blocks, and returns its number.
func (k *keeping) adds(blocks int) int {
	n := len(k.ids)
	ids, hashes := make([]kv.Token, 16*blocks), make([]kv.EngineHash, blocks)
	for i := range ids {
		ids[i] = kv.Token(n*1_000_000 + i + 1)
	}
	for i := range hashes {
		hashes[i] = kv.EngineHash(n*1_000_000 + i + 1)
	}
	k.ids, k.hashes = append(k.ids, ids), append(k.hashes, hashes)
	return n
}

// stores and drops apply events of the n-th prompt's blocks, beginning at block from.
func (k *keeping) stores(n, from int) {
	e := kv.Event{
		Kind: kv.Stored, Tokens: k.ids[n][16*from:], Hashes: k.hashes[n][from:], BlockSize: 16, Group: kv.NoGroup,
	}
	if from > 0 {
		e.Parent, e.HasParent = k.hashes[n][from-1], true
	}
	k.Apply("d1", &kv.Batch{Events: []kv.Event{e}})
}

func (k *keeping) drops(n, from int) {
	k.Apply("d1", &kv.Batch{Events: []kv.Event{{Kind: kv.Removed, Hashes: k.hashes[n][from:]}}})
}

func (k *keeping) keys(ids []kv.Token) []kv.Key {
	chain, root, _ := k.Chain("m")
	return chain.Append(nil, chain.Root(root, ""), ids)
}

// asks books the n-th prompt with more tokens after it, as a local prompt in pieces.
func (k *keeping) asks(t interface{ Fatal(...any) }, n, more int, now time.Time) *Lease {
	k.Observe("d1", load(now, 0, 0), now)
	ids := append([]kv.Token{}, k.ids[n]...)
	for i := range more {
		ids = append(ids, kv.Token(500_000_000+n*100_000+i))
	}
	q := &Query{Model: "m", Tokens: len(ids), MaxTokens: 16, Pieces: true, Depth: make([]int32, k.Holders())}
	q.Keys = k.keys(ids)
	k.Match(roster.Prompt{Keys: q.Keys, Tokens: len(ids)}, q.Depth)
	l, _ := computes(t, k.Pool, q, now)
	return l
}

// busy gives the engine a piece of another prompt.
func (k *keeping) busy(t *testing.T, now time.Time) *Lease {
	t.Helper()
	l, _ := alone(t, k.Pool, 1000, now)
	l.Next(now, nil)
	return l
}

// firstPiece books a prompt with 9,600 cached and 4,000 new tokens, and calls meanwhile while it waits. It
// returns the end of the first piece, and how much later its turn is.
func firstPiece(t *testing.T, k *keeping, meanwhile func(l *Lease)) (upto int, later time.Duration) {
	t.Helper()
	defer stream1(t, k.Pool).Release(start)
	runs := k.busy(t, start)
	l := k.asks(t, 0, 4000, start)
	before := l.due()
	l.Next(start, func() {})
	meanwhile(l)
	runs.Release(start)
	upto = l.Next(start.Add(time.Second), func() {}).Upto
	later = time.Duration(l.due() - before)
	l.Release(start.Add(time.Second))
	m, _ := k.members.Find("d1")
	if n, work := m.local.turns.Pieces(); m.local.turns.Work() != 0 || n != 0 || work != 0 {
		t.Errorf("%v of work is left", m.local.turns.Work())
	}
	return upto, later
}

// A waiting prompt may lose its cached prefix to others. Its first piece does not become longer, and its
// turn follows the longer rest. A block counts as cached unless it is known to be gone.
func TestAPieceIsAsLongWhereThePrefixIsGone(t *testing.T) {
	for _, x := range []struct {
		name      string
		meanwhile func(k *keeping, l *Lease)
		there     int // tokens
	}{
		{"nothing", func(*keeping, *Lease) {}, 9600},
		{"its end", func(k *keeping, _ *Lease) { k.drops(0, 100) }, 1600},
		{"all", func(k *keeping, _ *Lease) { k.drops(0, 0) }, 0},
		{"all, and back", func(k *keeping, l *Lease) {
			k.drops(0, 0)
			l.Next(start, func() {})
			k.stores(0, 0)
		}, 9600},
		{"events are lost", func(k *keeping, _ *Lease) {
			k.SetTrust("d1", replica.Stale)
			k.Forget("d1")
		}, 9600},
	} {
		t.Run(x.name, func(t *testing.T) {
			k := keeps(1, 600)
			upto, later := firstPiece(t, k, func(l *Lease) { x.meanwhile(k, l) })
			if most := x.there + 1300; upto > most || upto < most-400 {
				t.Errorf("the first piece reaches token %d, want some less than %d", upto, most)
			}
			if (later > 0) != (x.there < 9600) {
				t.Errorf("its turn is later by %v", later)
			}
		})
	}
}

// Predicted blocks are not gone; once events have announced them, they may be.
func TestAPrefixThatHasComeMayGo(t *testing.T) {
	for _, x := range []struct {
		come, left, there int // blocks that arrive and remain of the prediction; tokens cached
	}{{0, 0, 9600}, {600, 0, 0}, {600, 300, 4800}} {
		k := keeps(1, 600)
		k.drops(0, 100)
		m, _ := k.members.Find("d1")
		k.Speculate(&m.Member, roster.Prompt{Keys: k.keys(k.ids[0])}, time.Minute, start)
		upto, _ := firstPiece(t, k, func(l *Lease) {
			if x.come > 0 {
				k.stores(0, 100)
				l.Next(start, func() {})
				k.drops(0, x.left)
			}
		})
		if most := x.there + 1300; upto > most || upto < most-400 {
			t.Errorf("%d blocks come, %d stay: the first piece reaches token %d, want some less than %d",
				x.come, x.left, upto, most)
		}
	}
}

// If the index is too small for all blocks, no block counts as known to be gone.
func TestWhatAnIndexHasNoRoomForIsNotGone(t *testing.T) {
	p := New(Options{IndexBytes: 1 << 20})
	p.Configure(inPieces().settings)
	k := keepsIn(p)
	k.stores(k.adds(600), 0)
	m, _ := k.members.Find("d1")
	upto, later := firstPiece(t, k, func(*Lease) {
		for range 60 {
			k.stores(k.adds(1000), 0)
		}
		if _, known := k.Heard(&m.Member, roster.Prompt{Keys: k.keys(k.ids[0])}, 9600); known {
			t.Fatal("the index has room for all")
		}
	})
	if upto < 9600 || later > 0 {
		t.Errorf("the first piece reaches token %d, its turn is later by %v", upto, later)
	}
}

// Blocks of earlier pieces may be evicted before the next piece is sent.
func TestWhatPiecesHaveComputedMayGo(t *testing.T) {
	k := keeps(1, 1000)
	k.drops(0, 0)
	defer stream1(t, k.Pool).Release(start)
	l, now := k.asks(t, 0, 8000, start), start
	for l.pieces.Prefix.Tokens() < 14_000 {
		l.Next(now, func() {})
		now = now.Add(100 * time.Millisecond)
		l.Computed(true, -1, Pauses{}, now)
	}
	runs := k.busy(t, now)
	l.Next(now, func() {}) // before events tell of the newest piece
	k.stores(0, 0)
	l.Next(now, func() {})
	k.drops(0, 0)
	runs.Release(now)
	if got := l.Next(now.Add(2*time.Second), func() {}).Upto; got == 0 || got > 1300 {
		t.Errorf("the next piece reaches token %d, and nothing is there", got)
	}
}

// A woken prompt may now have to wait longer than others. Then it wakes the others. Other routers get its
// remaining time.
func TestWhoseTurnHasMovedWakesOthers(t *testing.T) {
	k := keeps(1, 600)
	defer stream1(t, k.Pool).Release(start)
	long, _ := alone(t, k.Pool, 20_000, start)
	long.Next(start, nil)
	woken := 0
	loses := k.asks(t, 0, 1000, start)
	loses.Next(start, func() {})
	k.drops(0, 0)
	now := start.Add(100 * time.Millisecond)
	long.Computed(true, -1, Pauses{}, now)
	other, _ := alone(t, k.Pool, 3000, now)
	other.Next(now, func() { woken++ })
	long.Next(now, func() { woken++ })
	changes := k.Changes()
	if got := loses.Next(now, func() {}).Upto; got == 0 && woken == 0 {
		t.Error("the engine is idle, three prompts wait, and none is woken")
	}
	if k.Changes() == changes {
		t.Error("other routers do not hear that more is left")
	}
}

// Blocks are evicted and come back while prompts wait. No prompt waits while the engine is idle, all prompts
// end, and the books equal a count.
func TestTurnsComeToAllWhoLoseTheirPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const prompts = 8
		w := losing{k: keeps(prompts, 300), now: start}
		w.asks, w.flies = map[*Lease]time.Time{}, map[*Lease]time.Time{}
		for i := range prompts {
			l := w.k.asks(t, i, rapid.IntRange(1, 6000).Draw(t, "tokens"), start)
			w.all = append(w.all, l)
			w.asks[l] = start.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "comes")) * time.Millisecond)
		}
		for steps := 0; len(w.asks)+len(w.flies) > 0; steps++ {
			if steps > 5000 {
				t.Fatal("it never ends")
			}
			w.step(t)
			w.check(t)
		}
	})
}

// losing is an engine that computes pieces, the prompts that ask for turns, and the times of both.
type losing struct {
	k           *keeping
	now         time.Time
	all         []*Lease
	asks, flies map[*Lease]time.Time
	gone        [8]bool
}

func (w *losing) step(t *rapid.T) {
	if rapid.IntRange(0, 2).Draw(t, "changes") == 0 {
		i := rapid.IntRange(0, len(w.gone)-1).Draw(t, "which")
		if w.gone[i] = !w.gone[i]; w.gone[i] {
			w.k.drops(i, rapid.IntRange(0, 299).Draw(t, "from"))
		} else {
			w.k.stores(i, 0)
		}
	}
	before := w.now
	w.now = start.Add(time.Hour)
	for _, l := range w.all {
		for _, of := range []map[*Lease]time.Time{w.asks, w.flies} {
			if at, is := of[l]; is && at.Before(w.now) {
				w.now = at
			}
		}
	}
	if len(w.flies) == 0 && w.now.Sub(before) > 50*time.Millisecond {
		t.Fatalf("the engine is idle for %v while %d prompts wait", w.now.Sub(before), len(w.asks))
	}
	for _, l := range w.all {
		if at, is := w.flies[l]; is && !at.After(w.now) {
			w.ends(t, l)
		}
		if at, is := w.asks[l]; is && !at.After(w.now) {
			w.turn(t, l)
		}
	}
}

// ends ends the piece of l that the engine has.
func (w *losing) ends(t *rapid.T, l *Lease) {
	delete(w.flies, l)
	if l.pieces.Upto == l.entry.Tokens {
		if rapid.Bool().Draw(t, "answers") {
			l.MarkSent(w.now)
			l.FirstToken(w.now)
		}
		l.Release(w.now)
		return
	}
	l.Computed(rapid.IntRange(0, 9).Draw(t, "fails") > 0, -1, Pauses{}, w.now)
	w.asks[l] = w.now
}

// turn lets l ask for its turn, or leave.
func (w *losing) turn(t *rapid.T, l *Lease) {
	delete(w.asks, l)
	if rapid.IntRange(0, 30).Draw(t, "leaves") == 0 {
		l.Release(w.now)
		return
	}
	if n := l.Next(w.now, func() { w.asks[l] = w.now }); n.Upto == 0 {
		w.asks[l] = w.now.Add(n.Ask)
	} else {
		w.flies[l] = w.now.Add(seconds(l.pieces.Lasts))
	}
}

func (w *losing) check(t *rapid.T) {
	m, _ := w.k.members.Find("d1")
	var weight time.Duration
	for _, e := range m.account.Leases() {
		if l := owner(e); e.Missing() && e.Local && l.pieces.On {
			weight += l.pieces.Predicted
		}
	}
	if _, booked := m.local.turns.Pieces(); booked != weight {
		t.Fatalf("the queue has %v in pieces, and it is %v", booked, weight)
	}
	checkSums(t, w.k.Pool)
}
