package kv

import "math/bits"

// slab holds slots of width values each, without gaps. The last slot fills the place of a slot that goes,
// and the owner of the last slot must be told.
type slab[T any] struct {
	width  int
	shift  uint8 // slots of a page, as a power of two
	count  uint32
	pages  [][]T
	owners [][]uint32
}

func newSlab[T any](width int) slab[T] {
	values := min(max(64*width, 1024), 4096) // of a page, for slots of up to 1,024 values
	return slab[T]{width: width, shift: uint8(max(2, bits.Len(uint(values/width))-1))}
}

// at returns the values of a slot. They hold until the slab changes.
func (s *slab[T]) at(slot uint32) []T {
	page, i := s.pages[slot>>s.shift], int(slot&(1<<s.shift-1))*s.width
	return page[i : i+s.width : i+s.width]
}

// add returns a slot that belongs to owner, with values of any kind in it.
func (s *slab[T]) add(owner uint32) uint32 {
	slot := s.count
	page := slot >> s.shift
	if int(page) == len(s.pages) {
		s.pages = append(s.pages, make([]T, s.width<<s.shift))
		s.owners = append(s.owners, make([]uint32, 1<<s.shift))
	}
	s.owners[page][slot&(1<<s.shift-1)] = owner
	s.count++
	return slot
}

// drop frees a slot. If another one was moved there, it returns its owner and true.
func (s *slab[T]) drop(slot uint32) (owner uint32, moved bool) {
	s.count--
	last := s.count
	if slot != last {
		copy(s.at(slot), s.at(last))
		owner, moved = s.owners[last>>s.shift][last&(1<<s.shift-1)], true
		s.owners[slot>>s.shift][slot&(1<<s.shift-1)] = owner
	}
	if keep := int(s.count>>s.shift) + 2; len(s.pages) > keep { // one page stays in hand
		clear(s.pages[keep:])
		clear(s.owners[keep:])
		s.pages, s.owners = s.pages[:keep], s.owners[:keep]
	}
	return owner, moved
}

// slots returns how many slots there is memory for.
func (s *slab[T]) slots() int { return len(s.pages) << s.shift }
