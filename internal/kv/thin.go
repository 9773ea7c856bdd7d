package kv

// thinColumn is a column of a thin group, which lowers how far its holder's prefixes are of use.
type thinColumn struct {
	holder Holder
	column uint16
	need   tail
}

// steps is a prompt's way through the runs.
type steps struct {
	c    *content
	list []step
}

type step struct {
	run *run
	at  int32 // blocks before it
	n   int32 // blocks of the prompt in it
}

// way returns memory for a prompt's way, which goes back with doneWay.
func (ix *idleMemory) way() *steps {
	if s, ok := ix.ways.Get().(*steps); ok {
		return s
	}
	return new(steps)
}

func (ix *idleMemory) doneWay(s *steps) {
	s.c = nil
	clear(s.list)
	ix.ways.Put(s)
}

// walk notes the runs that keys lead through.
func (s *steps) walk(c *content, keys []Key) {
	s.c, s.list = c, s.list[:0]
	w := walk{c: c}
	for number, at := c.begin(keys[0]), 0; number != 0; {
		r := c.runs.at(number)
		n := w.shared(r, keys[at:])
		s.list = append(s.list, step{r, int32(at), int32(n)})
		if at += n; at == len(keys) {
			return
		}
		number = c.next(cellOf(number, n-1), keys[at])
	}
}

// fitAll returns the largest number of leading blocks, depth at most, behind which all groups can go on. As
// in vLLM, each shortens what the others left until none does.
func (s *steps) fitAll(groups []thinColumn, depth int32) int32 {
	for shorter := true; shorter; {
		shorter = false
		for i := range groups {
			if d := s.fit(&groups[i], depth); d < depth {
				depth, shorter = d, true
			}
		}
	}
	return depth
}

// fit is fitAll for one group. It searches from the end for as many blocks without a hole as the group
// needs, or for all blocks from the start.
func (s *steps) fit(g *thinColumn, depth int32) int32 {
	stride := g.need.stride
	end, found := depth, int32(0)
	i, word := len(s.list), uint64(0)
	for p := depth - depth%stride; p > 0; p -= stride {
		for i == len(s.list) || s.list[i].at >= p {
			i--
			word = s.word(i, g.column)
		}
		at := uint(p - 1 - s.list[i].at)
		switch {
		case word>>at&1 == 0:
			found = 0
			if word<<(63-at) == 0 { // the group has no earlier block in this run
				p = s.list[i].at - s.list[i].at%stride + stride
			}
			continue
		case found == 0:
			end = p
		}
		if found++; found >= g.need.least {
			return end
		}
	}
	if found == 0 {
		return 0
	}
	return end
}

// word returns which blocks of a step's run a column has.
func (s *steps) word(i int, column uint16) uint64 {
	if h := s.c.hold(s.list[i].run, column); h != nil {
		return h.word
	}
	return 0
}

// hybrid reports whether h has thin groups. Match asks under mu.
func (cs *columns) hybrid(h Holder) bool {
	word := int(h / bankSize)
	return word < len(cs.hybrids) && cs.hybrids[word]>>(h%bankSize)&1 != 0
}
