package kv

import "math/bits"

// table maps 64-bit names to four bytes and four more, in 16 bytes a name. A third to two thirds of the room
// is slack. With less slack, names stand in long rows, and each step along a row reads a cache line.
//
// The table consists of segments. A segment is an array with gaps, in the order of the mixed names, turned
// by the bits that chose the segment. A name stands at or after the place that its size among all possible
// names gives it. A search therefore ends at the first larger name. A segment grows and shrinks by itself,
// by a fifth, and splits in two when it is full (extendible hashing). So no change moves more than a few
// hundred entries, and removed names give their room back.
type table struct {
	dir  []dirEntry // by the top bits of a mixed name; segments of fewer bits stand there more than once
	bits uint8
	used int
	room int // entries in all segments
}

// entry is one name with the place of its block. cell is never 0 in use.
type entry struct {
	mixed  uint64
	cell   cell
	copies copies
}

// dirEntry leads to a segment. It has the segment's entries too, to save a lookup one step through memory.
type dirEntry struct {
	entries []entry
	segment *segment
}

type segment struct {
	entries []entry // the last is always free
	used    int
	limit   int   // used beyond this makes it grow
	least   int   // used below this makes it shrink
	bits    uint8 // top bits that all names in it share
}

const (
	segmentMost = 3600 // entries of a segment before it splits
	// Mean entries of a segment below which the directory grows no more: names that crowd into one corner stay
	// in one segment.
	segmentLeast = 256
	minSegment   = 12
)

// mix spreads names that are not random over all bits, one to one (the last steps of MurmurHash3). Names that
// engines count up would crowd without it.
func mix(name uint64) uint64 {
	name ^= name >> 33
	name *= 0xFF51AFD7ED558CCD
	name ^= name >> 33
	name *= 0xC4CEB9FE1A85EC53
	return name ^ name>>33
}

// dirBits is how many top bits may choose a segment. Names are in order from the next bit on.
const dirBits = 24

func turned(mixed uint64) uint64 { return bits.RotateLeft64(mixed, dirBits) }

// home is where a name would stand among entries if nothing were in its way.
func home(entries int, mixed uint64) int {
	hi, _ := bits.Mul64(turned(mixed), uint64(entries-slack(entries)))
	return int(hi)
}

func (s *segment) home(mixed uint64) int { return home(len(s.entries), mixed) }

// slack is the room at the end of a segment for what is pushed beyond the last home.
func slack(entries int) int { return 6 + entries/64 }

// find returns the entry of mixed, or nil. It holds until the table changes.
func (t *table) find(mixed uint64) *entry {
	if d, i := t.look(mixed); i >= 0 {
		return &d.entries[i]
	}
	return nil
}

// look returns where mixed stands, a negative place if it does not.
func (t *table) look(mixed uint64) (*dirEntry, int) {
	if t.dir == nil {
		return nil, -1
	}
	d := &t.dir[t.slot(mixed)]
	e := d.entries
	for i := home(len(e), mixed); i < len(e); i++ {
		switch {
		case e[i].mixed == mixed && e[i].cell != 0:
			return d, i
		case e[i].cell == 0 || turned(e[i].mixed) > turned(mixed):
			return d, -1
		}
	}
	return d, -1
}

// touch reads where mixed would stand, so that a later look need not wait for memory. Many touches wait at
// once, where looks wait one after the other.
func (t *table) touch(mixed uint64) uint64 {
	if t.dir == nil {
		return 0
	}
	d := &t.dir[t.slot(mixed)]
	i := home(len(d.entries), mixed)
	// There is slack behind every home; where names crowd they stand on the next cache line.
	return d.entries[i].mixed + d.entries[i+4].mixed
}

// put returns the entry of mixed. If there is none, put makes one with cell 0, and the caller must set its
// cell at once.
func (t *table) put(mixed uint64) *entry {
	if t.dir == nil {
		s := newSegment(0, minSegment)
		t.dir, t.bits = []dirEntry{{s.entries, s}}, 0
		t.room += minSegment
	}
	for {
		d := &t.dir[t.slot(mixed)]
		s, e := d.segment, d.entries
		i := home(len(e), mixed)
		for e[i].cell != 0 && turned(e[i].mixed) < turned(mixed) {
			i++
		}
		if e[i].cell != 0 && e[i].mixed == mixed {
			return &e[i]
		}
		if s.used < s.limit && open(e, i) {
			s.used++
			t.used++
			e[i] = entry{mixed: mixed}
			return &e[i]
		}
		t.widen(s, mixed)
	}
}

func (t *table) slot(mixed uint64) int { return int(mixed >> (64 - t.bits)) }

// open frees place i by moving what stands there and directly after it on; false when there is no room at the
// end.
func open(e []entry, i int) bool {
	j := i
	for e[j].cell != 0 {
		j++
	}
	if j >= len(e)-1 {
		return false
	}
	copy(e[i+1:j+1], e[i:j])
	return true
}

// remove deletes the entry of mixed, if there is one.
func (t *table) remove(mixed uint64) {
	if d, i := t.look(mixed); i >= 0 {
		t.removeAt(d, i)
	}
}

// removeAt deletes the entry that look found.
func (t *table) removeAt(d *dirEntry, i int) {
	s := d.segment
	e := d.entries
	mixed := d.entries[i].mixed
	j := i + 1
	for e[j].cell != 0 && home(len(e), e[j].mixed) < j {
		j++
	}
	copy(e[i:j-1], e[i+1:j])
	e[j-1] = entry{}
	s.used--
	t.used--
	if s.used < s.least {
		t.resize(s, roomFor(s.used+s.used/3), t.slot(mixed))
	}
	if t.used == 0 {
		t.dir, t.room = nil, 0
	}
}

// widen makes room in the segment of mixed: by splitting it, or by making it larger.
func (t *table) widen(s *segment, mixed uint64) {
	switch {
	case s.used < segmentMost || s.bits == dirBits || s.bits == t.bits && t.used>>t.bits < segmentLeast:
		t.resize(s, max(roomFor(s.used+s.used/3), len(s.entries)+len(s.entries)/8+1), t.slot(mixed))
	default:
		if s.bits == t.bits {
			t.double()
		}
		t.split(s, mixed)
	}
}

// double makes the directory tell one more bit.
func (t *table) double() {
	dir := make([]dirEntry, 2*len(t.dir))
	for i, d := range t.dir {
		dir[2*i], dir[2*i+1] = d, d
	}
	t.dir = dir
	t.bits++
}

// split puts what begins with a further 0 and a further 1 into segments of their own.
func (t *table) split(s *segment, mixed uint64) {
	middle := uint64(1) << (63 - s.bits)
	low, high := 0, 0
	for i := range s.entries {
		switch {
		case s.entries[i].cell == 0:
		case s.entries[i].mixed&middle == 0:
			low++
		default:
			high++
		}
	}
	a, b := newSegment(s.bits+1, roomFor(low)), newSegment(s.bits+1, roomFor(high))
	a, b = a.fill(s.entries, middle, 0), b.fill(s.entries, middle, middle)
	t.room += len(a.entries) + len(b.entries) - len(s.entries)
	first := t.slot(mixed) &^ (1<<(t.bits-s.bits) - 1)
	t.enter(a, first)
	t.enter(b, first+1<<(t.bits-a.bits))
}

// enter puts a segment at its places of the directory, one of which is slot.
func (t *table) enter(s *segment, slot int) {
	places := 1 << (t.bits - s.bits)
	first := slot &^ (places - 1)
	for i := range places {
		t.dir[first+i] = dirEntry{s.entries, s}
	}
}

// resize gives the segment at slot another length.
func (t *table) resize(s *segment, entries, slot int) {
	next := newSegment(s.bits, entries).fill(s.entries, 0, 0)
	t.room += len(next.entries) - len(s.entries)
	*s = *next
	t.enter(s, slot)
}

// filter keeps the entries for which keep is true. keep may change them.
func (t *table) filter(keep func(*entry) bool) {
	for slot := 0; slot < len(t.dir); {
		s := t.dir[slot].segment
		before := s.used
		for i := range s.entries {
			if e := &s.entries[i]; e.cell != 0 && !keep(e) {
				*e = entry{}
				s.used--
			}
		}
		if s.used < before {
			t.used -= before - s.used
			t.resize(s, roomFor(s.used+s.used/3), slot)
		}
		slot += 1 << (t.bits - s.bits)
	}
	if t.used == 0 {
		t.dir, t.room = nil, 0
	}
}

// segments ranges over all segments, each once.
func (t *table) segments(yield func(*segment) bool) {
	for i := 0; i < len(t.dir); i += 1 << (t.bits - t.dir[i].segment.bits) {
		if !yield(t.dir[i].segment) {
			return
		}
	}
}

func newSegment(bits uint8, entries int) *segment {
	s := &segment{entries: make([]entry, entries), bits: bits, limit: (entries - slack(entries)) * 7 / 10}
	if entries > minSegment {
		s.least = entries / 3
	}
	return s
}

// roomFor returns the length of a segment for n entries and some more.
func roomFor(n int) int {
	entries := n + n*3/5
	return max(minSegment, entries+slack(entries)+1)
}

// fill copies the entries that have want in the bits of mask into s, and returns s. If s is too small for a
// crowd of names, fill returns a larger segment.
func (s *segment) fill(from []entry, mask, want uint64) *segment {
	at := 0
	for i := range from {
		e := &from[i]
		if e.cell == 0 || e.mixed&mask != want {
			continue
		}
		at = max(at, s.home(e.mixed))
		if at >= len(s.entries)-1 {
			wider := newSegment(s.bits, 2*len(s.entries)).fill(from, mask, want)
			wider.least = 0
			return wider
		}
		s.entries[at] = *e
		at++
		s.used++
	}
	return s
}

// cells ranges over the cells of all entries, a few hundred at a time. The slice holds until the next.
func (t *table) cells(yield func([]cell) bool) {
	var room [partMost]cell
	n := 0
	for s := range t.segments {
		for i := range s.entries {
			if s.entries[i].cell == 0 {
				continue
			}
			room[n] = s.entries[i].cell
			if n++; n == len(room) {
				if !yield(room[:n]) {
					return
				}
				n = 0
			}
		}
	}
	if n > 0 {
		yield(room[:n])
	}
}
