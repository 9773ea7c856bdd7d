package enginesim

import (
	"slices"
	"strconv"
	"strings"
)

// maxLogprobs is --max-logprobs.
const maxLogprobs = 20

// verifyArgs is SamplingParams._verify_args, in its order.
func (p *params) verifyArgs() *problem {
	if p.n < 1 {
		return badRequest("", "n must be at least 1, got %d.", p.n)
	}
	if bad := p.penalties(); bad != nil {
		return bad
	}
	switch t := p.temperature; {
	case t < 0:
		return valued("temperature", float(t), "temperature must be non-negative, got %s.", float(t))
	case t > 2:
		return valued("temperature", float(t), "temperature must be in [0, 2], got %s.", float(t))
	}
	if bad := p.cutoffs(); bad != nil {
		return bad
	}
	limit := p.maxTokens
	if p.tooFew {
		return valued("max_tokens", strconv.Itoa(p.asked), "max_tokens must be at least 1, got %d.", p.asked)
	}
	if limit < 0 && p.at == atCompletions {
		limit = 16
	}
	switch {
	case p.minTokens < 0:
		return badRequest("", "min_tokens must be greater than or equal to 0, got %d.", p.minTokens)
	case limit > 0 && p.minTokens > limit:
		return badRequest("", "min_tokens must be less than or equal to max_tokens=%d, got %d.", limit, p.minTokens)
	case slices.Contains(p.stop, ""):
		return badRequest("", "stop cannot contain an empty string.")
	case p.rare != nil && p.rare.badWords:
		return badRequest("", "bad_words cannot contain an empty string. Got bad_words=['']")
	case p.n > 1 && p.temperature == 0 && !p.beams():
		return badRequest("", "n must be 1 when using greedy sampling, got %d.", p.n)
	}
	return p.constrained()
}

func (p *params) beams() bool { return p.rare != nil && p.rare.beam }

func (p *params) penalties() *problem {
	x := p.rare
	switch {
	case x == nil:
	case x.presence < -2 || x.presence > 2:
		return badRequest("", "presence_penalty must be in [-2, 2], got %s.", float(x.presence))
	case x.frequency < -2 || x.frequency > 2:
		return badRequest("", "frequency_penalty must be in [-2, 2], got %s.", float(x.frequency))
	case x.repetition <= 0:
		return badRequest("", "repetition_penalty must be greater than zero, got %s.", float(x.repetition))
	}
	return nil
}

func (p *params) cutoffs() *problem {
	x := p.rare
	switch {
	case x == nil:
	case x.topP <= 0 || x.topP > 1:
		return valued("top_p", float(x.topP), "top_p must be in (0, 1], got %s.", float(x.topP))
	case x.topK < -1:
		return badRequest("", "top_k must be 0 (disable), or at least 1, got %d.", int(x.topK))
	case x.minP < 0 || x.minP > 1:
		return badRequest("", "min_p must be in [0, 1], got %s.", float(x.minP))
	}
	return nil
}

// engine is SamplingParams.verify. A stream gets its error as the first event.
func (s *Server) engine(p *params) *problem {
	bad := s.verify(p)
	if bad != nil {
		bad.late = true
	}
	return bad
}

func (s *Server) verify(p *params) *problem {
	size := s.model.voc.size
	if bad := p.tooManyLogprobs(size); bad != nil {
		return bad
	}
	if x := p.rare; x != nil {
		if out := outside(keys(x.bias), size); out != "" {
			return valued("logit_bias", out,
				"token_id(s) %s in logit_bias contain out-of-vocab token ids. Vocabulary size: %d", out, size)
		}
	}
	if out := outside(p.stopIDs, size); out != "" {
		return valued("stop_token_ids", out,
			"token_id(s) %s in stop_token_ids contain out-of-vocab token ids. Vocabulary size: %d", out, size)
	}
	if x := p.rare; x != nil && x.hasAllowed {
		if len(x.allowed) == 0 {
			return valued("allowed_token_ids", "[]", "allowed_token_ids is not None and empty!")
		}
		if out := outside(x.allowed, size); out != "" {
			return valued("allowed_token_ids", out, "allowed_token_ids contains out-of-vocab token id!")
		}
	}
	for _, ids := range p.prompts {
		if bad := s.inVocabulary(ids); bad != nil {
			return bad
		}
	}
	return nil
}

func (p *params) tooManyLogprobs(size int) *problem {
	x := p.rare
	if x == nil {
		return nil
	}
	n := x.logprobs
	if p.at == atChat {
		n = x.topLogprobs
	}
	if n == -1 {
		n = size
	}
	if n > maxLogprobs {
		return valued("logprobs", strconv.Itoa(n),
			"Requested sample logprobs of %d, which is greater than max allowed: %d", n, maxLogprobs)
	}
	if n = x.promptLogprobs; n == -1 {
		n = size
	}
	if n > maxLogprobs {
		return valued("prompt_logprobs", strconv.Itoa(n),
			"Requested prompt logprobs of %d, which is greater than max allowed: %d", n, maxLogprobs)
	}
	return nil
}

func keys(m map[uint32]float64) []uint32 {
	var ids []uint32
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// outside lists the ids outside the vocabulary in Python's form, "" if there are none.
func outside(ids []uint32, size int) string {
	var out []string
	for _, id := range ids {
		if int(id) >= size {
			out = append(out, strconv.Itoa(int(id)))
		}
	}
	if out == nil {
		return ""
	}
	return "[" + strings.Join(out, ", ") + "]"
}
