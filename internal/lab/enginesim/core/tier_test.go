package core

import (
	"slices"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

const copyTime = 10 * time.Millisecond

func withTier(t *testing.T, edit func(*Config)) (*bench, *Engine) {
	c := Config{BlockSize: 4, Blocks: 17, Tier: Tier{Blocks: 64, Read: copyTime, Write: time.Millisecond}}
	if edit != nil {
		edit(&c)
	}
	e := New(c)
	return newBench(t, e), e
}

// run runs one request to its end, including copies from host memory.
func (b *bench) run(e *Engine, id string, ids []uint32) Output {
	b.t.Helper()
	b.add(e, &Request{ID: id, Prompt: ids, MaxTokens: 1})
	for b.settle(); b.ends[id].ID == ""; b.settle() {
		st := e.Step(b.now)
		if st.Wake <= b.now {
			b.t.Fatalf("%s waits, but no wake is set: %+v", id, st)
		}
		b.now = st.Wake
	}
	return b.ends[id]
}

// Blocks of a prompt that the GPU evicted are restored from host memory. They count as cached, take the time
// of the copies, and give the same text.
func TestEvictedBlocksComeBackFromHostMemory(t *testing.T) {
	b, e := withTier(t, nil)
	ids := prompt(1, 41) // 10 full blocks of 16
	first := b.run(e, "first", ids)
	b.now += time.Second
	b.run(e, "other", prompt(2, 60))
	if n := e.Cached(e.AppendHashes(nil, ids)); n == 10 {
		t.Fatal("the GPU still has the whole prompt")
	}
	b.now += time.Second
	at := b.now
	again := b.run(e, "again", ids)
	gone := int(e.Stats().Restored)
	if again.Cached != 40 || again.Token != first.Token || gone == 0 {
		t.Errorf("%d tokens cached, %d blocks restored, token %d; want 40, some and %d",
			again.Cached, gone, again.Token, first.Token)
	}
	if took := b.now - at; took != time.Duration(gone)*copyTime {
		t.Errorf("%d evicted blocks were restored in %v", gone, took)
	}
	if n := e.Cached(e.AppendHashes(nil, ids)); n != 10 {
		t.Errorf("the GPU has %d blocks of the prompt", n)
	}
	if s := e.Stats(); s.NixlTransfers+s.NixlFailed != 0 || s.PromptExternal != uint64(gone*4) || s.Usage != 0 {
		t.Errorf("%+v", s)
	}
}

// A block is not read before its copy is complete.
func TestUnfinishedCopyIsNotRead(t *testing.T) {
	b, e := withTier(t, func(c *Config) { c.Tier.Write = time.Hour })
	ids := prompt(1, 41)
	b.run(e, "first", ids)
	b.run(e, "other", prompt(2, 60))
	if again := b.run(e, "again", ids); again.Cached >= 40 || e.Stats().Restored != 0 {
		t.Errorf("%d tokens cached, %d blocks restored", again.Cached, e.Stats().Restored)
	}
}

// Events of host memory contain hashes only, or also tokens. They follow those of the GPU. Host memory evicts
// the least recently requested blocks.
func TestEventsOfHostMemory(t *testing.T) {
	for _, telling := range []bool{false, true} {
		b, e := withTier(t, func(c *Config) { c.Tier.Blocks, c.Tier.Telling = 12, telling })
		ids := prompt(1, 41)
		b.run(e, "first", ids)
		b.run(e, "other", prompt(2, 21)) // 5 blocks: 3 of the first 10 are evicted
		b.run(e, "last", prompt(3, 2))   // flushes the events
		hashes, known := e.AppendHashes(nil, ids), map[kv.EngineHash]bool{}
		gpu := map[kv.EngineHash]bool{}
		for _, ev := range b.events[e] {
			if ev.Tier == kv.GPU {
				for _, h := range ev.Hashes {
					gpu[h] = true
				}
				continue
			}
			if tells := ev.Kind == kv.Stored && ev.BlockSize == 4 && len(ev.Tokens) == 4*len(ev.Hashes); ev.Kind ==
				kv.Stored && tells != telling {
				t.Errorf("%+v", ev)
			}
			for _, h := range ev.Hashes {
				if known[h] = ev.Kind == kv.Stored; !gpu[h] {
					t.Errorf("host memory announced a block that the GPU never had")
				}
			}
		}
		left := 0
		for _, h := range hashes {
			if known[h] {
				left++
			}
		}
		if left != 7 {
			t.Errorf("host memory has %d blocks of the first prompt, want 7", left)
		}
	}
}

// A client that disconnects during a restore leaks no block.
func TestAbortWhileBlocksComeBack(t *testing.T) {
	b, e := withTier(t, nil)
	ids := prompt(1, 41)
	b.run(e, "first", ids)
	b.now += time.Second
	b.run(e, "other", prompt(2, 60))
	b.now += time.Second
	b.add(e, &Request{ID: "again", Prompt: ids, MaxTokens: 1})
	b.settle()
	e.Abort(b.now, "again")
	if s := e.Stats(); s.Usage == 0 {
		t.Error("blocks with a write in progress are free")
	}
	b.now = e.Step(b.now).Wake
	e.Step(b.now)
	if s := e.Stats(); s.Usage != 0 || len(e.known.held) != 0 {
		t.Errorf("%+v", s)
	}
	if got := b.run(e, "once more", ids); !slices.Equal(b.text["once more"], b.text["first"]) {
		t.Errorf("%+v", got)
	}
}

// dense is a hybrid engine that keeps every block of its sliding window, as vLLM before 0.29 does.
func dense(c *Config) {
	c.Groups = []Group{{Kind: fullAttention}, {Kind: "sliding_window", Window: 4}}
	c.Retain, c.Blocks = true, 25
}

// Blocks of a sliding window lie in host memory beside those of full attention, and take as much of it. A
// prompt that comes back needs the blocks of the window at its end only.
func TestHostMemoryHoldsWindows(t *testing.T) {
	b, e := withTier(t, dense)
	ids := prompt(1, 41) // 10 full blocks
	first := b.run(e, "first", ids)
	if s := e.Stats(); s.Offloaded != 20 || e.pool.tier.Store.Len() != 20 {
		t.Errorf("%d blocks copied, %d there, want 20", s.Offloaded, e.pool.tier.Store.Len())
	}
	b.now += time.Second
	b.run(e, "other", prompt(2, 60))
	b.now += time.Second
	if n := e.Cached(e.AppendHashes(nil, ids)); n != 0 {
		t.Fatalf("the GPU still has %d blocks", n)
	}
	again := b.run(e, "again", ids)
	if s := e.Stats(); again.Cached != 40 || again.Token != first.Token || s.Restored != 11 {
		t.Errorf("%d tokens cached, token %d, %d blocks restored; want 40, %d and 11",
			again.Cached, again.Token, s.Restored, first.Token)
	}
}

// If host memory has lost the window's block at the end of a prefix, the prefix is of use up to a block that
// the window has.
func TestPrefixInHostMemoryNeedsItsWindow(t *testing.T) {
	b, e := withTier(t, dense)
	ids := prompt(1, 41)
	b.run(e, "first", ids)
	b.now += time.Second
	b.run(e, "other", prompt(2, 60))
	s := e.pool.tier.Store
	for _, h := range e.groups.names(1, e.AppendHashes(nil, ids)[7:]) {
		s.order.Remove(s.known[h])
		delete(s.known, h)
	}
	if again := b.run(e, "again", ids); again.Cached != 28 || e.Stats().Restored != 8 {
		t.Errorf("%d tokens cached, %d blocks restored; want 28 and 8", again.Cached, e.Stats().Restored)
	}
}

// Events of host memory name the group of each block that comes or goes.
func TestEventsOfHostMemoryNameGroups(t *testing.T) {
	b, e := withTier(t, func(c *Config) { dense(c); c.Tier.Blocks = 25 })
	ids := prompt(1, 41)
	b.run(e, "first", ids)
	b.run(e, "other", prompt(2, 21)) // 5 blocks in each group
	b.run(e, "third", prompt(3, 21)) // and 5 more: of the first prompt's 20, 15 go
	b.run(e, "last", prompt(4, 2))   // flushes the events
	var there [2]map[kv.EngineHash]bool
	for _, ev := range b.events[e] {
		if ev.Tier != kv.CPU {
			continue
		}
		if there[ev.Group] == nil {
			there[ev.Group] = map[kv.EngineHash]bool{}
		}
		for _, h := range ev.Hashes {
			there[ev.Group][h] = ev.Kind == kv.Stored
		}
	}
	for group, known := range there {
		n := 0
		for h, is := range known {
			if is != (e.pool.tier.Store.known[e.groups.nameIn(group, h)] != nil) {
				t.Errorf("group %d: an event says %v", group, is)
			}
			if is {
				n++
			}
		}
		if want := [2]int{10, 15}[group]; n != want {
			t.Errorf("group %d has %d blocks, want %d", group, n, want)
		}
	}
}
