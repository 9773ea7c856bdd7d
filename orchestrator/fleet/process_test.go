package fleet

import "testing"

func TestProcesses(t *testing.T) {
	var ps processes
	a := ps.of("http://a")
	a.epoch.Add(1)
	if ps.of("http://a") != a || ps.note(a, 0) || ps.note(a, 5) || ps.note(a, 5) || a.epoch.Load() != 1 {
		t.Errorf("epoch %d of a process of which nothing new is known, want 1", a.epoch.Load())
	}
	if b := ps.of("http://b"); ps.note(b, 5) || b.epoch.Load() != 1 {
		t.Errorf("epoch %d by another address, want 1", b.epoch.Load())
	}
	if c := ps.of("http://c"); ps.note(c, 6) || c.epoch.Load() != 0 {
		t.Errorf("epoch %d of another process, want 0", c.epoch.Load())
	}
	ps.keep(map[string]bool{"http://c": true})
	if len(ps.by) != 3 {
		t.Errorf("%d are remembered, want those that are distrusted and the one that is there", len(ps.by))
	}
	if !ps.note(a, 7) || ps.note(a, 8) || a.epoch.Load() != 0 {
		t.Error("another process at the same address is not trusted")
	}
	ps.keep(nil)
	if len(ps.by) != 1 || ps.of("http://b").epoch.Load() != 1 {
		t.Errorf("%d are remembered, want the one that is distrusted", len(ps.by))
	}
}
