package roster

import (
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
)

// Status is the facts about one member that both kinds of pools have.
type Status struct {
	ID      replica.ID    `json:"id"`
	Healthy bool          `json:"healthy"`
	Reason  string        `json:"reason,omitzero"` // why not healthy
	Trust   replica.Trust `json:"index"`
	Note    string        `json:"index_note,omitzero"` // unusual facts about its index
	// Tokens of its blocks: by its events, else by its facts or the configuration.
	BlockSize int `json:"block_size,omitzero"`
	Blocks    int `json:"indexed_blocks"`          // that the index believes it has
	Chunks    int `json:"indexed_chunks,omitzero"` // of text that it was sent
	// The byte budget made the index drop blocks of the replica: it may have more than is known.
	Truncated bool `json:"index_truncated,omitzero"`
}

// Counts is how much each holder has in the indexes, and how much was dropped from them.
type Counts struct {
	blocks, chunks map[kv.Holder]int
	truncated      map[kv.Holder]uint64
}

// Counts counts. The caller need not hold the lock of the members.
func (r *Roster[M]) Counts() Counts {
	c := Counts{map[kv.Holder]int{}, map[kv.Holder]int{}, map[kv.Holder]uint64{}}
	for _, h := range r.IndexStats().Holders {
		c.blocks[h.Holder], c.truncated[h.Holder] = h.Blocks, h.Truncated
	}
	if tx := r.text.Load(); tx != nil {
		for _, h := range tx.Stats().Holders {
			c.chunks[h.Holder] = h.Blocks
		}
	}
	return c
}

// Status describes m, a member. The caller holds the lock of the members.
func (r *Roster[M]) Status(m *Member, c Counts) Status {
	return Status{
		ID: m.R.ID, Healthy: m.Healthy, Reason: m.Reason, Trust: m.Believed(), Note: m.note(r.BlockSize()),
		BlockSize: m.blockSize(),
		Blocks:    c.blocks[m.Holder], Chunks: c.chunks[m.Holder], Truncated: c.truncated[m.Holder] > 0,
	}
}
