package fleet

import (
	"slices"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

func TestProcesses(t *testing.T) {
	var ps processes
	now := time.Now()
	a := ps.of("http://a")
	ps.distrust(a, 0, now)
	if ps.of("http://a") != a || ps.note(a, 0) || ps.note(a, 5) || ps.note(a, 5) || a.epoch.Load() != 1 {
		t.Errorf("epoch %d of a process of which nothing new is known, want 1", a.epoch.Load())
	}
	if b := ps.of("http://b"); ps.note(b, 5) || b.epoch.Load() != 1 {
		t.Errorf("epoch %d by another address, want 1", b.epoch.Load())
	}
	if c := ps.of("http://c"); ps.note(c, 6) || c.epoch.Load() != 0 {
		t.Errorf("epoch %d of another process, want 0", c.epoch.Load())
	}
	ps.forget("http://a")
	ps.forget("http://b")
	if len(ps.by) != 1 {
		t.Errorf("%d are remembered, want the one that is there", len(ps.by))
	}
	a = ps.of("http://a")
	if ps.note(a, 5) || a.epoch.Load() != 1 {
		t.Errorf("epoch %d of a process that comes back, want 1", a.epoch.Load())
	}
	if !ps.note(a, 7) || ps.note(a, 8) || a.epoch.Load() != 0 {
		t.Error("another process at the same address is not trusted")
	}
}

// A request from an ended era does not end the present era: the blocks that the request may have read wrongly
// are no longer used.
func TestOneEraEndsOnce(t *testing.T) {
	var ps processes
	p, now := ps.of("http://a"), time.Now()
	for i, tt := range []struct{ sent, want uint32 }{{0, 1}, {0, 1}, {1, 2}, {0, 2}, {1, 2}, {2, 3}} {
		if got := ps.distrust(p, tt.sent, now); got != tt.want || p.epoch.Load() != tt.want {
			t.Errorf("%d: era %d, want %d", i, got, tt.want)
		}
	}
}

// The report of another router holds for the process that it names, now or later, and for no other process.
func TestHeardDistrust(t *testing.T) {
	var ps processes
	now := time.Now()
	there, unknown := ps.of("http://there"), ps.of("http://unknown")
	ps.note(there, 5)
	ps.hear([]replica.Distrust{
		{Started: 5, Era: 3, Seen: now.Unix()},
		{Started: 6, Era: 2, Seen: now.Unix()},
		{Started: 7, Era: 4, Seen: now.Add(-8 * 24 * time.Hour).Unix()},
		{URL: "http://unknown", Era: 1, Seen: now.Unix()},
	}, now)
	later, old := ps.of("http://later"), ps.of("http://old")
	ps.note(later, 6)
	ps.note(old, 7)
	for _, tt := range []struct {
		p    *process
		want uint32
	}{{there, 3}, {later, 2}, {old, 0}, {unknown, 1}, {ps.of("http://other"), 0}} {
		if got := tt.p.epoch.Load(); got != tt.want {
			t.Errorf("%s is in era %d, want %d", tt.p.url, got, tt.want)
		}
	}
	changes := ps.changes.Load()
	ps.hear([]replica.Distrust{{Started: 5, Era: 2, Seen: now.Unix()}, {Started: 5, Era: 3, Seen: now.Unix()}},
		now)
	if there.epoch.Load() != 3 || ps.changes.Load() != changes {
		t.Error("what is known already changes something")
	}
	if era := ps.distrust(there, 3, now); era != 4 {
		t.Errorf("era %d after another one was found here, want 4", era)
	}
	if !ps.note(later, 8) || later.epoch.Load() != 0 {
		t.Error("a restart does not end a distrust that was heard")
	}
	// another router has not noticed the restart
	ps.hear([]replica.Distrust{{Started: 6, Era: 2, Seen: now.Unix()}}, now)
	if later.epoch.Load() != 0 {
		t.Error("the process after a restart is taken for the one before it")
	}
}

// Distrust of a process is passed on to other routers, but not for ever: it ends a week after the last router
// used the process.
func TestDistrustIsForgottenInTheEnd(t *testing.T) {
	var ps processes
	now := time.Now()
	p := ps.of("http://a")
	ps.note(p, 5)
	ps.distrust(p, 0, now)
	ps.hear([]replica.Distrust{{Started: 6, Era: 2, Seen: now.Unix()}}, now)
	starts := func(at time.Time) (out []float64) {
		for _, d := range ps.all(at) {
			out = append(out, d.Started)
		}
		slices.Sort(out)
		return out
	}
	if got := starts(now); !slices.Equal(got, []float64{5, 6}) {
		t.Errorf("those that began at %v are told, want 5 and 6", got)
	}
	if got := starts(now.Add(8 * 24 * time.Hour)); !slices.Equal(got, []float64{5}) {
		t.Errorf("a week later those that began at %v are told, want the one that is there", got)
	}
}
