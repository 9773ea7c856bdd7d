package kv

import "math"

// copies counts the physical copies of one block in one place. vLLM keeps a second copy when two requests compute the same block, announces it like the
// first, and later removes each by itself. n stops at 255: whoever has more loses the membership early, which is the safe side.
type copies struct {
	group int16
	tier  Tier
	n     uint8
}

// placeOf clamps what an event says into the fields of copies.
func placeOf(t Tier, group int) copies {
	return copies{tier: min(t, Other), group: int16(min(max(group, NoGroup), math.MaxInt16))}
}

func (c copies) same(place copies) bool { return c.tier == place.tier && c.group == place.group }

// near reports whether c may be meant by place, since one of them names no group.
func (c copies) near(place copies) bool {
	return c.tier == place.tier && (c.group == NoGroup || place.group == NoGroup)
}

// addCopy counts one more copy of the block at slot.
func (t *tree) addCopy(slot uint32, place copies) {
	place.n = 1
	n := &t.nodes[slot]
	if n.copies.n == 0 {
		n.copies = place
		return
	}
	if c := t.findCopy(slot, copies.same, place); c != nil {
		c.n += min(1, math.MaxUint8-c.n)
		return
	}
	n.elsewhere = true
	t.elsewhere[slot] = append(t.elsewhere[slot], place)
	t.dir.elsewheres++
}

// takeCopy counts one copy less and reports whether there was one to take.
func (t *tree) takeCopy(slot uint32, place copies) bool {
	c := t.findCopy(slot, copies.same, place)
	if c == nil {
		c = t.findCopy(slot, copies.near, place)
	}
	if c == nil {
		return false
	}
	c.n--
	t.tidyCopies(slot)
	return true
}

// takeTier takes all copies in one tier and reports whether there were any.
func (t *tree) takeTier(slot uint32, tier Tier) bool {
	n, found := &t.nodes[slot], false
	if n.copies.n > 0 && n.copies.tier == tier {
		n.copies.n, found = 0, true
	}
	if n.elsewhere {
		for i, c := range t.elsewhere[slot] {
			if c.tier == tier {
				t.elsewhere[slot][i].n, found = 0, true
			}
		}
	}
	t.tidyCopies(slot)
	return found
}

func (t *tree) findCopy(slot uint32, match func(c, place copies) bool, place copies) *copies {
	n := &t.nodes[slot]
	if n.copies.n > 0 && match(n.copies, place) {
		return &n.copies
	}
	if n.elsewhere {
		list := t.elsewhere[slot]
		for i := range list {
			if match(list[i], place) {
				return &list[i]
			}
		}
	}
	return nil
}

// tidyCopies keeps the invariant that a block has copies elsewhere only if it has some in its node.
func (t *tree) tidyCopies(slot uint32) {
	n := &t.nodes[slot]
	if !n.elsewhere {
		return
	}
	kept := t.elsewhere[slot][:0]
	for _, c := range t.elsewhere[slot] {
		switch {
		case c.n == 0:
			t.dir.elsewheres--
		case n.copies.n == 0:
			n.copies = c
			t.dir.elsewheres--
		default:
			kept = append(kept, c)
		}
	}
	t.elsewhere[slot] = kept
	if len(kept) == 0 {
		t.dropElsewhere(slot)
	}
}

// dropElsewhere forgets what copies a block has beside those in its node.
func (t *tree) dropElsewhere(slot uint32) {
	if n := &t.nodes[slot]; n.elsewhere {
		t.dir.elsewheres -= len(t.elsewhere[slot])
		delete(t.elsewhere, slot)
		n.elsewhere = false
	}
}
