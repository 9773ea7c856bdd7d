package ledger

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The short calculation says the same as a walk over all leases that wait for their prefills: whether all
// will find room.
func TestRoomForReservedLeases(t *testing.T) {
	asked, kept := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		g, b := New(), &Account{}
		theirs := &PeerLoad{}
		life := rapid.SampledFrom([]float64{1, 10, 60}).Draw(t, "life")
		if rapid.Bool().Draw(t, "others") {
			theirs.Reserved = rapid.IntRange(1, 300).Draw(t, "theirs")
			theirs.ReservedIn = time.Duration(rapid.IntRange(0, 20).Draw(t, "in")) * time.Second
		}
		for range rapid.IntRange(0, 400).Draw(t, "leases") {
			in := time.Duration(rapid.IntRange(0, 20).Draw(t, "begins")) * time.Second
			l := &Lease{Promise: Promise{Blocks: rapid.IntRange(1, 5).Draw(t, "blocks"), Sequences: 1}}
			g.Enter(b, l, Terms{Admit: start.Add(in)}, start)
		}
		room := Room{Capacity: 1000, Usage: rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "usage")}
		b.usage = room.Usage
		a := b.Headroom(room, theirs)
		a.Free -= rapid.IntRange(0, 200).Draw(t, "taken")
		for range 20 {
			ask := Request{
				Blocks: rapid.IntRange(1, 200).Draw(t, "need"), Now: g.At(start),
				Ready: time.Duration(rapid.IntRange(0, 20).Draw(t, "ready")) * time.Second,
			}
			got := b.keepsRoom(&a, ask, theirs, func() float64 { return life })
			if want := slowlyKeepsRoom(b, &a, ask, theirs, life); got != want {
				t.Fatalf("%d blocks in %v: room for all: %v, want %v", ask.Blocks, ask.Ready, got, want)
			}
			if asked++; got {
				kept++
			}
		}
	})
	if kept == 0 || kept == asked {
		t.Errorf("all find their room in %d of %d cases: the test shows little", kept, asked)
	}
}

// slowlyKeepsRoom is the obvious form of [Account.keepsRoom].
func slowlyKeepsRoom(b *Account, a *Headroom, ask Request, theirs *PeerLoad, life float64) bool {
	type need struct {
		in     time.Duration
		blocks int
	}
	all := []need{{ask.Ready, ask.Blocks}, {theirs.ReservedIn, theirs.Reserved}}
	for _, l := range b.leases {
		if l.state == Reserved {
			all = append(all, need{time.Duration(l.admitAt - ask.Now), l.Whole()})
		}
	}
	slices.SortStableFunc(all, func(a, b need) int { return cmp.Compare(a.in, b.in) })
	sum := 0
	for _, d := range all {
		sum += d.blocks
		if d.in >= ask.Ready && d.blocks > 0 && sum > a.Free+a.Released(d.in+ShortWait, life) {
			return false
		}
	}
	return true
}
