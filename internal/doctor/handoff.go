package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-router/tandem/internal/canary"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/setup"
)

// handoffSlow is the check of the speed of each link.
const handoffSlow = "handoff-slow"

// handoffChecks judge the prompts that were handed over.
func handoffChecks() []check {
	return []check{
		{
			id: "handoff-failed", title: "prompts are handed over", trouble: "prompts cannot be handed over",
			fleet: handedOver, sends: true,
			why: "A request that is split between such engines fails, and is tried again at the cost of its time.",
		},
		{
			id: "handoff-wrong-text", title: "prompts that are handed over are answered rightly",
			trouble: "prompts that are handed over are answered wrongly", fleet: answeredRightly, sends: true,
			why: "The decode engine generates from blocks that are not the prompt's. Clients get 200 and a wrong " +
				"text, and " +
				"the prefix cache keeps the wrong blocks for whoever comes later.",
		},
		{
			id: "handoff-not-moved", title: "KV blocks move from prefill to decode",
			trouble: "no KV blocks move from prefill to decode", fleet: blocksMove, sends: true,
			why: "Every answer is right, and every split prompt is computed twice: the prefill pool works for " +
				"nothing.",
		},
		{
			id: handoffSlow, title: "KV blocks move as fast as configured",
			trouble: "KV blocks move slowly", fleet: waysFast, sends: true, needs: []string{"handoff-not-moved"},
			why: "Each split request waits for its transfer, and all streams of the decode engine wait with it. " +
				"Tandem learns the real speed; until then it splits requests that would be answered sooner whole.",
		},
		{
			id: "handoff-params", title: "the transfer parameters have no unknown keys",
			trouble: "the transfer parameters have unknown keys", fleet: paramsKnown, sends: true,
			why: "Tandem passes them on as they are. What they ask of the decode engine it cannot know.",
		},
	}
}

// ofKind returns the handoffs whose verdict is one of kinds.
func (hs handoffs) ofKind(kinds ...canary.Kind) handoffs {
	return slices.DeleteFunc(slices.Clone(hs), func(h *handoff) bool {
		return !slices.Contains(kinds, h.verdict.Kind)
	})
}

// reasons writes the first few handoffs, each with why.
func reasons(all []*handoff) string {
	var lines []string
	for _, h := range all[:min(len(all), 4)] {
		lines = append(lines, fmt.Sprintf("%v: %s", h, h.verdict.Why))
	}
	text := strings.Join(lines, "; ")
	if more := len(all) - len(lines); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

const (
	noPair  = "there is no pair of a prefill and a decode engine that compute prompts and fit each other"
	noRoles = "no handoff was tried, since the pools of the engines are not known: name the engines with " +
		"--prefill URL and --decode URL, or give --config FILE"
)

func handedOver(f *fleet) verdict {
	bad := f.handoffs.ofKind(canary.Failed)
	switch {
	case len(f.handoffs) == 0:
		return skip("%s", f.whyNoPair())
	case len(bad) == 0:
		return fine("one prompt each over %s", plural(len(f.handoffs), "pair"))
	}
	return fail(remedy(bad[0], f.kvConnector()), "%d of %s: %s",
		len(bad), plural(len(f.handoffs), "pair"), reasons(bad))
}

// remedy returns what to do about a failed handoff between engines that should have the connector kv.
func remedy(h *handoff, kv setup.KV) string {
	flag := `with --kv-transfer-config '{"kv_connector":"` + kv.Connector +
		`","kv_role":"kv_both","kv_load_failure_policy":"fail"}'`
	if kv.Strict() {
		flag = "with " + kv.Flag(replica.Prefill) + " (kv_consumer on decode)"
	}
	switch {
	case h.foreign != nil, kv.Strict() && h.verdict.Leg == "prefill":
		return "start all engines " + flag
	case h.verdict.Leg == "prefill":
		return "start the prefill engine " + flag + "; if it is, look into its log"
	case h.verdict.Leg == "decode":
		return "look into the decode engine's log; see that it reaches VLLM_NIXL_SIDE_CHANNEL_HOST and _PORT of " +
			"the prefill " +
			"engine, by default 5600, and the devices that UCX or libfabric choose on both sides, and that both " +
			"were started " +
			"with the same model path, version and types" + h.refusedShapes()
	}
	return "look into the decode engine's log: it does not answer the prompt alone"
}

func answeredRightly(f *fleet) verdict {
	bad, good := f.handoffs.ofKind(canary.Wrong), f.handoffs.ofKind(canary.Moved, canary.Nothing, canary.Unclear)
	switch {
	case len(bad) > 0:
		return fail("take these pairs apart until the cause is found: both sides need the same weights, types, "+
			"attention backend "+
			"and versions of NIXL and UCX; then restart the decode engines, whose caches have wrong blocks",
			"%d of %s: %s", len(bad), plural(len(f.handoffs), "pair"), reasons(bad))
	case len(good) == 0:
		return skip("no prompt was handed over")
	}
	return fine("as the decode engine answers alone, over %s", plural(len(good), "pair"))
}

func blocksMove(f *fleet) verdict {
	still := f.handoffs.ofKind(canary.Nothing)
	moved := f.handoffs.ofKind(canary.Moved)
	unclear := f.handoffs.ofKind(canary.Unclear)
	switch {
	case len(still) > 0:
		return fail("start the decode engines with the "+f.kvConnector().Connector+
			` and "kv_load_failure_policy":"fail", and look into their log `+
			"for failed transfers: with recompute a transfer that fails is computed again and nobody is told",
			"%d of %s: %s", len(still), plural(len(f.handoffs), "pair"), reasons(still))
	case len(moved) == 0 && len(unclear) == 0:
		return skip("no prompt was handed over")
	case len(moved) == 0:
		return skip("the decode engines do not tell: %s", reasons(unclear))
	}
	least := slices.MinFunc(moved, func(a, b *handoff) int {
		return cmp.Compare(a.verdict.Tokens, b.verdict.Tokens)
	})
	return fine("%d of %d tokens of each prompt came by transfer, over %s",
		least.verdict.Tokens, least.verdict.Prompt, plural(len(moved), "pair"))
}

func paramsKnown(f *fleet) verdict {
	tried := slices.DeleteFunc(slices.Clone(f.handoffs), func(h *handoff) bool {
		return h.verdict.Kind == canary.Failed && h.verdict.Leg == "prefill"
	})
	at := slices.IndexFunc(tried, func(h *handoff) bool { return len(h.strange) > 0 })
	switch {
	case len(tried) == 0:
		return skip("no prefill engine gave any")
	case f.connector().Traits().NoParams:
		return skip("%s has none", f.kvConnector().Connector)
	case at < 0:
		return fine("those of NIXL")
	}
	return warn("see what brings them: a newer vLLM, or another connector beside NIXL",
		"%s gives %s", tried[at].from.name(), list(tried[at].strange))
}

// tensorParallel returns the tensor-parallel size in a prefill engine's transfer params; 0 if there is none.
func tensorParallel(params []byte) int {
	var said struct {
		Size int `json:"tp_size"`
	}
	if json.Unmarshal(params, &said) != nil {
		return 0
	}
	return said.Size
}

// refusedShapes names shapes of engines that vLLM refuses only at their handshake. It names only shapes that
// the engines may have after a handoff that failed on the decode leg; "" for none. Neither side reports
// whether its model has MLA, nor the layout of its blocks. Only a prefill engine reports its tensor-parallel
// size. The rule for sizes is in nixl/base_worker.py of 0.32 (_validate_remote_agent_handshake).
func refusedShapes(prefill, decode *replica.Facts, tp int) string {
	text := ""
	if tp > 1 {
		text = fmt.Sprintf("; the prefill engine's tensor-parallel size is %d: that of the decode engine must be "+
			"a multiple of it, or divide it if the model has at least %d KV heads, MLA or Mamba layers", tp, tp)
	}
	if !replica.AtLeast(decode.Version, 0, 33) {
		return text
	}
	if tp > 1 && (prefill.Drafts > 0 || decode.Drafts > 0) {
		text += fmt.Sprintf("; with a drafter that splits its heads under a model with MLA, "+
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
