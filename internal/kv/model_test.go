package kv

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"
)

// A small world, so that everything happens often: prompts of at most five blocks with two contents each, two roots, five holders in three banks.
const worldDepth = 5

var (
	worldChain   = NewChain("m", 2)
	worldHolders = []Holder{0, 1, 63, 64, 130}
	worldRoots   = [][2]string{{"", ""}, {"a", ""}, {"", "a"}}
)

const worldWidth = 131 // holders that Match is asked for

// path is a prompt of the small world: a root and one bit a block.
type path struct {
	root   int
	blocks []byte
}

func (p path) lora() string { return worldRoots[p.root][0] }
func (p path) salt() string { return worldRoots[p.root][1] }

func (p path) tokens(from int) []Token {
	tokens := []Token{}
	for _, b := range p.blocks[from:] {
		tokens = append(tokens, Token(b), Token(b)+10)
	}
	return tokens
}

func (p path) keys() []Key {
	return worldChain.Append(nil, worldChain.Root(p.lora(), p.salt()), p.tokens(0))
}

// hash is the engine's name for the first n blocks. Engines of different variants name the same content differently.
func (p path) hash(n, variant int) EngineHash {
	return EngineHash(xxhash.Sum64String(fmt.Sprint(p.root, p.blocks[:n], variant)))
}

func (p path) stored(from, variant int) Event {
	e := Event{Kind: Stored, BlockSize: 2, Tokens: p.tokens(from)}
	for n := from + 1; n <= len(p.blocks); n++ {
		e.Hashes = append(e.Hashes, p.hash(n, variant))
	}
	if from > 0 {
		e.Parent, e.HasParent = p.hash(from, variant), true
	} else {
		e.LoRA, e.Salt = p.lora(), p.salt()
	}
	return e
}

func drawPath(t *rapid.T) path {
	return path{
		root:   rapid.IntRange(0, len(worldRoots)-1).Draw(t, "root"),
		blocks: rapid.SliceOfN(rapid.ByteRange(0, 1), 1, worldDepth).Draw(t, "blocks"),
	}
}

func drawPlace(t *rapid.T, e Event) Event {
	e.Tier = rapid.SampledFrom([]Tier{GPU, GPU, GPU, CPU, Disk}).Draw(t, "tier")
	e.Group = rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "group")
	return e
}

// allPaths are all full-length prompts of the small world.
func allPaths() (all []path) {
	for root := range worldRoots {
		for bits := range 1 << worldDepth {
			p := path{root: root}
			for i := range worldDepth {
				p.blocks = append(p.blocks, byte(bits>>i&1))
			}
			all = append(all, p)
		}
	}
	return all
}

// model drives an Index and its twin with the same steps.
type model struct {
	index *Index
	twin  *twin
	now   time.Time
	all   [][]Key

	noCollisions bool
}

func newModel(budget int64) *model {
	m := &model{index: NewIndex(Options{Chain: worldChain, ByteBudget: budget}), twin: newTwin(worldChain), now: time.Unix(1000, 0)}
	for _, p := range allPaths() {
		m.all = append(m.all, p.keys())
	}
	return m
}

// drawHolder mostly draws the first, so that much happens to one.
func drawHolder(t *rapid.T) Holder {
	return worldHolders[max(0, rapid.IntRange(-6, len(worldHolders)-1).Draw(t, "holder"))]
}

func (m *model) drawEvent(t *rapid.T) Event {
	p := drawPath(t)
	variant := rapid.SampledFrom([]int{0, 0, 0, 0, 1}).Draw(t, "variant")
	switch rapid.IntRange(0, 9).Draw(t, "event") {
	case 0, 1, 2, 3: // behind a parent that may be missing
		return drawPlace(t, p.stored(rapid.IntRange(0, len(p.blocks)-1).Draw(t, "from"), variant))
	case 4:
		return drawPlace(t, p.stored(0, variant))
	case 5, 6:
		n := rapid.IntRange(1, len(p.blocks)).Draw(t, "block")
		return drawPlace(t, Event{Kind: Removed, Hashes: []EngineHash{p.hash(n, variant)}})
	case 7: // a whole tail, from its end as engines do
		e := Event{Kind: Removed}
		for n := len(p.blocks); n > 0; n-- {
			e.Hashes = append(e.Hashes, p.hash(n, variant))
		}
		return drawPlace(t, e)
	case 8:
		if rapid.IntRange(0, 3).Draw(t, "really") == 0 {
			return drawPlace(t, Event{Kind: Cleared})
		}
	}
	return m.drawOdd(t, drawPlace(t, p.stored(0, variant)))
}

// drawOdd spoils a stored event in one of the ways that engines do, or collisions would.
func (m *model) drawOdd(t *rapid.T, e Event) Event {
	odd := 4
	if m.noCollisions {
		odd = 3
	}
	switch rapid.IntRange(0, odd).Draw(t, "odd") {
	case 0:
		e.Tokens = append(e.Tokens, 1, 2)
	case 1:
		e.BlockSize = 1
	case 2:
		e.SpecKind = "sliding_window"
	case 3:
		e.Hashes = nil
	case 4:
		e.Hashes[len(e.Hashes)-1] = EngineHash(rapid.IntRange(1, 2).Draw(t, "collision"))
	}
	return e
}

func (m *model) apply(t *rapid.T) {
	h := drawHolder(t)
	b := &Batch{}
	for range rapid.IntRange(1, 3).Draw(t, "events") {
		b.Events = append(b.Events, m.drawEvent(t))
	}
	got, want := m.index.Apply(h, b), m.twin.apply(h, b)
	if got != want {
		t.Fatalf("Apply(%d, %+v) = %+v, want %+v", h, b, got, want)
	}
}

func (m *model) forget(t *rapid.T) {
	h := drawHolder(t)
	m.index.Forget(h)
	m.twin.forget(h)
}

func (m *model) forgetTier(t *rapid.T) {
	h, tier := drawHolder(t), rapid.SampledFrom([]Tier{GPU, CPU, Disk, Other}).Draw(t, "tier")
	m.index.ForgetTier(h, tier)
	m.twin.clear(h, tier)
}

func (m *model) speculate(t *rapid.T) {
	h, keys := drawHolder(t), drawPath(t).keys()
	until := m.now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "for")) * time.Second)
	m.index.Speculate(h, keys, until)
	m.twin.speculate(h, slices.Clone(keys), until)
}

func (m *model) expire(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "passed")) * time.Second)
	m.index.Expire(m.now)
	m.twin.expire(m.now)
}

func (m *model) steps() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"apply": m.apply, "apply again": m.apply, "apply more": m.apply, "forget": m.forget,
		"forget tier": m.forgetTier, "speculate": m.speculate, "expire": m.expire, "pack": m.pack,
	}
}

// pack shakes the trees in a way that must not be seen from outside.
func (m *model) pack(*rapid.T) {
	for _, tree := range m.index.trees {
		if tree != nil {
			tree.pack()
		}
	}
}

func TestIndexIsItsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(0)
		steps := m.steps()
		steps[""] = func(t *rapid.T) {
			checkTrees(t, m.index)
			m.compare(t, func(got, want int32) bool { return got == want })
			if got, want := m.index.Stats().Memberships, m.twin.memberships(); got != want {
				t.Fatalf("%d memberships, want %d", got, want)
			}
		}
		t.Repeat(steps)
	})
}

// compare asks index and twin for every prompt of the small world.
func (m *model) compare(t *rapid.T, ok func(got, want int32) bool) {
	depth := make([]int32, worldWidth)
	for _, keys := range m.all {
		m.index.Match(keys, depth)
		for _, h := range worldHolders {
			if got, want := depth[h], m.twin.depth(h, keys); !ok(got, want) {
				t.Fatalf("holder %d has %d blocks of %x, want %d", h, got, keys, want)
			}
			depth[h] = 0
		}
		if i := slices.IndexFunc(depth, func(d int32) bool { return d != 0 }); i >= 0 {
			t.Fatalf("holder %d has %d blocks, and nothing was told of it", i, depth[i])
		}
	}
}

// With too little memory the index may know less than there is, and never more.
func TestSmallBudgetNeverOverCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(rapid.Int64Range(1, 4000).Draw(t, "budget"))
		m.noCollisions = true // the index may have forgotten what the twin still refuses
		steps := m.steps()
		steps["apply"] = func(t *rapid.T) { m.applyLoosely(t) }
		steps["apply again"], steps["apply more"] = steps["apply"], steps["apply"]
		delete(steps, "speculate")
		steps[""] = func(t *rapid.T) {
			checkTrees(t, m.index)
			m.compare(t, func(got, want int32) bool { return got <= want })
			if s := m.index.Stats(); s.Bytes > s.Budget {
				t.Fatalf("%d bytes of %d", s.Bytes, s.Budget)
			}
		}
		t.Repeat(steps)
	})
}

// applyLoosely applies a batch without comparing the counts, which truncation changes.
func (m *model) applyLoosely(t *rapid.T) {
	h, b := drawHolder(t), &Batch{Events: []Event{m.drawEvent(t)}}
	m.index.Apply(h, b)
	m.twin.apply(h, b)
}

// failer is a *testing.T or a *rapid.T.
type failer interface {
	Fatalf(format string, args ...any)
}

// checkTrees checks what the trees promise each other.
func checkTrees(t failer, ix *Index) {
	want := directory{}
	slots, elsewheres := 0, 0
	for _, tree := range ix.trees {
		if tree == nil {
			continue
		}
		live, used := 0, 0
		for slot := range tree.nodes {
			n := &tree.nodes[slot]
			if !n.used {
				continue
			}
			used++
			if n.live() {
				live++
			}
			checkNode(t, tree, uint32(slot))
			if n.rooted {
				want.add(n.key, tree.holder)
			}
		}
		if live != tree.live || used != tree.used() {
			t.Fatalf("tree %d: %d live of %d nodes, its account says %d of %d", tree.holder, live, used, tree.live, tree.used())
		}
		slots += len(tree.nodes) - 1
		for _, list := range tree.elsewhere {
			elsewheres += len(list)
		}
	}
	if slots != ix.dir.slots || elsewheres != ix.dir.elsewheres {
		t.Fatalf("%d slots and %d copies elsewhere, the account says %d and %d", slots, elsewheres, ix.dir.slots, ix.dir.elsewheres)
	}
	checkDirectory(t, &ix.dir, &want)
}

func checkNode(t failer, tree *tree, slot uint32) {
	n := &tree.nodes[slot]
	if tree.slots[n.hash] != slot {
		t.Fatalf("hash %x of slot %d is found at %d", n.hash, slot, tree.slots[n.hash])
	}
	if want := n.live() && (n.parent == 0 || tree.nodes[n.parent].rooted); n.rooted != want {
		t.Fatalf("slot %d: rooted %v, want %v", slot, n.rooted, want)
	}
	if !n.live() && n.first == 0 {
		t.Fatalf("slot %d: a ghost without children", slot)
	}
	if _, ok := tree.elsewhere[slot]; ok != n.elsewhere || ok && !n.live() {
		t.Fatalf("slot %d: copies elsewhere %v, flag %v, live %v", slot, ok, n.elsewhere, n.live())
	}
	prev := uint32(0)
	for child := n.first; child != 0; child = tree.nodes[child].next {
		c := &tree.nodes[child]
		if c.parent != slot || c.prev != prev || c.depth != n.depth+1 || !c.used {
			t.Fatalf("slot %d is no proper child of %d: %+v", child, slot, c)
		}
		prev = child
	}
}

func checkDirectory(t failer, got, want *directory) {
	entries := 0
	for i, bank := range got.banks {
		entries += len(bank)
		if i >= len(want.banks) {
			want.banks = append(want.banks, nil)
		}
		if !maps.Equal(bank, want.banks[i]) {
			t.Fatalf("bank %d: %x, want %x", i, bank, want.banks[i])
		}
	}
	if entries != got.entries {
		t.Fatalf("%d entries, the account says %d", entries, got.entries)
	}
}
