package kv

// tree is what one holder has: a node for every engine hash, under the node of the block before it.
//
// A node is live while the holder has a copy of the block, and rooted while it and all before it are live. A node that lost its last copy stays as a
// ghost while nodes hang under it: it still gives its children their place should the block come back, and its key to blocks stored behind it.
// Rooted nodes, and no others, stand in the directory.
type tree struct {
	holder Holder
	dir    *directory

	slots map[EngineHash]uint32 // index into nodes
	nodes []node                // nodes[0] is no node: slot 0 says "none"
	free  uint32                // first of the unused slots, chained by next
	live  int                   // nodes with copies

	elsewhere map[uint32][]copies // by slot: copies in a second tier or group; rare
	twins     map[Key]int         // rooted nodes beyond the first of a key: two engine hashes for one content; rare

	orphans, truncated uint64
}

// node is one block of a tree. Links are slots.
type node struct {
	hash   EngineHash
	key    Key
	parent uint32 // 0 for block 0 of a prompt
	first  uint32 // a child
	next   uint32 // the parent's other children
	prev   uint32
	depth  uint32 // blocks before this one
	born   uint32 // tick of the last store

	copies    copies
	rooted    bool
	elsewhere bool // has an entry in tree.elsewhere
	used      bool
}

func (n *node) live() bool { return n.copies.n > 0 }

func newTree(h Holder, dir *directory) *tree {
	return &tree{
		holder:    h,
		dir:       dir,
		slots:     map[EngineHash]uint32{},
		nodes:     make([]node, 1, 64),
		elsewhere: map[uint32][]copies{},
		twins:     map[Key]int{},
	}
}

// used returns the number of nodes, ghosts included.
func (t *tree) used() int { return len(t.slots) }

// store counts a copy of the block hash, with the given content key, behind parent. It refuses, with ok false, a hash that already names another content.
func (t *tree) store(parent uint32, hash EngineHash, key Key, place copies, tick uint32) (slot uint32, ok bool) {
	slot, found := t.slots[hash]
	if !found {
		slot = t.grow(parent, hash, key)
	}
	n := &t.nodes[slot]
	if n.key != key {
		return 0, false
	}
	n.born = tick
	wasLive := n.live()
	t.addCopy(slot, place)
	if !wasLive {
		t.live++
		if n.parent == 0 || t.nodes[n.parent].rooted {
			t.raise(slot)
		}
	}
	return slot, true
}

// grow adds a ghost behind parent.
func (t *tree) grow(parent uint32, hash EngineHash, key Key) uint32 {
	slot := t.takeSlot()
	n := node{hash: hash, key: key, parent: parent, used: true}
	if parent != 0 {
		p := &t.nodes[parent]
		n.depth, n.next = p.depth+1, p.first
		if n.next != 0 {
			t.nodes[n.next].prev = slot
		}
		p.first = slot
	}
	t.nodes[slot] = n
	t.slots[hash] = slot
	return slot
}

func (t *tree) takeSlot() uint32 {
	if slot := t.free; slot != 0 {
		t.free = t.nodes[slot].next
		return slot
	}
	t.nodes = append(t.nodes, node{})
	t.dir.slots++
	return uint32(len(t.nodes) - 1)
}

// remove takes one copy of hash away and reports whether the holder had it.
func (t *tree) remove(hash EngineHash, place copies) bool {
	slot, found := t.slots[hash]
	if !found || !t.takeCopy(slot, place) {
		return false
	}
	if !t.nodes[slot].live() {
		t.die(slot)
	}
	return true
}

// die follows up the loss of a node's last copy.
func (t *tree) die(slot uint32) {
	t.live--
	if t.nodes[slot].rooted {
		t.sink(slot)
	}
	t.prune(slot)
}

// prune frees the node, and those above it, while they are ghosts with nothing under them.
func (t *tree) prune(slot uint32) {
	for slot != 0 && !t.nodes[slot].live() && t.nodes[slot].first == 0 {
		parent := t.nodes[slot].parent
		t.cut(slot)
		slot = parent
	}
}

// cut frees a node without children. Neither live nor rooted are looked at.
func (t *tree) cut(slot uint32) {
	n := &t.nodes[slot]
	if n.next != 0 {
		t.nodes[n.next].prev = n.prev
	}
	switch {
	case n.prev != 0:
		t.nodes[n.prev].next = n.next
	case n.parent != 0:
		t.nodes[n.parent].first = n.next
	}
	t.dropElsewhere(slot)
	delete(t.slots, n.hash)
	*n = node{next: t.free}
	t.free = slot
}

// fell frees a node and all under it.
func (t *tree) fell(top uint32) {
	above := t.nodes[top].parent
	for at := top; ; {
		for t.nodes[at].first != 0 {
			at = t.nodes[at].first
		}
		parent := t.nodes[at].parent
		t.cutLive(at)
		if at == top {
			break
		}
		at = parent
	}
	t.prune(above)
}

func (t *tree) cutLive(slot uint32) {
	if n := &t.nodes[slot]; n.live() {
		t.live--
		if n.rooted {
			t.unlist(n)
		}
	}
	t.cut(slot)
}

// raise roots a live node and every live one that hangs under it without a ghost between.
func (t *tree) raise(top uint32) {
	for at := top; at != 0; {
		n := &t.nodes[at]
		if n.live() {
			t.list(n)
		}
		at = t.after(at, top, n.live())
	}
}

// sink takes a node and all under it from the directory.
func (t *tree) sink(top uint32) {
	for at := top; at != 0; {
		n := &t.nodes[at]
		into := n.rooted
		if into {
			t.unlist(n)
		}
		at = t.after(at, top, into)
	}
}

// after returns the slot that follows at in a walk of what is under top, or 0; the children of at are left out unless into is set.
func (t *tree) after(at, top uint32, into bool) uint32 {
	if into && t.nodes[at].first != 0 {
		return t.nodes[at].first
	}
	for at != top {
		if next := t.nodes[at].next; next != 0 {
			return next
		}
		at = t.nodes[at].parent
	}
	return 0
}

func (t *tree) list(n *node) {
	n.rooted = true
	if !t.dir.add(n.key, t.holder) {
		t.twins[n.key]++
	}
}

func (t *tree) unlist(n *node) {
	n.rooted = false
	switch t.twins[n.key] {
	case 0:
		t.dir.remove(n.key, t.holder)
	case 1:
		delete(t.twins, n.key)
	default:
		t.twins[n.key]--
	}
}

// clearTier takes all copies in one tier and returns how many blocks had some.
func (t *tree) clearTier(tier Tier) (blocks int) {
	for slot := range uint32(len(t.nodes)) {
		if !t.nodes[slot].live() || !t.takeTier(slot, tier) {
			continue
		}
		blocks++
		if !t.nodes[slot].live() {
			t.die(slot)
		}
	}
	t.packIfSparse()
	return blocks
}

// burn takes the whole tree from the directory and its account. The tree is of no use afterwards.
func (t *tree) burn() {
	for i := range t.nodes {
		if t.nodes[i].rooted {
			t.unlist(&t.nodes[i])
		}
		t.dropElsewhere(uint32(i))
	}
	t.dir.slots -= len(t.nodes) - 1
}
