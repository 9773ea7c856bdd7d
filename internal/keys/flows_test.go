package keys

import (
	"strconv"
	"testing"
	"time"
)

// The flows of a tenant divide its share. A flow that has not asked for a minute has no part. Invented names
// are at most sixteen flows.
func TestFlowsDivideTheShareOfATenant(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	f := &Flows{}
	if number, part := f.Note("", now); number != 0 || part != 1 {
		t.Errorf("alone: flow %d has %v", number, part)
	}
	a, part := f.Note("a", now)
	if again, _ := f.Note("a", now); a == 0 || a != again || part != 0.5 {
		t.Errorf("flow %d, again %d, has %v", a, again, part)
	}
	if _, part = f.Note("a", now.Add(time.Minute)); part != 1 {
		t.Errorf("alone again, the flow has %v", part)
	}
	seen := map[uint32]bool{}
	now = now.Add(time.Hour)
	for i := range 10_000 {
		number, part := f.Note("invented "+strconv.Itoa(i), now)
		seen[number] = true
		if want := 1 / float64(len(seen)); part != want || number >= mostFlows || number == 0 {
			t.Fatalf("flow %d of %d has %v", number, len(seen), part)
		}
	}
	if len(seen) != mostFlows-1 {
		t.Errorf("%d flows", len(seen))
	}
}
