package kv

// BlockSizeIn returns the engine's block size according to the events of b, or 0 if the events do not tell.
// believed is the size believed so far (0: none).
//
// Only events that store blocks in the engine's own memory (GPU) count, for a group that serves whole
// prefixes, and with the tokens of every block. The others mislead: hybrid models have groups of other
// sizes, masked blocks come without their share of the tokens, and placeholders of offload tiers say 0. An
// event of one block that is smaller than believed does not count either, because hybrid models announce
// parts of blocks this way (prefix_match_unit in vLLM).
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
