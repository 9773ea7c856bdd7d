package planner

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
)

// counts are d1's counters of its reads.
type counts struct{ replica.Reads }

func (c *counts) add(bytes, seconds, posting float64) {
	c.Count++
	c.Bytes += bytes
	c.Seconds += seconds
	c.Posting += posting
}

// A transfer may wait in a busy engine without a report of it. This wait counts as the time of the link
// until the engine's counters show the time of the transfer itself.
func TestCountersTellTheLinkFromTheEngine(t *testing.T) {
	const tokens = 8000
	for _, counted := range []bool{true, false} {
		f := newFleet(1, 1, nil)
		var c counts
		f.pl.Counted("d1", replica.Reads{Count: 1, Bytes: 1, Seconds: 1}, f.now)
		c.Reads = replica.Reads{Count: 1, Bytes: 1, Seconds: 1}
		for range 10 {
			b := f.asks(t, tokens)
			f.come(b, f.landed(b, f.now, 0.5+f.over(20e9, tokens)))
			c.add(tokens*f.pl.policy.KVBytesPerToken, f.over(20e9, tokens), 0)
			if counted {
				f.pl.Counted("d1", c.Reads, f.now)
			}
			f.pass(time.Second)
		}
		got := f.over(20e9, tokens) / f.predicted("p1", "d1", tokens)
		if right := got > 0.5 && got < 2; right != counted {
			t.Errorf("counters: %v; blocks take %.2f times as long as predicted", counted, got)
		}
	}
}

// Counters teach nothing after a restart, if they count other routers' transfers, or if they count none. No
// such sum is believed as a speed.
func TestCountersThatDoNotFitTeachNothing(t *testing.T) {
	const tokens = 8000
	for name, now := range map[string]replica.Reads{
		"none":          {},
		"restarted":     {Count: 1, Bytes: 100, Seconds: 1000},
		"others'":       {Count: 900, Bytes: 1e15, Seconds: 1e5},
		"nothing moved": {Count: 100, Bytes: 1e12, Seconds: 100},
	} {
		f := newFleet(1, 1, nil)
		f.pl.Counted("d1", replica.Reads{Count: 100, Bytes: 1e12, Seconds: 100}, f.now)
		b := f.asks(t, tokens)
		f.come(b, f.landed(b, f.now, 0.005+f.over(40e9, tokens)))
		before := f.predicted("p1", "d1", tokens)
		f.pl.Counted("d1", now, f.now)
		if after := f.predicted("p1", "d1", tokens); after != before {
			t.Errorf("%s: %g s, and %g before", name, after, before)
		}
	}
}

// Transfers are not kept for an engine without counters. For an engine whose counters are no longer read,
// only a few are kept.
func TestTransfersDoNotWaitForCountersForEver(t *testing.T) {
	f := newFleet(1, 2, nil)
	f.pl.Counted("d2", replica.Reads{Count: 1, Bytes: 1, Seconds: 1}, f.now)
	for _, d := range []replica.ID{"d1", "d2"} {
		for range mostCome + 10 {
			f.pl.flights.await(come{flight: &flight{pair: Pairing{Prefill: "p1", Decode: d}}})
		}
	}
	if one, two := len(f.pl.flights.come["d1"]), len(f.pl.flights.come["d2"]); one != 0 || two != mostCome {
		t.Errorf("%d and %d transfers are kept, want 0 and %d", one, two, mostCome)
	}
}

// standing returns the price of the streams that stand still while d1 reads so many tokens: 40 streams.
func (f *fleet) standing(t *testing.T, tokens int) float64 {
	t.Helper()
	var streams []*Booking
	for range 40 {
		r := f.request(7, 500)
		r.SplitOK = false
		b := f.plan(t, r)
		b.DecodeLease.MarkSent(f.now)
		f.pl.FirstToken(b, f.now)
		streams = append(streams, b)
	}
	d, err := f.pl.Explain(f.fresh(tokens), f.now)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range streams {
		s.Release(f.now)
	}
	f.idle()
	return d.Plans[0].Terms.Interference
}

// Posting a read stops the streams of the reading replica. The cost of each block is learned from the
// engine's counters, and is part of the price.
func TestPostingIsPriced(t *testing.T) {
	f := newFleet(1, 1, nil)
	const tokens = 8000
	before := f.standing(t, tokens)
	var c counts
	c.add(1e9, 0.05, 0.02)
	f.pl.Counted("d1", c.Reads, f.now)
	for range 3 { // 20 ms per gigabyte
		c.add(1e9, 0.05, 0.02)
		f.pl.Counted("d1", c.Reads, f.now)
	}
	after := f.standing(t, tokens)
	bytes := tokens * f.pl.policy.KVBytesPerToken
	if pause := 1e3 * 40 * 0.02 * bytes / 1e9; after-before < pause*0.1 {
		t.Errorf("interference is %.0f ms, and %.0f before; 40 streams stand still for %.0f ms all together",
			after, before, pause)
	}
}

// Each tensor-parallel rank of an engine counts its own transfer of a read, of its own heads. The ranks post
// and read at the same time. The counters of four ranks teach the same posting time and the same link as
// those of one.
func TestRanksCountTheirOwnTransfers(t *testing.T) {
	const tokens, post = 8000, 0.02
	one := 0.0
	for _, ranks := range []int{1, 2, 4, 8} {
		f := newFleet(1, 1, nil)
		c := counts{replica.Reads{Count: 1, Bytes: 1, Seconds: 1}}
		f.pl.Counted("d1", c.Reads, f.now)
		for range 10 {
			b := f.asks(t, tokens)
			f.come(b, f.landed(b, f.now, 0.5+f.over(20e9, tokens)))
			for range ranks {
				c.add(tokens*f.pl.policy.KVBytesPerToken/float64(ranks), f.over(20e9, tokens), post)
			}
			f.pl.Counted("d1", c.Reads, f.now)
			f.pass(time.Second)
		}
		if got := f.over(20e9, tokens) / f.predicted("p1", "d1", tokens); got < 0.5 || got > 2 {
			t.Errorf("%d ranks: blocks take %.2f times as long as predicted", ranks, got)
		}
		now := f.standing(t, tokens)
		if ranks == 1 {
			one = now
		} else if now < one*0.9 || now > one*1.1 {
			t.Errorf("%d ranks: posting a read is priced %.0f ms, and %.0f ms with one rank", ranks, now, one)
		}
	}
	if one < 10 {
		t.Errorf("posting is priced %g ms", one)
	}
}

// A decision records how much of a match the engine must read back, and from where.
func TestTheRecordTellsMemoriesApart(t *testing.T) {
	f := newFleet(1, 1, nil)
	f.store(t, f.prefill, "p1", 1, 64)
	e := kv.Event{Kind: kv.Stored, Tier: kv.CPU, Group: kv.NoGroup, Bare: true}
	for i := range 64 {
		e.Hashes = append(e.Hashes, kv.EngineHash(1<<32|uint64(i)|1<<62))
	}
	gone := kv.Event{Kind: kv.Removed, Hashes: e.Hashes[48:], Group: kv.NoGroup}
	f.prefill.Apply("p1", &kv.Batch{Events: []kv.Event{e, gone}})
	r := f.request(1, 2000)
	r.LocalOK = false
	side := f.plan(t, r).Decision.Plans[0].OnPrefill
	if side == nil || side.Matched != 64*16 || side.Below != (kv.Below{CPU: 16 * 16}) {
		t.Errorf("%+v, want 1024 tokens, 256 of them in host memory", side)
	}
}
