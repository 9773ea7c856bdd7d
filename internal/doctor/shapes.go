package doctor

import (
	"encoding/json"
	"fmt"

	"github.com/tandem-router/tandem/internal/replica"
)

// tensorParallel is the tensor-parallel size that a prefill engine says in its transfer params, 0 where it
// says none.
func tensorParallel(params []byte) int {
	var said struct {
		Size int `json:"tp_size"`
	}
	if json.Unmarshal(params, &said) != nil {
		return 0
	}
	return said.Size
}

// refusedShapes says which shapes of engines vLLM refuses to pair only at their handshake. It names only
// shapes that the engines of a handoff that failed on the decode leg may have; "" where they can have none.
// Neither side says whether its model has MLA, nor how it lays out its blocks.
func refusedShapes(prefill, decode *replica.Facts, tp int) string {
	if !replica.AtLeast(decode.Version, 0, 33) {
		return ""
	}
	text := ""
	if tp > 1 && (prefill.Drafts > 0 || decode.Drafts > 0) {
		text = fmt.Sprintf("; with a drafter that splits its heads under a model with MLA, "+
			"vLLM refuses a decode engine of a smaller tensor-parallel size than the prefill engine's %d, "+
			"and any context parallelism", tp)
	}
	return text + "; blocks that are packed into rows need the same VLLM_KV_CACHE_LAYOUT " +
		"and --block-size on both sides"
}

// refusedShapes is refusedShapes of the engines of the handoff.
func (h *handoff) refusedShapes() string {
	from, to := h.from.replica(), h.to.replica()
	from.Facts.Drafts, to.Facts.Drafts = h.from.drafts(), h.to.drafts()
	return refusedShapes(&from.Facts, &to.Facts, h.tp)
}

// drafts is how many tokens the engine has drafted for each sequence and step, 0 for none up to now.
func (r *rank) drafts() int { return r.s.seen.series.scrape.Loads[r.n].Drafts }
