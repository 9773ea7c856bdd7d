package kv

import "testing"

func TestAssume(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	ix.Assume(0, promptKeys(8, 1), 100)
	ix.Assume(0, promptKeys(8, 1), 100)
	if got := depthOf(ix, 0, promptKeys(9, 1)); got != 8 {
		t.Errorf("depth %d, want 8", got)
	}
	if got := ix.Stats().Memberships; got != 8 {
		t.Errorf("%d memberships of a prompt assumed twice, want 8", got)
	}
	ix.Forget(0)
	if got := depthOf(ix, 0, promptKeys(8, 1)); got != 0 {
		t.Errorf("depth %d after Forget", got)
	}
}

func TestAssumeKeepsWhatIsUsed(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	for i := range 50 {
		ix.Assume(0, promptKeys(8, 1), 80)
		ix.Assume(0, promptKeys(8, Token(1000*(i+1))), 80)
		if n := ix.Stats().Memberships; n > 80 {
			t.Fatalf("%d memberships of at most 80", n)
		}
	}
	if got := depthOf(ix, 0, promptKeys(8, 1)); got != 8 {
		t.Errorf("depth %d of the prompt that is always used, want 8", got)
	}
	if got := depthOf(ix, 0, promptKeys(8, 1000)); got != 0 {
		t.Errorf("depth %d of the prompt not seen for longest, want 0", got)
	}
	if got := depthOf(ix, 0, promptKeys(8, 50000)); got != 8 {
		t.Errorf("depth %d of the latest prompt, want 8", got)
	}
}

func TestAssumeCutsAPromptLargerThanTheLimit(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	for _, tt := range []struct{ limit, want int }{{20, 20}, {-1, 0}, {0, 0}} {
		ix.Forget(0)
		ix.Assume(0, promptKeys(50, 1), tt.limit)
		if got := depthOf(ix, 0, promptKeys(50, 1)); got != tt.want {
			t.Errorf("limit %d: depth %d, want %d", tt.limit, got, tt.want)
		}
	}
}
