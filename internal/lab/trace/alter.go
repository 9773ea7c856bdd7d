package trace

// leadBlock is the block size of a session that had no blocks before Lead.
const leadBlock = 16

// Lead puts the same tokens in front of every prompt of s: whole blocks with at least tokens tokens. Sessions
// of one block size with the same identity then share this beginning.
func (s *Session) Lead(identity uint64, tokens int) {
	if s.BlockSize < 1 {
		s.BlockSize = leadBlock
	}
	n := (tokens + s.BlockSize - 1) / s.BlockSize
	lead := make([]uint64, n)
	for i := range lead {
		lead[i] = mix(identity, uint64(i))
	}
	s.rewrite(func(ids []uint64) []uint64 { return append(lead[:n:n], ids...) })
	for i := range s.Calls {
		s.Calls[i].Input += n * s.BlockSize
	}
}

// Unshare makes the blocks of s unique: no session with another number has them.
func (s *Session) Unshare(number uint64) {
	s.rewrite(func(ids []uint64) []uint64 {
		for i := range ids {
			ids[i] = mix(number, ids[i])
		}
		return ids
	})
}

// rewrite replaces the identities of each call with the result of change.
func (s *Session) rewrite(change func(ids []uint64) []uint64) {
	all := make([][]uint64, len(s.Calls))
	for i := range s.Calls { // a call may refer to an earlier call
		all[i] = s.AppendBlocks(nil, i)
	}
	for i, ids := range all {
		s.Calls[i].ids = change(ids)
	}
}
