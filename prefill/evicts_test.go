package prefill

import (
	"testing"

	"github.com/tandem-router/tandem/internal/replica"
)

// A prompt pays for what it evicts: for the blocks that do not fit, at most its own, by the chance that they
// are needed again.
func TestEvictionsHaveAPrice(t *testing.T) {
	m := &member{}
	m.R = &replica.Replica{Facts: replica.Facts{Blocks: 101}}
	for _, tt := range []struct {
		name    string
		taken   int32
		returns float64
		blocks  float64
	}{
		{"room for all", 90, 0.5, 0},
		{"room for some", 96, 0.5, 6},
		{"no room", 100, 0.5, 10},
		{"more is promised than there is", 300, 0.5, 10},
		{"nothing returns", 100, 0, 0},
	} {
		p := New(Options{})
		s := survey{
			Query: &Query{}, learned: &p.learned, now: start, unit: 16, taken: []int32{tt.taken}, returns: tt.returns,
		}
		c := Candidate{member: m, Tokens: 16*15 - 3, Expected: 16 * 5}
		speed := m.pricing(p.learned.of(m), start)
		want := tt.blocks * 16 * tt.returns * speed.Prefill(1000, 0) / 1000
		if got := s.evicts(&c); got != want || tt.blocks > 0 && got == 0 {
			t.Errorf("%s: %v s, want %v", tt.name, got, want)
		}
	}
}
