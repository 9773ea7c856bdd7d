package enginesim

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

var emptyConversation = badRequest("",
	"Cannot apply chat template to an empty conversation. Provide at least one message.")

// about is a refusal with its field behind the text, like VLLMValidationError.
func about(field, format string, args ...any) *problem {
	return badRequest(field, "%s (parameter=%s)", fmt.Sprintf(format, args...), field)
}

// valued is about with the refused value.
func valued(field, value, format string, args ...any) *problem {
	return badRequest(field, "%s (parameter=%s, value=%s)", fmt.Sprintf(format, args...), field, value)
}

// float formats f like Python.
func float(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// validate checks the body alone, like the validators of completion/protocol.py and
// chat_completion/protocol.py.
func (p *params) validate() *problem {
	if p.at != atCompletions && p.at != atChat {
		return nil
	}
	if p.options && !p.stream {
		return about("stream_options", "Stream options can only be defined when `stream=True`.")
	}
	if p.at == atChat && len(p.turns) == 0 && p.raw == noPrompt && (p.rare == nil || !p.rare.noTurns) {
		return invalidBody("body.messages")
	}
	if p.at == atCompletions && p.echo && p.tooFew && p.asked == 0 {
		p.maxTokens, p.tooFew = 1, false // vLLM still generates one token
	}
	if p.rare == nil {
		return nil
	}
	for _, check := range []func(*params) *problem{
		(*params).validateTools, (*params).validateStructured, (*params).validateLogprobs, (*params).validateRest,
	} {
		if bad := check(p); bad != nil {
			return bad
		}
	}
	return nil
}

func (p *params) validateTools() *problem {
	x := p.rare
	switch {
	case x.continues && x.opens:
		return badRequest("", "Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
	case x.hasTools && len(x.tools) == 0:
		return about("tools",
			"`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.")
	case x.choice == nil || string(x.choice) == `"none"`:
		return nil
	case !x.hasTools:
		return about("tool_choice", "When using `tool_choice`, `tools` must be set.")
	case x.choice[0] == '"' && string(x.choice) != `"auto"` && string(x.choice) != `"required"`:
		return about("tool_choice",
			"Invalid value for `tool_choice`: %s! Only named tools, \"none\", \"auto\" or \"required\" are supported.",
			strings.Trim(string(x.choice), `"`))
	case x.choice[0] == '{' && x.chosen() == "":
		return about("tool_choice.function.name", "Expected field `name` in `function` in `tool_choice`! "+
			"Correct usage: `{\"type\": \"function\", \"function\": {\"name\": \"my_function\"}}`")
	case x.choice[0] == '{' && !slices.Contains(x.tools, x.chosen()):
		return about("tool_choice",
			"The tool specified in `tool_choice` does not match any of the specified `tools`")
	}
	return nil
}

// chosen returns the name of the tool in tool_choice.
func (x *rare) chosen() string {
	name, _ := toolName(scan(x.choice))
	return name
}

func (p *params) validateStructured() *problem {
	x := p.rare
	switch {
	case x.structured.kinds > 1 && p.at == atCompletions:
		return about("structured_outputs",
			"You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice').")
	case x.structured.kinds > 1:
		return badRequest("",
			"You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice').")
	case x.format.unknown != "":
		return invalidBody("body.response_format.type")
	case x.format.noSchema:
		return about("response_format",
			"When response_format type is 'json_schema', the 'json_schema' field must be provided.")
	}
	return nil
}

func (p *params) validateLogprobs() *problem {
	x := p.rare
	switch n := x.promptLogprobs; {
	case n == noNumber:
	case p.stream && (n > 0 || n == -1):
		return about("prompt_logprobs", "`prompt_logprobs` are not available when `stream=True`.")
	case n < -1:
		return valued("prompt_logprobs", strconv.Itoa(n), "`prompt_logprobs` must be a positive value or -1.")
	}
	if n := x.logprobs; p.at == atCompletions && n != noNumber && n < -1 {
		return valued("logprobs", strconv.Itoa(n), "`logprobs` must be a positive value or -1.")
	}
	switch n := x.topLogprobs; {
	case n == noNumber || p.at != atChat:
	case n < -1:
		return valued("top_logprobs", strconv.Itoa(n), "`top_logprobs` must be a positive value or -1.")
	case n != 0 && !x.logprobsFlag:
		return about("top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true.")
	}
	return nil
}

func (p *params) validateRest() *problem {
	x := p.rare
	switch {
	case x.emptySalt:
		return about("cache_salt", "Parameter 'cache_salt' must be a non-empty string if provided.")
	case x.truncate != noNumber && x.truncate < -1:
		return invalidBody("body.truncate_prompt_tokens")
	case x.side != "" && x.side != "left" && x.side != "right":
		return invalidBody("body.truncation_side")
	case len(x.badBias) > 0:
		list := "['" + strings.Join(x.badBias, "', '") + "']"
		return valued("logit_bias", list,
			"logit_bias contains key(s) that cannot be converted to integer token IDs: %s", list)
	}
	return nil
}

// prepare makes the refusals that vLLM makes before it counts tokens, and truncates prompts.
func (s *Server) prepare(p *params) *problem {
	x := p.rare
	if x == nil {
		return nil
	}
	switch {
	case x.noTurns:
		return emptyConversation
	case x.noPrompts:
		return badRequest("", "You must pass at least one prompt")
	case p.at == atCompletions && x.beam && p.stream:
		return badRequest("", "Streaming is not currently supported with beam search")
	case p.at == atCompletions && x.suffix:
		return badRequest("suffix", "suffix is only supported for models with FIM completion rendering")
	}
	if bad := s.toolsAndTemplate(x); bad != nil {
		return bad
	}
	return s.truncate(p)
}

// toolsAndTemplate checks tools and templates. A server without --tool-call-parser accepts tools only if none
// may be called.
func (s *Server) toolsAndTemplate(x *rare) *problem {
	choice := string(x.choice)
	switch {
	case s.o.ToolParser || !x.hasTools || choice == `"none"`:
	case choice == "" || choice == `"auto"`:
		return badRequest("",
			`"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set`)
	case choice == `"required"`:
		return badRequest("", `tool_choice="required" requires --tool-call-parser to be set`)
	default:
		return badRequest("", `tool_choice=function "%s" requires --tool-call-parser to be set`, x.chosen())
	}
	switch {
	case x.template:
		return badRequest("",
			"Chat template is passed with request, but --trust-request-chat-template is not set. "+
				"Refused request with untrusted chat template.")
	case x.media:
		return badRequest("", "%s is not a multimodal model", s.o.Model)
	}
	return nil
}

// truncate keeps the last tokens of each prompt, or the first ones with truncation_side. -1 means as many as
// the model takes (max_truncation_tokens in renderers/params.py).
func (s *Server) truncate(p *params) *problem {
	n, limit := p.rare.truncate, s.cores.ranks[0].cfg.MaxModelLen
	switch {
	case n == noNumber || p.at == atGenerate:
		return nil
	case n > limit:
		return valued("truncate_prompt_tokens", strconv.Itoa(n),
			"truncate_prompt_tokens=%d cannot be greater than max_model_len = %d. "+
				"Please request a smaller truncation size.", n, limit)
	case n == 0:
		return badRequest("", "The decoder prompt cannot be empty")
	case n < 0:
		n = limit - 1 // leaves room for one token
		if p.maxTokens < 0 && p.at != atCompletions {
			n = limit
		}
	}
	for i, ids := range p.prompts {
		switch {
		case len(ids) <= n:
		case p.rare.side == "right":
			p.prompts[i] = ids[:n:n]
		default:
			p.prompts[i] = ids[len(ids)-n:]
		}
	}
	return nil
}
