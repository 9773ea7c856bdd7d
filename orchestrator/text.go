package orchestrator

import (
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/roster"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// textNames holds the chunks of a prompt's text as each pool names them; empty if a pool matches no text.
type textNames struct{ prefill, decode roster.Prompt }

// nameText names the prompt by its text. It serves prompts without known token ids.
func nameText(j *job) (n textNames) {
	parts := j.req.PromptText(nil, j.of.index)
	if len(parts) == 0 {
		return n
	}
	p, adapter, perChunk, ok := j.prefill.TextChain(j.req.Model)
	if ok {
		n.prefill = roster.Prompt{Keys: chunks(j, p, adapter, parts), Chunk: perChunk}
	}
	d, adapter, perChunk, known := j.decode.TextChain(j.req.Model)
	switch {
	case known && ok && d == p:
		n.decode = n.prefill
	case known:
		n.decode = roster.Prompt{Keys: chunks(j, d, adapter, parts), Chunk: perChunk}
	}
	return n
}

func chunks(j *job, chain kv.TextChain, adapter string, parts [][]byte) []kv.Key {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	return chain.Append(make([]kv.Key, 0, size/chain.ChunkSize()), chain.Root(adapter, j.req.CacheSalt),
		parts...)
}

// rememberText records, for a prompt that was matched by its tokens, where it was sent. So a later prompt
// with the same beginning finds this replica even if its own tokens are unknown. It runs after the answer was
// sent.
func rememberText(j *job, b *planner.Booking) {
	if j.ids == nil || j.cfg.Tokenizer.ChunkBytes == 0 {
		return
	}
	names := nameText(j)
	if b.Mode == planner.Split {
		j.prefill.Remember(b.Prefill.ID, names.prefill)
	}
	j.decode.Remember(b.Decode.ID, names.decode)
}
