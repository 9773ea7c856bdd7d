package enginesim

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// check is the API layer's validation, before the request reaches the engine.
func (s *Server) check(p *params) *problem {
	if !s.serves(p.model) {
		return &problem{
			status: 404, kind: "NotFoundError", param: "model",
			message: "The model `" + p.model + "` does not exist. Valid aliases: " + strings.Join(s.served(), ", ") +
				".",
		}
	}
	if p.later != nil {
		return p.later
	}
	if bad := s.checkLimit(p); bad != nil {
		return bad
	}
	if bad := s.prepare(p); bad != nil {
		return bad
	}
	if bad := p.reuseIDs(s); bad != nil {
		return bad
	}
	if len(p.prompts) == 0 || slices.ContainsFunc(p.prompts, func(ids []uint32) bool { return len(ids) == 0 }) {
		return badRequest("prompt",
			"Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)")
	}
	for _, ids := range p.prompts {
		if bad := s.checkPrompt(p, ids); bad != nil {
			return bad
		}
	}
	if bad := p.verifyArgs(); bad != nil {
		return bad
	}
	return s.engine(p)
}

// checkLimit refuses a request for more tokens than the model has room for (renderers/params.py).
func (s *Server) checkLimit(p *params) *problem {
	limit := s.cores.ranks[0].cfg.MaxModelLen
	if p.at == atGenerate || p.maxTokens <= limit {
		return nil
	}
	return valued(p.limitField, strconv.Itoa(p.maxTokens),
		"%s=%d cannot be greater than max_model_len=%d. Please request fewer output tokens.",
		p.limitField, p.maxTokens, limit)
}

func (s *Server) checkPrompt(p *params, ids []uint32) *problem {
	limit := s.cores.ranks[0].cfg.MaxModelLen
	switch n := len(ids); {
	case n > limit:
		least := ""
		if n == limit+1 {
			least = "at least " // a tokenizer would have stopped at this length
		}
		return valued("input_tokens", strconv.Itoa(n),
			"This model's maximum context length is %d tokens. However, your prompt contains %s%d input tokens, "+
				"which exceeds this limit even without any output tokens. Please reduce the length of the input "+
				"prompt.", limit, least, n)
	case n == limit && !p.tooFew:
		return valued("max_tokens", "0", "max_tokens must be at least 1, got 0.")
	}
	return nil
}

func (s *Server) inVocabulary(ids []uint32) *problem {
	size := uint32(s.model.voc.size)
	for _, id := range ids {
		if id >= size {
			return badRequest("", "Token id %d is out of vocabulary", id)
		}
	}
	return nil
}

// reused is the field with ids that replace a templated prompt.
const reused = "kv_transfer_params.prompt_token_ids"

// reuseIDs replaces the templated prompt by kv_transfer_params.prompt_token_ids. The chat APIs of vLLM 0.27
// and later accept them.
func (p *params) reuseIDs(s *Server) *problem {
	if p.at == atCompletions || p.at == atGenerate || p.reuseRaw == nil || p.echo ||
		!s.process.versionAtLeast(27) {
		return nil
	}
	sc := scan(p.reuseRaw)
	negative := false
	var ids []uint32
	sc.array(func() {
		n := sc.integer(-1)
		negative = negative || n < 0
		ids = append(ids, clampID(n))
	})
	if sc.end() != nil || negative || len(ids) == 0 {
		return about(reused,
			"`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative integers.")
	}
	if bad := s.inVocabulary(ids); bad != nil {
		return about(reused, "%s", bad.message)
	}
	p.prompts = append(p.prompts[:0], ids)
	return nil
}

// served returns the names that /v1/models lists.
func (s *Server) served() []string {
	names := append([]string{s.o.Model}, s.o.Aliases...)
	for _, a := range s.adapters() {
		names = append(names, a.name)
	}
	return names
}

func addProblem(err error) *problem {
	switch err {
	case core.ErrDead:
		return engineDead
	case core.ErrDuplicate:
		return badRequest("", "Request id is in use.")
	}
	return badRequest("", "%v", err)
}
