package kv

// pages is an array that grows without moving. The zero value is empty.
type pages[T any] struct {
	list  []*[pageSize]T
	count uint32 // given out by grow
	made  int    // pages that exist
}

const (
	pageBits = 8
	pageSize = 1 << pageBits
)

// at returns element i, which must be there.
func (p *pages[T]) at(i uint32) *T { return &p.list[i>>pageBits][i&(pageSize-1)] }

// peek returns element i, or nil where there is no page.
func (p *pages[T]) peek(i uint32) *T {
	if page := int(i >> pageBits); page < len(p.list) && p.list[page] != nil {
		return &p.list[page][i&(pageSize-1)]
	}
	return nil
}

// reach returns element i, for which it makes the page if need be.
func (p *pages[T]) reach(i uint32) *T {
	page := int(i >> pageBits)
	for len(p.list) <= page {
		p.list = append(p.list, nil)
	}
	if p.list[page] == nil {
		p.list[page] = new([pageSize]T)
		p.made++
	}
	return &p.list[page][i&(pageSize-1)]
}

// grow adds one element and returns its number.
func (p *pages[T]) grow() uint32 {
	i := p.count
	p.count++
	p.reach(i)
	return i
}

func (p *pages[T]) len() int { return int(p.count) }

func (p *pages[T]) bytes(each int64) int64 { return int64(p.made)*pageSize*each + int64(len(p.list))*8 }
