package kv

import "slices"

// columns gives out the columns of content and knows the use of each column. Guarded by Index.mu.
type columns struct {
	owner   []Holder // by column
	free    []uint16
	any     []uint64        // a bit for the first stock by group of each holder
	further []furtherColumn // all stocks by whole group of holders with several
	thin    []thinColumn    // all stocks by thin group, those of a holder together
	hybrids []uint64        // a bit for each holder with thin groups
	tiers   []Tier          // by column: the tier whose blocks it has, GPU for a column of all blocks
	sunken  []Holder        // with blocks in lower tiers
}

// furtherColumn is one of several columns that a block must be in to be of use to its holder.
type furtherColumn struct {
	holder Holder
	column uint16
}

const maxColumns = 1 << 16

// take returns a column for h, false if there are no more.
func (cs *columns) take(h Holder) (uint16, bool) {
	if n := len(cs.free); n > 0 {
		column := cs.free[n-1]
		cs.free = cs.free[:n-1]
		cs.owner[column] = h
		return column, true
	}
	if len(cs.owner) == maxColumns {
		return 0, false
	}
	cs.owner = append(cs.owner, h)
	return uint16(len(cs.owner) - 1), true
}

// giveBack takes a column that has no blocks back.
func (cs *columns) giveBack(column uint16) {
	cs.hide(column)
	if int(column) < len(cs.tiers) {
		cs.tiers[column] = GPU
	}
	cs.free = append(cs.free, column)
}

func (cs *columns) hide(column uint16) { clearBit(cs.any, column) }

// expose computes anew which questions the columns of t answer.
func (cs *columns) expose(t *holding) {
	cs.further = slices.DeleteFunc(cs.further, func(f furtherColumn) bool { return f.holder == t.holder })
	cs.thin = slices.DeleteFunc(cs.thin, func(g thinColumn) bool { return g.holder == t.holder })
	clearBit(cs.hybrids, uint16(t.holder))
	t.first = 0
	groups := 0
	for i := range t.stocks {
		s := &t.stocks[i]
		cs.hide(s.column)
		if s.thin {
			cs.thin = append(cs.thin, thinColumn{t.holder, s.column, s.need})
			setBit(&cs.hybrids, uint16(t.holder))
			continue
		}
		groups++
		cs.further = append(cs.further, furtherColumn{t.holder, s.column})
		if t.first == 0 {
			t.first = int(s.column) + 1
			setBit(&cs.any, s.column)
		}
	}
	if groups == 1 {
		cs.further = cs.further[:len(cs.further)-1]
	}
	cs.exposeLower(t)
}

// exposeLower computes anew which columns of t say what is in lower tiers. Only the columns of the first
// whole group do.
func (cs *columns) exposeLower(t *holding) {
	cs.sunken = slices.DeleteFunc(cs.sunken, func(h Holder) bool { return h == t.holder })
	some := false
	for i := range t.stocks {
		s := &t.stocks[i]
		for at, column := range s.low.columns {
			if column == 0 {
				continue
			}
			for len(cs.tiers) < int(column) {
				cs.tiers = append(cs.tiers, GPU)
			}
			if cs.tiers[column-1] = GPU; int(s.column)+1 == t.first {
				cs.tiers[column-1], some = Tier(at+1), true
			}
		}
	}
	if some {
		cs.sunken = append(cs.sunken, t.holder)
	}
}

func setBit(words *[]uint64, column uint16) {
	for len(*words) <= int(column/bankSize) {
		*words = append(*words, 0)
	}
	(*words)[column/bankSize] |= 1 << (column % bankSize)
}

func clearBit(words []uint64, column uint16) {
	if bank := int(column / bankSize); bank < len(words) {
		words[bank] &^= 1 << (column % bankSize)
	}
}
