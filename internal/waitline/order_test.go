package waitline

import (
	"cmp"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// obvious is the slow, obvious twin of a line with classes, tenants and goals: it looks at every request.
type obvious struct {
	slow
	left int
}

// first returns the number of the request that is first.
func (o *obvious) first(now time.Duration, start func(tenant uint32) float64) uint64 {
	kind := func(w Wait) [3]int { return [3]int{w.Order.Rank, int(w.Order.Tenant), int(min(1, w.Order.Due))} }
	kinds := map[[3]int]slow{}
	for _, w := range o.slow {
		kinds[kind(w)] = append(kinds[kind(w)], w)
	}
	if len(kinds) == 1 && o.slow[0].Order.Due == 0 {
		return o.order()[0]
	}
	if o.left%10 == 9 {
		return slices.MinFunc(o.slow, func(a, b Wait) int {
			return cmp.Or(cmp.Compare(a.Came, b.Came), cmp.Compare(a.Number, b.Number))
		}).Number
	}
	lost := func(w Wait) int {
		if w.Order.Due != 0 && w.Order.Due < now {
			return 1
		}
		return 0
	}
	var best []Wait // of each kind
	for _, all := range kinds {
		w := all[0]
		for _, other := range all {
			if w.Order.Due == 0 {
				break
			}
			late := cmp.Compare(other.Order.Due, w.Order.Due)
			if lost(w)+lost(other) == 2 {
				late = -late
			}
			number := cmp.Compare(other.Number, w.Number)
			if lost(w)+lost(other) == 2 {
				number = -number
			}
			if cmp.Or(cmp.Compare(lost(other), lost(w)), late, number) < 0 {
				w = other
			}
		}
		if w.Order.Due == 0 {
			long := o.backlog() > 4*time.Second
			w = slices.MinFunc(all, func(a, b Wait) int {
				if long {
					return cmp.Or(cmp.Compare(a.Room-a.Came, b.Room-b.Came), cmp.Compare(b.Number, a.Number))
				}
				return cmp.Or(cmp.Compare(a.Came+a.Room, b.Came+b.Room), cmp.Compare(a.Number, b.Number))
			})
		}
		best = append(best, w)
	}
	return slices.MinFunc(best, func(a, b Wait) int {
		due := cmp.Compare(a.Order.Due, b.Order.Due)
		if lost(a) == 1 {
			due = -due
		}
		return cmp.Or(
			cmp.Compare(a.Order.Rank, b.Order.Rank), cmp.Compare(lost(a), lost(b)),
			cmp.Compare(start(a.Order.Tenant), start(b.Order.Tenant)),
			cmp.Compare(min(1, b.Order.Due), min(1, a.Order.Due)), due, cmp.Compare(a.Number, b.Number),
		)
	}).Number
}

// Whatever comes and goes, the first request of a line with classes, tenants and goals is the first request
// of the obvious line.
func TestFirstIsThatOfALookAtEverybody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Line[uint64]
		var twin obvious
		var places []*Place[uint64]
		shares := &Shares{}
		until := map[uint32]float64{} // of the shares, never forgotten
		start := func(tenant uint32) float64 { return max(shares.clock-credit, until[tenant]) }
		now := time.Duration(0)
		for number := range uint64(rapid.IntRange(1, 60).Draw(t, "steps")) {
			now += time.Duration(rapid.IntRange(0, 3).Draw(t, "passes")) * time.Second
			if len(places) > 0 && rapid.IntRange(0, 2).Draw(t, "leaves") == 0 {
				i := rapid.IntRange(0, len(places)-1).Draw(t, "which")
				gone := twin.slow[i].Order
				if rapid.Bool().Draw(t, "room") {
					l.Leaves()
					if one := l.plain(); !one {
						twin.left++
					}
					cost := float64(rapid.IntRange(1, 9).Draw(t, "cost"))
					from := start(gone.Tenant)
					shares.charge(gone.Tenant, cost/gone.weight(), from, now)
					until[gone.Tenant] = from + cost/gone.weight()
				}
				l.Remove(places[i])
				places, twin.slow = slices.Delete(places, i, i+1), slices.Delete(twin.slow, i, i+1)
			}
			w := Wait{
				Came: now, Number: number + 1,
				Room:  time.Duration(rapid.IntRange(0, 5).Draw(t, "wait")) * time.Second,
				Every: time.Duration(rapid.IntRange(0, 600).Draw(t, "every")) * time.Millisecond,
				Order: Order{
					Rank: rapid.IntRange(0, 1).Draw(t, "rank"), Tenant: uint32(rapid.IntRange(1, 3).Draw(t, "tenant")),
					Weight: float64(rapid.IntRange(0, 2).Draw(t, "weight")),
				},
			}
			if rapid.Bool().Draw(t, "goal") {
				w.Order.Due = now + time.Duration(rapid.IntRange(1, 9).Draw(t, "due"))*time.Second
			}
			places, twin.slow = append(places, l.Push(w.Number, w)), append(twin.slow, w)
			got, want := l.First(view{now, shares}).Who, twin.first(now, start)
			if got != want {
				t.Fatalf("%d is first at %v, want %d of %+v", got, now, want, twin.slow)
			}
			if all := l.All(view{now, shares}); len(all) != len(places) || l.Len() != len(places) {
				t.Fatalf("%d of %d wait", len(all), len(places))
			}
		}
	})
}

// desk serves one request of a queue at a time.
type desk struct {
	t      *testing.T
	q      Queue[int]
	at     time.Duration
	served []int // by tenant
	waits  [][]time.Duration
	came   []time.Duration // by request
	of     []Order
}

func newDesk(t *testing.T, tenants, limit int) *desk {
	return &desk{
		t: t, q: Queue[int]{Limit: limit}, served: make([]int, tenants+1),
		waits: make([][]time.Duration, tenants+1),
	}
}

func (d *desk) come(o Order) error {
	d.q.At(d.at)
	d.came, d.of = append(d.came, d.at), append(d.of, o)
	_, err := d.q.Join(&Newcomer[int]{Who: len(d.came) - 1, Came: d.at, Order: o, Seen: 1})
	return err
}

// serve gives room to the first request, and returns the number of this request; -1 if there is none.
func (d *desk) serve(cost float64) int {
	d.at += time.Second
	d.q.At(d.at)
	d.q.Wake()
	got := -1
	for w := d.q.Next(); w != nil; w = d.q.Next() {
		switch {
		case d.q.Displaced(w):
			d.q.Leave(w)
		case !d.q.Begin(w):
		case got >= 0:
			d.q.Again(w, Found{}, 0)
		default:
			got = w.Who
			d.q.Admit(w, cost)
		}
	}
	if got >= 0 {
		tenant := d.of[got].Tenant
		d.served[tenant]++
		d.waits[tenant] = append(d.waits[tenant], d.at-d.came[got])
	}
	return got
}

// Tenants that always wait get room by their weights. A tenant that asks for little waits for a few requests,
// however many requests of other tenants wait.
func TestTenantsGetTheirShares(t *testing.T) {
	d := newDesk(t, 3, 10_000)
	for range 1000 {
		for range 3 {
			_ = d.come(Order{Tenant: 1})
			_ = d.come(Order{Tenant: 2, Weight: 3})
		}
	}
	for i := range 800 {
		if i%10 == 0 {
			_ = d.come(Order{Tenant: 3})
		}
		d.serve(2)
	}
	// One of ten is the oldest request. Tenants 1 and 2 have the oldest request in turn.
	if ratio := float64(d.served[2]) / float64(d.served[1]); ratio < 2.5 || ratio > 3.1 {
		t.Errorf("served %v of tenants with weights 1 and 3", d.served[1:])
	}
	if longest := slices.Max(d.waits[3]); d.served[3] < 79 || longest > 3*time.Second {
		t.Errorf("%d of the modest tenant are served, the longest wait is %v", d.served[3], longest)
	}
}

// A request of the last class gets room although requests of the first class always wait: at the latest after
// ten requests for each older request.
func TestNobodyStarves(t *testing.T) {
	d := newDesk(t, 1, 10_000)
	for range 50 {
		_ = d.come(Order{Rank: 1, Tenant: 1, Due: 1})
	}
	_ = d.come(Order{Rank: 2, Tenant: 1})
	patient := len(d.came) - 1
	for i := range 51 * 10 {
		_ = d.come(Order{Rank: 1, Tenant: 1, Due: d.at + time.Hour})
		if d.serve(1) == patient {
			if i < 10 {
				t.Errorf("the request is served as number %d", i)
			}
			return
		}
	}
	t.Error("a request of the last class starves")
}

// In a full queue a newcomer takes the place of the newest request of the worst class. It never takes the
// place of a request that was admitted before, or of a request of a better class. Within a class the tenant
// with the most requests loses a request.
func TestNewcomersDisplace(t *testing.T) {
	d := newDesk(t, 3, 4)
	come := func(want error, o Order) {
		t.Helper()
		if err := d.come(o); !errors.Is(err, want) {
			t.Errorf("%+v: %v, want %v", o, err, want)
		}
	}
	come(nil, Order{Rank: 3, Tenant: 1})
	come(nil, Order{Rank: 2, Tenant: 1})
	come(nil, Order{Rank: 2, Tenant: 1})
	come(nil, Order{Rank: 2, Tenant: 1})
	come(ErrFull, Order{Rank: 3, Tenant: 1})
	come(ErrFull, Order{Rank: 4, Tenant: 2})
	come(nil, Order{Rank: 2, Tenant: 1})     // for the first, of class 3
	come(ErrFull, Order{Rank: 2, Tenant: 1}) // of the same tenant
	come(nil, Order{Rank: 2, Tenant: 2})     // for the newest, 4
	come(nil, Order{Rank: 2, Tenant: 2})     // for 3: then both have two
	come(ErrFull, Order{Rank: 2, Tenant: 2})
	come(ErrFull, Order{Rank: 2, Tenant: 3, Weight: 0.5})
	if _, err := d.q.Join(&Newcomer[int]{Who: 99, Running: true, Order: Order{Rank: 9}}); err != nil {
		t.Errorf("a running request: %v", err)
	}
	come(nil, Order{Rank: 1, Tenant: 1}) // for the newest of the larger crowd
	var out, left []int
	for w := d.q.Next(); w != nil; w = d.q.Next() {
		if d.q.Displaced(w) {
			out = append(out, w.Who)
			d.q.Again(w, Found{}, 1)
			d.q.Move(w, 1)
			if d.q.Begin(w) {
				t.Errorf("%d may try", w.Who)
			}
			d.q.Leave(w)
		}
	}
	for _, w := range d.q.All() {
		left = append(left, w.Who)
	}
	slices.Sort(out)
	want := []int{0, 3, 6}
	if !slices.Equal(out[:3], want) || len(out) != 4 || len(left) != 5 || d.q.Len() != 5 {
		t.Errorf("%v are displaced, %v wait", out, left)
	}
}

// A tenant is ahead of its share only while another tenant asks too, and only until the other tenant has had
// as much. A tenant that asks for little is not ahead when it asks for several things at once.
func TestTenantsAreAheadOfTheirShares(t *testing.T) {
	var q Queue[int]
	a, b := Order{Tenant: 1}, Order{Tenant: 2}
	for range 5 {
		q.Charge(a, 3)
	}
	if q.Bound(a) > 0 {
		t.Error("a tenant that is alone is ahead")
	}
	for range 4 {
		q.Charge(b, credit/4.)
	}
	if q.Bound(Order{}) > 0 || q.Bound(a) == 0 || q.Bound(b) > 0 {
		t.Error("the modest tenant is ahead, or the other one is not")
	}
	if q.Charge(b, credit/4.); q.Bound(b) == 0 {
		t.Error("a tenant without credit is not ahead")
	}
	q.Charge(a, 3)
	if q.Bound(b) > 0 || q.Bound(a) == 0 {
		t.Error("the clock did not pass the modest tenant")
	}
	if q.At(lately + 1); q.Bound(a) > 0 {
		t.Error("a tenant is ahead of a tenant that left a minute ago")
	}
	for tenant := range uint32(100_000) {
		q.At(q.now + time.Second)
		q.Charge(Order{Tenant: tenant + 1}, 1)
	}
	if n := len(q.shares.by); n > 1000 {
		t.Errorf("%d tenants are remembered", n)
	}
}
