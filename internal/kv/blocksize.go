package kv

// BlockSizeIn returns the block size that the events of b tell of their engine, or 0 if they tell none, given
// what was believed before (0: nothing).
//
// Only what an engine stores in its own memory for a group that serves whole prefixes counts, and only where
// every block came with its tokens: hybrid models have groups of other sizes, masked blocks come without
// their share of the tokens, and placeholders of offload tiers say 0. An event of one block that is smaller
// than believed says nothing either: hybrid models announce parts of blocks so (prefix_match_unit in vLLM).
func BlockSizeIn(b *Batch, believed int) int {
	for i := range b.Events {
		e := &b.Events[i]
		whole := e.Kind == Stored && e.Tier == GPU && e.BlockSize > 0 && len(e.Hashes) > 0 &&
			len(e.Tokens) == len(e.Hashes)*e.BlockSize
		if whole && servesPrefix(e.SpecKind) && (len(e.Hashes) > 1 || believed > 0 && e.BlockSize >= believed) {
			return e.BlockSize
		}
	}
	return 0
}
