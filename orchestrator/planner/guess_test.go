package planner

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// held returns how many of 8,000 tokens are cached on the computing replica, by the plan for the prompt named
// seed.
func (f *fleet) held(t *testing.T, seed uint32, edit func(r *Request)) (on replica.ID, tokens int) {
	t.Helper()
	r := f.request(seed, 8000)
	edit(r)
	d, err := f.pl.Explain(r, f.now)
	if err != nil {
		t.Fatal(err)
	}
	if d.Mode == Local {
		return d.Decode, d.Matched
	}
	return d.Prefill, d.Matched
}

// A prompt counts as cached on its replica from the time when it is sent. If the request fails, the prompt
// was not computed there, and attracts no other request.
func TestAGuessEndsWithItsRequest(t *testing.T) {
	for _, tt := range []struct {
		name string
		only func(r *Request)
		end  func(f *fleet, b *Booking)
		want int
	}{
		{"prefill fails", onlySplit, func(f *fleet, b *Booking) { b.Release(f.now) }, 0},
		{
			"prefill answers", onlySplit, func(f *fleet, b *Booking) { b.PrefillLease.Done(0, time.Second, f.now) },
			7984,
		},
		{"decode fails behind a prefill", onlySplit, func(f *fleet, b *Booking) {
			b.PrefillLease.Done(0, time.Second, f.now)
			b.Release(f.now)
		}, 7984},
		{"local fails", onlyLocal, func(f *fleet, b *Booking) { b.Release(f.now) }, 0},
		{"local begins", onlyLocal, func(f *fleet, b *Booking) {
			b.DecodeLease.MarkSent(f.now)
			f.pl.FirstToken(b, f.now)
			b.Release(f.now)
		}, 7984},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(1, 1, nil)
			r := f.request(1, 8000)
			tt.only(r)
			b := f.plan(t, r)
			at := b.Prefill.ID
			if b.Mode == Local {
				at = b.Decode.ID
			}
			if on, got := f.held(t, 1, tt.only); on != at || got != 7984 {
				t.Fatalf("while it is computed %s counts with %d tokens, want %s with 7,984", on, got, at)
			}
			f.pass(100 * time.Millisecond)
			tt.end(f, b)
			if _, got := f.held(t, 1, tt.only); got != tt.want {
				t.Errorf("then %d of its tokens are believed to be there, want %d", got, tt.want)
			}
			f.pass(guessLasts)
			f.expire()
			if _, got := f.held(t, 1, tt.only); got != 0 {
				t.Errorf("%d of its tokens are believed to be there although no event tells of them", got)
			}
		})
	}
}

// guessLasts is longer than the delay of events about a computed prompt.
const guessLasts = 2100 * time.Millisecond

func (f *fleet) expire() {
	f.prefill.Expire(f.now)
	f.decode.Expire(f.now)
}

func onlySplit(r *Request) { r.LocalOK = false }
func onlyLocal(r *Request) { r.SplitOK = false }

// An engine that takes ten times as long as predicted has the prompt at its answer, and not at the predicted
// time.
func TestAGuessComesAgainWithALateAnswer(t *testing.T) {
	f := newFleet(1, 1, nil)
	r := f.request(1, 8000)
	r.LocalOK = false
	b := f.plan(t, r)
	f.pass(20 * time.Second)
	f.expire()
	if _, got := f.held(t, 1, onlySplit); got != 0 {
		t.Errorf("20 s after a prompt that should take a fifth of one %d of its tokens are believed to be there",
			got)
	}
	b.PrefillLease.Done(0, 20*time.Second, f.now)
	if _, got := f.held(t, 1, onlySplit); got != 7984 {
		t.Errorf("when it has answered %d tokens are believed to be there, want 7,984", got)
	}
}

// Blocks that could not be loaded are not on the decode replica: the next request moves them.
func TestAGuessOfBlocksEndsWithALoadThatFailed(t *testing.T) {
	f := newFleet(1, 1, nil)
	r := f.request(1, 8000)
	r.LocalOK = false
	b := f.plan(t, r)
	b.PrefillLease.Done(0, 100*time.Millisecond, f.now)
	if _, err := f.pl.Rebind(b, r, f.now); err != nil {
		t.Fatal(err)
	}
	missing := func() int { return f.plan(t, r).MatchedDecode }
	if got := missing(); got != 7984 {
		t.Errorf("while the blocks come %d tokens count as there, want 7,984", got)
	}
	b.Release(f.now)
	if got := missing(); got != 0 {
		t.Errorf("when they have not come %d tokens count as there", got)
	}
}

// Unknown cached blocks of a decode replica are not moved. A link that seems thirty times as fast for this
// reason is not believed to be faster.
func TestLinksAreLearnedWhereItIsKnownWhatMoves(t *testing.T) {
	for trust, learns := range map[replica.Trust]bool{
		replica.Live: true, replica.Stale: false, replica.Syncing: false,
	} {
		f := newFleet(1, 1, nil)
		f.decode.SetTrust("d1", trust)
		seed := f.pl.pairs.rate(&f.ps[0], &f.ds[0])
		for i := range 8 {
			r := f.request(uint32(i+1), 8000)
			r.LocalOK = false
			b := f.plan(t, r)
			b.PrefillLease.Done(0, 100*time.Millisecond, f.now)
			if _, err := f.pl.Rebind(b, r, f.now); err != nil {
				t.Fatal(err)
			}
			f.pass(12 * time.Millisecond) // a step, the set-up, and little more
			f.pl.FirstToken(b, f.now)
			b.Release(f.now)
			f.pass(time.Second)
			f.idle()
		}
		if got := f.pl.pairs.rate(&f.ps[0], &f.ds[0]); (got != seed) != learns {
			t.Errorf("%v: a byte is taken to take %g ns, by the policy %g", trust, got*1e9, seed*1e9)
		}
	}
}

// The cached part of a prompt on a decode replica may change between the plan and the request for the
// blocks, or until the engine looks. Then the moved part is unknown, and the time says nothing about the
// link. In each row, other requests bring parts of the same 8,000 tokens to the same replica.
func TestLinksAreNotLearnedFromSharedTransfers(t *testing.T) {
	const quick = 12 * time.Millisecond // a step, the set-up, and little more
	stored := func(f *fleet, blocks int) { f.store(t, f.decode, "d1", 1, blocks) }
	other := func(f *fleet, seed uint32) *Booking {
		r := f.request(seed, 8000)
		onlySplit(r)
		return f.plan(t, r)
	}
	send := func(f *fleet, b *Booking, seed uint32) {
		b.PrefillLease.Done(0, 100*time.Millisecond, f.now)
		if _, err := f.pl.Rebind(b, f.request(seed, 8000), f.now); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name   string
		before func(f *fleet)             // the request is planned
		while  func(f *fleet, b *Booking) // it is prefilled
		took   time.Duration
		learns bool
	}{
		{"nobody else", nil, nil, quick, true},
		{"another prompt is on its way", nil, func(f *fleet, _ *Booking) { send(f, other(f, 2), 2) }, quick, true},
		{"a part was there before", func(f *fleet) { stored(f, 100) }, nil, quick, true},
		{"a part comes while it is prefilled", nil, func(f *fleet, _ *Booking) { stored(f, 400) }, quick, false},
		{"a part goes while it is prefilled", func(f *fleet) { stored(f, 100) }, func(f *fleet, _ *Booking) {
			f.decode.Forget("d1")
		}, time.Second, false},
		{"the same is on its way", nil, func(f *fleet, _ *Booking) { send(f, other(f, 1), 1) }, quick, false},
		{"the same has been on its way for long", nil, func(f *fleet, _ *Booking) {
			send(f, other(f, 1), 1)
			f.pass(5 * time.Second)
			f.expire()
		}, quick, false},
		{"the same has come, and no event yet", nil, func(f *fleet, _ *Booking) {
			b := other(f, 1)
			send(f, b, 1)
			f.pass(quick)
			b.DecodeLease.FirstToken(f.now)
			b.Release(f.now)
		}, quick, false},
		{"the same is computed there", nil, func(f *fleet, _ *Booking) {
			r := f.request(1, 8000)
			onlyLocal(r)
			f.plan(t, r).DecodeLease.MarkSent(f.now)
			f.pass(20 * time.Second)
			f.expire()
		}, quick, false},
		{"a part is expected that has not come", func(f *fleet) {
			r := f.request(1, 1600)
			onlySplit(r)
			b := f.plan(t, r)
			b.PrefillLease.Done(0, 100*time.Millisecond, f.now)
			if _, err := f.pl.Rebind(b, r, f.now); err != nil {
				t.Fatal(err)
			}
		}, nil, time.Second, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(1, 1, nil)
			if tt.before != nil {
				tt.before(f)
			}
			b := other(f, 1)
			if tt.while != nil {
				tt.while(f, b)
			}
			send(f, b, 1)
			f.pass(tt.took)
			f.pl.FirstToken(b, f.now)
			if b.Sure() != tt.learns {
				t.Errorf("it is known what the transfer moves: %v", b.Sure())
			}
			if learned := len(f.pl.pairs.links.of) > 0; learned != tt.learns {
				t.Errorf("that it took %v taught the link: %v", tt.took, learned)
			}
		})
	}
}
