package trace

import (
	"slices"
	"testing"
)

// blocksOf returns the block identities of every call.
func blocksOf(s *Session) [][]uint64 {
	all := make([][]uint64, len(s.Calls))
	for i := range s.Calls {
		all[i] = s.AppendBlocks(nil, i)
	}
	return all
}

func TestLeadIsCommonAndTheRestIsAsBefore(t *testing.T) {
	for format, text := range samples {
		sessions := read(t, text, Options{})
		var first []uint64
		for _, s := range sessions {
			size, inputs := max(s.BlockSize, leadBlock), []int{}
			for _, c := range s.Calls {
				inputs = append(inputs, c.Input)
			}
			n := (1000 + size - 1) / size
			before := blocksOf(s)
			s.Lead(7, 1000)
			for i, ids := range blocksOf(s) {
				if first == nil {
					first = slices.Clone(ids[:n])
				}
				if !slices.Equal(ids[:n], first) || !slices.Equal(ids[n:], before[i]) {
					t.Errorf("%v: call %d is %v, was %v", format, i, ids, before[i])
				}
				if s.Calls[i].Input != inputs[i]+n*size {
					t.Errorf("%v: a prompt of %d tokens has %d", format, inputs[i], s.Calls[i].Input)
				}
				if tokens := s.AppendTokens(nil, i, ids, uint64(i), 0); len(tokens) != s.Calls[i].Input {
					t.Errorf("%v: %d tokens of %d", format, len(tokens), s.Calls[i].Input)
				}
			}
		}
	}
}

func TestUnsharedSessionsHaveNothingInCommon(t *testing.T) {
	for format, text := range samples {
		owner := map[uint64]int{}
		for number, s := range read(t, text, Options{}) {
			before := blocksOf(s)
			s.Unshare(uint64(number))
			for i, ids := range blocksOf(s) {
				for k, id := range ids {
					if of, known := owner[id]; known && of != number {
						t.Fatalf("%v: sessions %d and %d share a block", format, of, number)
					}
					owner[id] = number
					for j, other := range blocksOf(s)[:i] { // within the session the shared blocks stay the same
						if k < len(other) && (other[k] == id) != (before[j][k] == before[i][k]) {
							t.Errorf("%v: block %d of calls %d and %d", format, k, j, i)
						}
					}
				}
			}
		}
	}
}
