package decode

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-router/tandem/internal/kv"
)

// entries lists all of o.
func (o *ordered) entries() []entry {
	var all []entry
	for _, r := range o.runs {
		all = append(all, r.entries...)
	}
	return all
}

// An order is a sorted list, whatever comes and goes.
func TestAnOrderIsASortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o ordered
		var list []entry
		id := uint64(0)
		for range rapid.IntRange(1, 40).Draw(t, "rounds") {
			leave := rapid.Float64Range(0, 1).Draw(t, "leave")
			for range 50 {
				if len(list) > 0 && rapid.Float64Range(0, 1).Draw(t, "what") < leave {
					at := rapid.IntRange(0, len(list)-1).Draw(t, "which")
					o.remove(list[at])
					list = slices.Delete(list, at, at+1)
					continue
				}
				id++
				e := entry{rapid.Int64Range(-50, 50).Draw(t, "key"), id, rapid.Int64Range(0, 9).Draw(t, "weight")}
				o.add(e)
				at, _ := slices.BinarySearchFunc(list, e, entry.compare)
				list = slices.Insert(list, at, e)
			}
			if got := o.entries(); !slices.Equal(got, list) {
				t.Fatalf("%v, want %v", got, list)
			}
			if len(o.runs) > 2+4*len(list)/mostInRun {
				t.Fatalf("%d runs for %d entries", len(o.runs), len(list))
			}
			limit := rapid.Int64Range(-60, 60).Draw(t, "limit")
			n, weight := 0, int64(0)
			for _, e := range list {
				if e.key < limit {
					n, weight = n+1, weight+e.weight
				}
			}
			if gotN, got := o.before(func(key int64) bool { return key >= limit }); gotN != n || got != weight {
				t.Fatalf("%d of weight %d lie before %d, want %d of %d", gotN, got, limit, n, weight)
			}
		}
	})
}

// keysFrom names the blocks of a prompt that goes its own way from one of them on.
func keysFrom(fork, to, n int) []kv.Key {
	keys := make([]kv.Key, n)
	for i := range keys {
		if keys[i] = kv.Key(i + 1); i >= fork {
			keys[i] += kv.Key(1e6*fork + 1e9*(to+1))
		}
	}
	return keys
}

// checkOrders asks each lease of m what its orders say, and compares what follows from them with a walk over
// all leases.
func checkOrders(t *rapid.T, m *member, now time.Time) {
	g := &m.ledger
	var want orders
	for _, l := range g.leases {
		want.count(l, 1)
	}
	for _, o := range []struct {
		name      string
		got, want *ordered
	}{
		{"reserved", &g.orders.reserved, &want.reserved},
		{"coming", &g.orders.coming, &want.coming},
		{"unsent", &g.orders.unsent, &want.unsent},
		{"landing", &g.orders.landing, &want.landing},
		{"pieces", &g.orders.pieces, &want.pieces},
	} {
		if !slices.Equal(o.got.entries(), o.want.entries()) {
			t.Fatalf("%s of %s: %v, counted %v", o.name, m.R.ID, o.got.entries(), o.want.entries())
		}
	}
	if !slices.Equal(g.orders.held, want.held) || !slices.Equal(g.orders.unanswered, want.unanswered) {
		t.Fatalf("%s: prompts in another order than counted", m.R.ID)
	}
	if len(g.leases) == 0 {
		return
	}
	p := g.leases[0].pool
	for _, l := range g.leases {
		held, unanswered := l.matched, l.matched
		for _, o := range g.leases {
			if o != l && o.state == reported {
				held = p.Common(&l.named, &o.named, held)
			}
			if o != l && o.state >= sent && o.prompt.state != answered {
				unanswered = p.Common(&l.named, &o.named, unanswered)
			}
		}
		if got := g.orders.held.shared(l, l.matched); got != held {
			t.Fatalf("%s: a prompt shares %d tokens with reported ones, want %d", m.R.ID, got, held)
		}
		if got := g.orders.unanswered.shared(l, l.matched); got != unanswered {
			t.Fatalf("%s: a prompt shares %d tokens with unanswered ones, want %d", m.R.ID, got, unanswered)
		}
	}
	for _, wait := range []float64{0, 0.3, 2} {
		const warm = 1.5
		sum, n := 0.0, 0
		for _, l := range g.leases {
			if l.prompt.state == pending && !l.prompt.local {
				sum += max(0, wait+warm-l.needs(wait, now))
				if l.needs(wait, now) < wait+warm {
					n++
				}
			}
		}
		if got := g.orders.delayed(wait, warm, p.sinceEpoch(now)); math.Abs(got-sum) > 1e-6 {
			t.Fatalf("%s: a prompt that begins in %g s delays others by %g s, want %g", m.R.ID, wait, got, sum)
		}
		if got := g.orders.needs(wait, wait+warm, p.sinceEpoch(now)); got != n {
			t.Fatalf("%s: a prompt that begins in %g s delays %d, want %d", m.R.ID, wait, got, n)
		}
	}
	for _, in := range []time.Duration{0, time.Second, time.Minute} {
		at, inbound := p.sinceEpoch(now.Add(in)), time.Duration(0)
		for _, o := range g.leases {
			if o.prompt.state == pending && !o.prompt.local && o.leaves() <= at {
				inbound += o.prompt.inbound.transfer
			}
		}
		if got := g.orders.inbound(at); got != inbound {
			t.Fatalf("%s: %v of transfers begin within %v, want %v", m.R.ID, got, in, inbound)
		}
	}
	for _, l := range g.leases[:min(3, len(g.leases))] {
		ahead := time.Duration(0)
		for _, o := range g.leases {
			if o != l && o.prompt.state == pending && !o.prompt.local && o.leaves() <= p.sinceEpoch(now) {
				ahead += o.prompt.inbound.transfer
			}
		}
		if got := l.ahead(now); got != ahead {
			t.Fatalf("%s: %v of transfers ahead, want %v", m.R.ID, got, ahead)
		}
	}
}

// needs returns in how many seconds l needs a place in a step, beside a local prefill that begins in wait
// seconds and was sent already, +Inf for never.
func (l *Lease) needs(wait float64, now time.Time) float64 {
	if l.state < sent {
		return max(wait, l.prompt.inbound.sendAt.Sub(now).Seconds())
	}
	if lands := max(0, l.prompt.inbound.landAt.Sub(now).Seconds()); lands >= wait {
		return lands
	}
	return math.Inf(1)
}

// Whether all who wait for their prefills find their room is what a walk over them says, one after the other.
func TestRoomForThoseWhoWaitForTheirPrefills(t *testing.T) {
	asked, kept := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := pool(rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "usage"))
		generating(p, 100, rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second}).Draw(t, "speed"))
		if rapid.Bool().Draw(t, "others") {
			p.MergePeer("r2", []PeerLoad{{
				ID: "d1", Reserved: rapid.IntRange(1, 300).Draw(t, "theirs"),
				ReservedIn: time.Duration(rapid.IntRange(0, 20).Draw(t, "in")) * time.Second,
			}}, start)
		}
		for range rapid.IntRange(0, 400).Draw(t, "leases") {
			in := time.Duration(rapid.IntRange(0, 20).Draw(t, "begins")) * time.Second
			if book(t, p, rapid.IntRange(1, 5).Draw(t, "blocks"), start.Add(in), start) == nil {
				break
			}
		}
		m := p.members.All[0]
		a := p.accountNow(m, start)
		a.free -= rapid.IntRange(0, 200).Draw(t, "taken")
		for range 20 {
			blocks := rapid.IntRange(1, 200).Draw(t, "need")
			ready := time.Duration(rapid.IntRange(0, 20).Draw(t, "ready")) * time.Second
			got, want := p.keepsRoom(m, &a, blocks, ready, start), slowlyKeepsRoom(p, m, &a, blocks, ready, start)
			if got != want {
				t.Fatalf("%d blocks in %v: room for all: %v, want %v", blocks, ready, got, want)
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

// slowlyKeepsRoom is [Pool.keepsRoom] as it is said.
func slowlyKeepsRoom(p *Pool, m *member, a *account, blocks int, ready time.Duration, now time.Time) bool {
	type need struct {
		in     time.Duration
		blocks int
	}
	all := []need{{ready, blocks}, {m.remote.ReservedIn, m.remote.Reserved}}
	for _, l := range m.ledger.leases {
		if l.state == reserved {
			all = append(all, need{l.reservation.admitAt.Sub(now), l.whole()})
		}
	}
	slices.SortStableFunc(all, func(a, b need) int { return cmp.Compare(a.in, b.in) })
	sum := 0
	for _, d := range all {
		sum += d.blocks
		if d.in >= ready && d.blocks > 0 && sum > a.free+p.released(m, a, d.in+shortWait) {
			return false
		}
	}
	return true
}

// What goes before a prompt, and behind it, is what a walk over all prompts says.
func TestWhatGoesBeforeAPrompt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, now := inPieces(), start
		var live []*Lease
		defer stream1(t, p).Release(start)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(live) == 0 || rapid.IntRange(0, 2).Draw(t, "what") > 0 {
				l, _ := alone(t, p, rapid.IntRange(100, 8000).Draw(t, "tokens"), now)
				live = append(live, l)
			}
			l := rapid.SampledFrom(live).Draw(t, "which")
			steps := []string{"next", "next", "computed", "failed", "sent", "first", "end"}
			switch rapid.SampledFrom(steps).Draw(t, "does") {
			case "next":
				l.Next(now, func() {})
			case "computed":
				l.Computed(true, -1, Pauses{}, now)
			case "failed":
				l.Computed(false, -1, Pauses{}, now)
			case "sent":
				l.MarkSent(now)
			case "first":
				l.FirstToken(now)
			case "end":
				l.Release(now)
				live = slices.DeleteFunc(live, func(o *Lease) bool { return o == l })
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "ms")) * time.Millisecond)
			checkSums(t, p, now)
			due := p.sinceEpoch(now) + rapid.Int64Range(-1e9, 1e9).Draw(t, "due")
			checkBefore(t, p.members.All[0], due, now)
		}
		for _, l := range live {
			l.Release(now)
		}
		checkSums(t, p, now)
	})
}

func checkBefore(t *rapid.T, m *member, due int64, now time.Time) {
	w := &m.ledger.local
	work, longer := w.work, 0
	front := w.front()
	var behind []*Lease
	for l := w.first; l != nil; l = l.prompt.next {
		behind = append(behind, l)
		if l.prompt.pieces.On && l.due() > due {
			longer++
			work -= l.prompt.predicted
			if l == w.first {
				front.Work = 0
			}
		}
	}
	want := max(0, work-front.Ran(now)).Seconds()
	if wait, n := m.before(due, 0, now); n != longer || math.Abs(wait-want) > 1e-9 {
		t.Fatalf("a turn at %d waits for %g s and goes before %d, want %g and %d", due, wait, n, want, longer)
	}
	for _, l := range behind {
		others := slices.ContainsFunc(behind, func(o *Lease) bool {
			return o != l && (!o.prompt.pieces.On || o.prompt.pieces.Upto > 0)
		})
		if l.behindOthers() != others {
			t.Fatalf("a prompt is behind others: %v, want %v", l.behindOthers(), others)
		}
	}
}
