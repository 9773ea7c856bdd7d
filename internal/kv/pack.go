package kv

// sparse is the number of slots below which a tree is not worth packing.
const sparse = 256

// packIfSparse packs a tree that has lost three quarters of its nodes, so that the loss paid for it.
func (t *tree) packIfSparse() {
	if slots := len(t.nodes) - 1; slots > sparse && t.used() < slots/4 {
		t.pack()
	}
}

// pack moves the nodes together and gives the room of the others back. Every slot that anyone remembers is void.
func (t *tree) pack() {
	moved, n := make([]uint32, len(t.nodes)), uint32(0)
	for slot := range t.nodes {
		if t.nodes[slot].used {
			n++
			moved[slot] = n
		}
	}
	t.dir.slots += int(n) - (len(t.nodes) - 1)
	t.nodes, t.free = packNodes(t.nodes, moved, n), 0
	t.slots = make(map[EngineHash]uint32, n)
	for slot := uint32(1); slot <= n; slot++ {
		t.slots[t.nodes[slot].hash] = slot
	}
	elsewhere := make(map[uint32][]copies, len(t.elsewhere))
	for slot, list := range t.elsewhere {
		elsewhere[moved[slot]] = list
	}
	t.elsewhere = elsewhere
}

func packNodes(from []node, moved []uint32, n uint32) []node {
	to := make([]node, 1, n+1)
	for slot := range from {
		if moved[slot] == 0 {
			continue
		}
		one := from[slot]
		one.parent, one.first = moved[one.parent], moved[one.first]
		one.next, one.prev = moved[one.next], moved[one.prev]
		to = append(to, one)
	}
	return to
}
