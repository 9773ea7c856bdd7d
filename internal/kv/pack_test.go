package kv

import "testing"

func TestPackKeepsTheTree(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	fork := func(seed Token) Event {
		return with(stored(4, 8, seed), func(e *Event) { e.Parent = hashes(3, 4, 1)[0] })
	}
	ix.Apply(0, &Batch{Events: []Event{
		stored(0, 3, 9000), stored(0, 8, 1), fork(100), stored(0, 2, 9500), fork(200), fork(300),
		with(stored(0, 8, 1), func(e *Event) { e.Tier = CPU }),
		{Kind: Removed, Hashes: hashes(0, 3, 9000)},
		{Kind: Removed, Hashes: hashes(0, 2, 9500)},
	}})
	before := ix.Stats()
	ix.trees[0].pack()
	checkTrees(t, ix)
	after := ix.Stats()
	if after.Memberships != before.Memberships || after.Bytes >= before.Bytes {
		t.Errorf("%d memberships in %d bytes, were %d in %d", after.Memberships, after.Bytes, before.Memberships, before.Bytes)
	}
	ix.Apply(0, &Batch{Events: []Event{{Kind: Cleared}, stored(8, 9, 1)}})
	checkTrees(t, ix)
	if got := depthOf(ix, 0, promptKeys(9, 1)); got != 9 {
		t.Errorf("depth %d of what lies in both tiers, want 9", got)
	}
}
