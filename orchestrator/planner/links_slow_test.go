package planner

import (
	"errors"
	"testing"
	"time"
)

// hands lets d ask for the blocks of b, whose prompt has been computed.
func (f *fleet) hands(t *testing.T, b *Booking, r *Request) {
	t.Helper()
	b.PrefillLease.Done(0, 350*time.Millisecond, f.now)
	if _, err := f.pl.Rebind(b, r, f.now); err != nil {
		t.Fatal(err)
	}
}

// A link that was slow for a minute does not refuse requests for good, although refused requests teach
// nothing.
func TestLinkThatWasSlowIsNotRefusedForEver(t *testing.T) {
	f := newFleet(1, 1, nil)
	f.firstBy = 5 * time.Second
	last, refused := 0, 0
	for i := range 1200 {
		speed := 40e9
		if i < 60 {
			speed = 0.05e9
		}
		r := f.fresh(8000)
		r.LocalOK = false
		b, err := f.pl.Plan(r, f.now)
		if err != nil {
			if _, late := errors.AsType[*TooLate](err); !late {
				t.Fatal(err)
			}
			last = i
			refused++
		} else {
			f.hands(t, b, r)
			f.come(b, f.landed(b, f.now, 0.005+f.over(speed, 8000)))
		}
		f.pass(time.Second)
		f.idle()
	}
	if last > 180 {
		t.Errorf("well since request 60, and %d of 1200 were refused, %d as the last: taken for %.2f GB/s",
			refused, last, f.pl.LinkSpeeds(f.now)[0].BytesPerSecond/1e9)
	}
}

// A decode replica whose link was slow for a minute gets its share of requests again.
func TestLinkThatWasSlowIsUsedAgain(t *testing.T) {
	f := newFleet(1, 2, nil)
	uses := map[string]int{}
	for i := range 1200 {
		if i == 60 {
			clear(uses)
		}
		r := f.fresh(8000)
		r.LocalOK = false
		b := f.plan(t, r)
		f.hands(t, b, r)
		uses[string(b.Decode.ID)]++
		speed := 40e9
		if b.Decode.ID == "d1" && i < 60 {
			speed = 0.05e9
		}
		f.come(b, f.landed(b, f.now, 0.005+f.over(speed, 8000)))
		f.pass(time.Second)
		f.idle()
	}
	if uses["d1"] < 300 {
		t.Errorf("the link to d1 is well for 19 minutes, and it has %d of 1140 requests", uses["d1"])
	}
}

// A link that stays slow is tried rarely.
func TestLinkThatStaysSlowIsTriedNowAndThen(t *testing.T) {
	f := newFleet(1, 2, nil)
	uses := 0
	for range 1200 {
		r := f.fresh(8000)
		r.LocalOK = false
		b := f.plan(t, r)
		f.hands(t, b, r)
		speed := 40e9
		if b.Decode.ID == "d1" {
			speed = 0.5e9
			uses++
		}
		f.come(b, f.landed(b, f.now, 0.005+f.over(speed, 8000)))
		f.pass(time.Second)
		f.idle()
	}
	if uses == 0 || uses > 40 {
		t.Errorf("a decode replica behind a slow link has %d of 1200 requests, want some, and 40 at most", uses)
	}
}

// A link with much traffic is measured again, whatever was believed of it before.
func TestLinksThatAreUsedAndWellAreLearnedAgain(t *testing.T) {
	for _, decodes := range []int{1, 2} {
		for _, trouble := range []float64{0.05e9, 0.3e9, 1e9} {
			f := newFleet(1, decodes, nil)
			for i := range 600 {
				speed := 40e9
				if i < 30 {
					speed = trouble
				}
				r := f.fresh(8000)
				b := f.plan(t, r)
				f.hands(t, b, r)
				f.come(b, f.landed(b, f.now, 0.005+f.over(speed, 8000)))
				f.pass(time.Second)
			}
			for _, l := range f.pl.LinkSpeeds(f.now) {
				if l.BytesPerSecond < 10e9 {
					t.Errorf("%d decode replicas, trouble at %.2f GB/s: after 570 transfers at 40 %v is taken for %.2f",
						decodes, trouble/1e9, l.Pairing, l.BytesPerSecond/1e9)
				}
			}
		}
	}
}

// All links were slow, so prompts were computed on decode replicas beside sixty streams. After the links
// recovered, prompts are split again.
func TestAfterSlowLinksPromptsAreSplitAgain(t *testing.T) {
	for _, trouble := range []float64{0.05e9, 0.3e9} {
		f := newFleet(1, 2, nil)
		splits := 0
		for i := range 600 {
			speed := 40e9
			if i < 30 {
				speed, splits = trouble, 0
			}
			var streams []*Booking
			for range 60 {
				r := f.request(7, 500)
				r.SplitOK = false
				b := f.plan(t, r)
				b.DecodeLease.MarkSent(f.now)
				f.pl.FirstToken(b, f.now)
				streams = append(streams, b)
			}
			r := f.fresh(8000)
			r.LocalOK = true
			b := f.plan(t, r)
			if b.Mode != Local {
				splits++
				f.hands(t, b, r)
				f.now = f.landed(b, f.now, 0.005+f.over(speed, 8000))
				f.pl.FirstToken(b, f.now)
			}
			b.Release(f.now)
			for _, s := range streams {
				s.Release(f.now)
			}
			f.pass(time.Second)
			f.idle()
		}
		if splits < 400 {
			t.Errorf("trouble at %.2f GB/s: %d of 570 prompts are split since the links are well", trouble/1e9, splits)
		}
	}
}

// worth plans over the only pair until it is used over a healthy link, and returns after how many seconds.
func (f *fleet) worth(t *testing.T) (seconds int) {
	t.Helper()
	f.firstBy = 2 * time.Second
	for ; seconds < 600; seconds++ {
		r := f.fresh(8000)
		r.LocalOK = false
		if b, err := f.pl.Plan(r, f.now); err == nil {
			b.Release(f.now)
			return seconds
		}
		f.pass(time.Second)
		f.idle()
	}
	return seconds
}

// A slow link from a saved state is tried again, and so is the link of a replica that was away for a while.
func TestSlowLinksThatComeBackAreTriedAgain(t *testing.T) {
	slow := func() *fleet {
		f := newFleet(1, 1, at)
		for range 30 {
			r := f.fresh(20_000)
			r.LocalOK = false
			b := f.plan(t, r)
			f.hands(t, b, r)
			f.come(b, f.landed(b, f.now, 0.005+f.over(0.3e9, 20_000)))
		}
		return f
	}
	before, after := slow(), newFleet(1, 1, at)
	if n := after.pl.RestoreReplicas(kept(t, before), before.now); n == 0 {
		t.Fatal("nothing was taken over")
	}
	after.now = before.now
	if n := after.worth(t); n == 0 || n > 120 {
		t.Errorf("of a slow link that was taken over: tried after %d s, want 1 to 120", n)
	}
	f := slow()
	there := f.ds
	f.decode.SetMembers(nil, f.now)
	f.pass(time.Second)
	r := f.fresh(8000)
	if _, err := f.pl.Plan(r, f.now); err == nil {
		t.Fatal("planned without a decode replica")
	}
	f.decode.SetMembers(there, f.now)
	f.idle()
	if n := f.worth(t); n == 0 || n > 120 {
		t.Errorf("of a slow link whose replica was away: tried after %d s, want 1 to 120", n)
	}
}
