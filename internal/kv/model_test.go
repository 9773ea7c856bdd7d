package kv

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"
)

// A small world, so that everything happens often: prompts of at most five blocks with two contents each, two
// roots, five holders in three banks.
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

// hash is the engine's name for the first n blocks. Engines of different variants name the same content
// differently.
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

// worldGroups are the KV cache groups of the small world. Two keep every block, one keeps states, one keeps
// windows of two blocks, one has blocks of twice the size, and one has no name. The draw decides which
// groups an engine has.
var worldGroups = []Event{
	{Group: 0},
	{Group: 0},
	{Group: 0},
	{Group: 0},
	{Group: 0, SpecKind: "full_attention"},
	{Group: 1},
	{Group: NoGroup},
	{Group: 2, SpecKind: "mamba"},
	{Group: 2, SpecKind: "mamba", BlockSize: 4},
	{Group: 3, SpecKind: "sliding_window", Window: 5},
	{Group: 4, SpecKind: "full_attention", BlockSize: 4},
	{Group: 5, SpecKind: "sliding_window_mla", BlockSize: 1, Window: 4},
}

// drawPlace says where an event happened.
func drawPlace(t *rapid.T, e Event) Event {
	e.Tier = rapid.SampledFrom([]Tier{GPU, GPU, GPU, CPU, Shared, Disk}).Draw(t, "tier")
	g := rapid.SampledFrom(worldGroups).Draw(t, "group")
	e.Group = g.Group
	if e.Kind != Stored {
		return e
	}
	e.SpecKind, e.Window = g.SpecKind, g.Window
	if g.BlockSize > 0 {
		e.Hashes, e.BlockSize = e.Hashes[:(len(e.Hashes)+1)/2], g.BlockSize
	}
	if specOf(g.SpecKind) == thin && rapid.Bool().Draw(t, "masked") { // it keeps the last block alone
		e.Hashes = e.Hashes[max(0, len(e.Hashes)-1):]
	}
	e.Bare = e.Tier != GPU && rapid.Bool().Draw(t, "bare")
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
	m := &model{
		index: NewIndex(Options{Chain: worldChain, ByteBudget: budget}), twin: newTwin(worldChain),
		now: time.Unix(1000, 0),
	}
	m.index.clock.life, m.twin.life = 4*time.Second, 4*time.Second
	m.index.Expire(m.now)
	m.twin.expire(m.now)
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
	odd := 6
	if m.noCollisions {
		odd = 4
	}
	switch rapid.IntRange(0, odd).Draw(t, "odd") {
	case 0:
		e.Tokens = append(e.Tokens, 1, 2)
	case 1:
		e.BlockSize = 1
	case 2: // the kind is told only now
		e.SpecKind = "sliding_window"
	case 3:
		e.Hashes = nil
	case 4: // a placeholder of a tier that tells no tokens
		e.Tokens = nil
		e.BlockSize = 0
		e.HasParent = false
		e.SpecKind = ""
		e.Tier = rapid.SampledFrom([]Tier{CPU, CPU, CPU, GPU}).Draw(t, "named in")
	case 5:
		e.Hashes[len(e.Hashes)-1] = EngineHash(rapid.IntRange(1, 2).Draw(t, "collision"))
	case 6: // one name for two blocks of one event
		e.Hashes[0] = e.Hashes[len(e.Hashes)-1]
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

func (m *model) speculate(t *rapid.T) {
	h, keys := drawHolder(t), drawPath(t).keys()
	until := m.now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "for")) * time.Second)
	m.index.Speculate(h, keys, until)
	m.twin.speculate(h, slices.Clone(keys), until)
}

func (m *model) retract(t *rapid.T) {
	h, keys := drawHolder(t), drawPath(t).keys()
	m.index.Retract(h, keys)
	m.twin.retract(h, keys)
}

func (m *model) await(t *rapid.T) {
	h, keys := drawHolder(t), drawPath(t).keys()
	until := m.now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "for")) * time.Second)
	m.index.Await(h, keys, until)
	m.twin.await(h, slices.Clone(keys), until)
}

func (m *model) expire(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "passed")) * time.Second)
	m.index.Expire(m.now)
	m.twin.expire(m.now)
}

func (m *model) steps() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"apply": m.apply, "apply again": m.apply, "apply more": m.apply, "forget": m.forget,
		"speculate": m.speculate, "expire": m.expire,
		"retract": m.retract, "await": m.await,
	}
}

func TestIndexIsItsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(0)
		steps := m.steps()
		steps[""] = func(t *rapid.T) {
			checkIndex(t, m.index)
			m.compare(t, func(got, want int32) bool { return got == want })
			if got, want := m.index.Stats().Memberships, m.twin.memberships(); got != want {
				t.Fatalf("%d memberships, want %d", got, want)
			}
		}
		t.Repeat(steps)
	})
}

// compare asks index and twin for every prompt of the small world.
func (m *model) compare(t failer, ok func(got, want int32) bool) {
	depth, below := make([]int32, worldWidth), make([]Below, worldWidth)
	for _, keys := range m.all {
		m.index.MatchTiers(keys, depth, below)
		for _, h := range worldHolders {
			if got, want := depth[h], m.twin.depth(h, keys); !ok(got, want) {
				t.Fatalf("holder %d has %d blocks of %x, want %d", h, got, keys, want)
			}
			depth[h] = 0
			m.compareBelow(t, h, keys, below[h], ok)
			below[h] = Below{}
			heard, some := m.twin.wholeDepth(h, keys)
			if !some {
				heard = 0
			}
			if got := m.index.Heard(h, keys); !ok(int32(got), int32(heard)) {
				t.Fatalf("by its events holder %d has %d blocks of %x, want %d", h, got, keys, heard)
			}
		}
		if i := slices.IndexFunc(depth, func(d int32) bool { return d != 0 }); i >= 0 {
			t.Fatalf("holder %d has %d blocks, and nothing was told of it", i, depth[i])
		}
		if i := slices.IndexFunc(below, func(b Below) bool { return b.Sum() > 0 }); i >= 0 {
			t.Fatalf("holder %d has %v in lower tiers, and nothing was told of it", i, below[i])
		}
	}
}

// compareBelow compares where the blocks of a match are.
func (m *model) compareBelow(t failer, h Holder, keys []Key, got Below, ok func(got, want int32) bool) {
	want := m.twin.below(h, keys)
	for tier := CPU; tier <= Other; tier++ {
		if !ok(*got.In(tier), *want.In(tier)) {
			t.Fatalf("holder %d has %v of %x in lower tiers, want %v", h, got, keys, want)
		}
	}
}

// With too little memory the index may know less than there is, and never more.
func TestSmallBudgetNeverOverCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(rapid.Int64Range(1, 150_000).Draw(t, "budget"))
		m.noCollisions = true // the index may have forgotten what the twin still refuses
		steps := m.steps()
		steps["apply"] = func(t *rapid.T) { m.applyLoosely(t) }
		steps["apply again"], steps["apply more"] = steps["apply"], steps["apply"]
		delete(steps, "speculate")
		delete(steps, "await")
		steps[""] = func(t *rapid.T) {
			checkIndex(t, m.index)
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

// checkIndex checks what the names, the columns and the content promise each other.
func checkIndex(t failer, ix *Index) {
	want := map[membership]bool{} // what must be in the columns
	used := map[cell]bool{}
	for _, own := range ix.holdings {
		if own == nil {
			continue
		}
		counts := make([]int, len(own.stocks))
		extra, names := map[membership]int{}, 0
		for s := range own.dict.names.segments {
			checkSegment(t, s)
			for i := range s.entries {
				e := &s.entries[i]
				if e.cell == 0 {
					continue
				}
				names++
				used[e.cell] = true
				for k := range own.stocks {
					st := &own.stocks[k]
					list := own.dict.copiesOf(e)
					if !inGroup(list, st.group) {
						continue
					}
					counts[k]++
					m := membership{st.column, e.cell}
					note := func(m membership) {
						if want[m] {
							extra[m]++
						}
						want[m] = true
					}
					note(m)
					if at := nearest(list, st.group); at != GPU && !st.thin {
						note(membership{st.low.columns[at-1] - 1, e.cell})
					}
				}
			}
		}
		for k, n := range counts {
			if n != own.stocks[k].count || own.stocks[k].unsettled() > 0 {
				t.Fatalf("holder %d: stock %+v has %d names", own.holder, own.stocks[k], n)
			}
		}
		if names != own.dict.names.used || int64(names) != own.glance.size.Load() ||
			!maps.Equal(extra, own.dict.again) && len(extra)+len(own.dict.again) > 0 {
			t.Fatalf("holder %d: %d names of %d, twice %v of %v", own.holder, names, own.dict.names.used, extra,
				own.dict.again)
		}
		if own.bytes() != own.seen.noted {
			t.Fatalf("holder %d: takes %d bytes, noted %d", own.holder, own.bytes(), own.seen.noted)
		}
	}
	checkContent(t, ix.content, want)
	for at := range used {
		if r := ix.content.runs.at(at.run()); at.position() >= int(r.len) {
			t.Fatalf("a name at %x, and the run has %d blocks", at, r.len)
		}
	}
}

func checkSegment(t failer, s *segment) {
	used, last := 0, uint64(0)
	for i := range s.entries {
		e := &s.entries[i]
		if e.cell == 0 {
			continue
		}
		if used > 0 && turned(e.mixed) <= last {
			t.Fatalf("names out of order at %d of %d", i, len(s.entries))
		}
		for j := s.home(e.mixed); j < i; j++ {
			if s.entries[j].cell == 0 {
				t.Fatalf("a gap between a name and its home")
			}
		}
		used, last = used+1, turned(e.mixed)
	}
	if used != s.used || s.entries[len(s.entries)-1].cell != 0 {
		t.Fatalf("%d names of %d, or the last place is taken", used, s.used)
	}
}

// checkContent checks the runs against each other and against the memberships that the names ask for.
func checkContent(t failer, c *content, want map[membership]bool) {
	live := 0
	blocks := 0
	starts := 0
	seen := 0
	kids := map[cell]int{}
	for number := uint32(1); int(number) < c.runs.len(); number++ {
		if r := c.runs.at(number); r.len > 0 && r.parent != 0 {
			kids[r.parent]++
		}
	}
	for number := uint32(1); int(number) < c.runs.len(); number++ {
		r := c.runs.at(number)
		if r.len == 0 {
			continue
		}
		live++
		blocks += int(r.len)
		if e := c.starts.find(mix(uint64(c.keysOf(r)[0]))); e == nil || uint32(e.cell) != number {
			t.Fatalf("run %d is not found by its first key", number)
		}
		starts++
		if r.parent != 0 && (c.runs.at(r.parent.run()).len == 0 || c.depth(r.parent)+1 != r.depth) {
			t.Fatalf("run %d of depth %d hangs on nothing: %x", number, r.depth, r.parent)
		}
		all, tail := 0, 0
		for at := range runSize {
			n := kids[cellOf(number, at)]
			all += n
			if at == runSize-1 {
				tail = n
			} else if e := c.forks.find(mix(uint64(cellOf(number, at)))); n == 0 && e != nil ||
				n > 0 && (e == nil || int(e.cell) != n) {
				t.Fatalf("run %d has %d kids at %d", number, n, at)
			}
		}
		if all != int(r.kids) || tail != int(r.tail) || c.needed(number) != int(r.len) {
			t.Fatalf("run %d: %d kids, %d at the end, %d blocks needed: %+v", number, all, tail, c.needed(number), r)
		}
		full := map[uint16]bool{}
		if r.held > 0 {
			for _, h := range c.holdsOf(r) {
				if h.word == 0 {
					t.Fatalf("run %d: column %d holds nothing", number, h.column)
				}
				for word := h.word; word != 0; word &= word - 1 {
					if !want[membership{h.column, cellOf(number, bits.TrailingZeros64(word))}] {
						t.Fatalf("run %d: column %d has %x, which no name asks for", number, h.column, h.word)
					}
					seen++
				}
				full[h.column] = leading(h.word) == int(r.len)
			}
		}
		for bank := range c.full {
			for i := range bankSize {
				column := bank*bankSize + i
				if got := c.fullOf(bank, number)>>i&1 == 1; got != full[uint16(column)] {
					t.Fatalf("run %d: column %d full %v", number, column, got)
				}
			}
		}
	}
	if live != c.live || blocks != c.blocks || starts != c.starts.used || seen != len(want) {
		t.Fatalf("%d runs of %d, %d blocks of %d, %d starts of %d, %d memberships of %d",
			live, c.live, blocks, c.blocks, starts, c.starts.used, seen, len(want))
	}
	c.checkSlabs(t)
}

// checkSlabs checks that every slot belongs to the run that says so.
func (c *content) checkSlabs(t failer) {
	keys, holds := 0, 0
	for number := uint32(1); int(number) < c.runs.len(); number++ {
		r := c.runs.at(number)
		if r.len == 0 {
			continue
		}
		keys++
		if s := &c.keys[r.class]; s.owners[r.keys>>s.shift][r.keys&(1<<s.shift-1)] != number {
			t.Fatalf("run %d does not own its keys", number)
		}
		if r.held > 0 {
			holds++
			if s := &c.holds[r.grade]; s.owners[r.holds>>s.shift][r.holds&(1<<s.shift-1)] != number {
				t.Fatalf("run %d does not own its holds", number)
			}
		}
	}
	for i := range c.keys {
		keys -= int(c.keys[i].count)
	}
	for i := range c.holds {
		holds -= int(c.holds[i].count)
	}
	if keys != 0 || holds != 0 {
		t.Fatalf("%d slots of keys and %d of holds are nobody's", -keys, -holds)
	}
}
