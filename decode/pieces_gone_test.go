package decode

import (
	"testing"
	"time"

	"tandem/internal/kv"
	"tandem/internal/replica"
	"tandem/internal/roster"
)

// believing is [inPieces], whose member has told of the first blocks of a prompt.
func believing(blocks int) (p *Pool, ids []kv.Token, hashes []kv.EngineHash) {
	p = inPieces()
	p.SetTrust("d1", replica.Live)
	ids = make([]kv.Token, 16*blocks)
	for i := range ids {
		ids[i] = kv.Token(i)
	}
	e := kv.Event{Kind: kv.Stored, Tokens: ids, BlockSize: 16, Group: kv.NoGroup}
	for i := range blocks {
		hashes = append(hashes, kv.EngineHash(i+1))
	}
	e.Hashes = hashes
	p.Apply("d1", &kv.Batch{Events: []kv.Event{e}})
	return p, ids, hashes
}

// A prompt that waits for its turn may lose to others what was there of it. Its first piece is no longer for
// that, and its turn comes by all that is left of it.
func TestAPieceIsAsLongWhereThePrefixIsGone(t *testing.T) {
	for _, x := range []struct {
		name       string
		gone, upto int // blocks that are gone, and tokens that the first piece may reach
	}{
		{"all there", 0, 9600 + 1300},
		{"the end gone", 500, 1600 + 1300},
		{"all gone", 600, 1300},
	} {
		t.Run(x.name, func(t *testing.T) {
			p, ids, hashes := believing(600)
			defer stream1(t, p).Release(start)
			runs, _ := alone(t, p, 1000, start)
			runs.Next(start, nil)
			tokens := len(ids) + 4000
			chain, root, _ := p.Chain("m")
			q := &Query{Model: "m", Tokens: tokens, MaxTokens: 16, Pieces: true, Depth: make([]int32, p.Holders())}
			q.Keys = chain.Append(nil, chain.Root(root, ""), append(ids, make([]kv.Token, 4000)...))
			p.Match(roster.Prompt{Keys: q.Keys, Tokens: tokens}, q.Depth)
			c, _, _ := p.Candidates(q, start, nil, nil)
			if c[0].Matched != len(ids) {
				t.Fatalf("%d tokens are there, want %d", c[0].Matched, len(ids))
			}
			l := p.Book(&c[0], q, Schedule{Local: true, AdmitAt: start}, start)
			before := l.due()
			l.Next(start, func() {})
			runs.Release(start)
			p.Apply("d1", &kv.Batch{Events: []kv.Event{{Kind: kv.Removed, Hashes: hashes[600-x.gone:]}}})
			now := start.Add(time.Second)
			got := l.Next(now, func() {})
			if got.Upto > x.upto || got.Upto < x.upto-400 {
				t.Errorf("the first piece reaches token %d, want some less than %d", got.Upto, x.upto)
			}
			if later := l.due() > before; later != (x.gone > 0) {
				t.Errorf("its turn is later: %v", later)
			}
			l.Computed(true, -1, Pauses{}, now)
			if next := l.Next(now, func() {}).Upto; next <= got.Upto {
				t.Errorf("up to token %d behind %d", next, got.Upto)
			}
			l.Release(now)
			m, _ := p.members.Find("d1")
			if m.ledger.local.work != 0 || m.ledger.orders.pieces.weight != 0 {
				t.Errorf("%v of work is left", m.ledger.local.work)
			}
		})
	}
}
