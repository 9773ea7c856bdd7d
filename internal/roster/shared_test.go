package roster

import (
	"reflect"
	"testing"

	"github.com/tandem-router/tandem/internal/kv"
)

// Events about memory that other engines read, too, are passed on, and no others.
func TestSharedMemoryIsTold(t *testing.T) {
	tokens := count(32)
	gpu := stored(16, tokens).Events[0]
	gpu.Salt = "tenant"
	named := stored(16, tokens).Events[0]
	named.Bare = true
	chain := kv.NewChain("", 16)
	keys := chain.Append(nil, chain.Root("", "tenant"), tokens)
	blocks := []kv.Named{{Key: keys[0]}, {Before: keys[0], Key: keys[1]}}
	event := func(tier kv.Tier, local bool) kv.Event {
		e := named
		e.Tier, e.Local = tier, local
		return e
	}
	gone := kv.Event{Kind: kv.Removed, Hashes: gpu.Hashes[1:], Tier: kv.Disk, Group: kv.NoGroup}
	for _, tt := range []struct {
		name    string
		events  []kv.Event
		stored  []kv.Named
		removed []kv.Named
	}{
		{name: "a store", events: []kv.Event{event(kv.Shared, false)}, stored: blocks},
		{name: "files", events: []kv.Event{event(kv.Disk, false)}, stored: blocks},
		{name: "files of one machine", events: []kv.Event{event(kv.Disk, true)}},
		{name: "host memory", events: []kv.Event{event(kv.CPU, false)}},
		{name: "a file is removed", events: []kv.Event{gone}, removed: blocks[1:]},
	} {
		r := newRoster("a")
		r.SetIndexing(Indexing{Mode: Events})
		var got [2][]kv.Named
		r.SetShared(func(_ string, kind kv.EventKind, blocks func() []kv.Named) {
			got[kind-kv.Stored] = append(got[kind-kv.Stored], blocks()...)
		})
		r.Apply("a", &kv.Batch{Events: []kv.Event{gpu}})
		r.Apply("a", &kv.Batch{Events: tt.events})
		if !reflect.DeepEqual(got, [2][]kv.Named{tt.stored, tt.removed}) {
			t.Errorf("%s: told %v, want %v and %v", tt.name, got, tt.stored, tt.removed)
		}
	}
}
