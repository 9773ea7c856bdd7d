package enginesim

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// What vLLM 0.32.0 refuses, in its order and words: testdata/refusals-vllm-0.32.0.jsonl has the answers of a
// real server.
//
//	validate   the body alone (protocol.py): 400 before the handler, so that transfer params are not cleaned up
//	prepare    what goes before tokens are counted: tools, templates, media, suffix
//	verifyArgs SamplingParams._verify_args: 400 also for a stream
//	engine     SamplingParams.verify: a stream has begun by then, the error is its first event

// rare holds the fields that few requests have. A request without any of them has none of it.
type rare struct {
	topP, topK, minP, presence, frequency, repetition float64 // NaN unset
	logprobs, topLogprobs, promptLogprobs             int     // noNumber unset
	logprobsFlag                                      bool    // chat's logprobs: true
	truncate                                          int     // noNumber unset
	side                                              string  // truncation_side
	emptySalt, badWords                               bool
	suffix, beam, template, media                     bool
	noTurns                                           bool // messages is an empty list
	noPrompts                                         bool // prompt is an empty list
	continues, opens                                  bool // continue_final_message, add_generation_prompt
	tools                                             []string
	hasTools                                          bool
	choice                                            []byte // tool_choice as it came, nil without
	bias                                              map[uint32]float64
	badBias                                           []string // keys that are no numbers
	allowed                                           []uint32
	hasAllowed                                        bool
	structured, format                                constraint
}

// noNumber is an integer that was not given.
const noNumber = math.MinInt

var emptyConversation = badRequest("",
	"Cannot apply chat template to an empty conversation. Provide at least one message.")

// maxLogprobs is --max-logprobs.
const maxLogprobs = 20

func (p *params) more() *rare {
	if p.rare == nil {
		nan := math.NaN()
		p.rare = &rare{
			topP: nan, topK: nan, minP: nan, presence: nan, frequency: nan, repetition: nan,
			logprobs: noNumber, topLogprobs: noNumber, promptLogprobs: noNumber, truncate: noNumber,
		}
	}
	return p.rare
}

// uncommon consumes one field that few requests have; unknown ones are skipped.
func (p *params) uncommon(s *scanner, key []byte) {
	if s.Peek() == 'n' {
		s.Skip() // null is as if the field were not there
		return
	}
	switch string(key) {
	case "top_p":
		p.more().topP = s.number()
	case "top_k":
		p.more().topK = s.number()
	case "min_p":
		p.more().minP = s.number()
	case "presence_penalty":
		p.more().presence = s.number()
	case "frequency_penalty":
		p.more().frequency = s.number()
	case "repetition_penalty":
		p.more().repetition = s.number()
	case "truncate_prompt_tokens":
		p.more().truncate = s.integer(noNumber)
	case "truncation_side":
		x := p.more()
		x.side = string(s.str())
	case "logit_bias":
		p.logitBias(s)
	case "allowed_token_ids":
		x := p.more()
		x.allowed, x.hasAllowed = s.ids(nil), true
	case "bad_words":
		s.array(func() {
			if len(s.str()) == 0 {
				p.more().badWords = true
			}
		})
	case "suffix":
		s.Skip()
		p.more().suffix = true
	case "use_beam_search":
		if s.boolean() {
			p.more().beam = true
		}
	case "structured_outputs":
		p.more().structured.read(s)
	case "response_format":
		p.more().format.readFormat(s)
	default:
		p.uncommonChat(s, key)
	}
}

func (p *params) uncommonChat(s *scanner, key []byte) {
	if p.at != atChat {
		s.Skip()
		return
	}
	switch string(key) {
	case "tools":
		x := p.more()
		x.hasTools = true
		s.array(func() {
			name, there := toolName(s)
			if !there && p.strict == nil {
				p.strict = withoutFunction(len(x.tools))
			}
			x.tools = append(x.tools, name)
		})
	case "tool_choice":
		p.more().choice = s.Value()
	case "chat_template":
		s.Skip()
		p.more().template = true
	case "chat_template_kwargs":
		s.object(func(key []byte) {
			if string(key) == "chat_template" && s.Peek() != 'n' {
				p.more().template = true
			}
			s.Skip()
		})
	case "continue_final_message":
		if s.boolean() {
			p.more().continues = true
		}
	case "add_generation_prompt":
		if s.boolean() {
			p.more().opens = true
		}
	default:
		s.Skip()
	}
}

// toolName reads one tool, or a tool_choice: the function's name, and whether there is a function.
func toolName(s *scanner) (name string, there bool) {
	s.object(func(key []byte) {
		there = there || string(key) == "function"
		if string(key) != "function" || s.Peek() != '{' {
			s.Skip()
			return
		}
		s.object(func(key []byte) {
			if string(key) == "name" && s.Peek() == '"' {
				name = string(s.str())
				return
			}
			s.Skip()
		})
	})
	return name, there
}

func (p *params) logitBias(s *scanner) {
	x := p.more()
	s.object(func(key []byte) {
		name := string(key)
		value := s.number()
		id, err := strconv.Atoi(name)
		if err != nil {
			x.badBias = append(x.badBias, name)
			return
		}
		if x.bias == nil {
			x.bias = make(map[uint32]float64)
		}
		x.bias[clampID(id)] = value
	})
}

// about is a refusal that names its field behind the text, as VLLMValidationError does.
func about(field, format string, args ...any) *problem {
	return badRequest(field, "%s (parameter=%s)", fmt.Sprintf(format, args...), field)
}

// valued is about with the value that was refused.
func valued(field, value, format string, args ...any) *problem {
	return badRequest(field, "%s (parameter=%s, value=%s)", fmt.Sprintf(format, args...), field, value)
}

// float writes f as Python does.
func float(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// validate looks at the body alone, as the validators of completion/protocol.py and
// chat_completion/protocol.py do.
func (p *params) validate() *problem {
	if p.at != atCompletions && p.at != atChat {
		return nil
	}
	if p.options && !p.stream {
		return about("stream_options", "Stream options can only be defined when `stream=True`.")
	}
	if p.at == atChat && len(p.turns) == 0 && p.raw == noPrompt && (p.rare == nil || !p.rare.noTurns) {
		return invalidBody("body.messages", "1 validation error:\n  {'type': 'missing', 'loc': 'body.messages', "+
			"'msg': 'Field required', 'input': '<dict>'}")
	}
	if p.at == atCompletions && p.echo && p.tooFew && p.asked == 0 {
		p.maxTokens, p.tooFew = 1, false // one token is made all the same
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

// chosen is the name of the tool that tool_choice wants.
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
		return invalidBody("body.response_format.type",
			"1 validation error:\n  {'type': 'literal_error', 'loc': 'body.response_format.type', "+
				"'msg': \"Input should be 'text', 'json_object' or 'json_schema'\", 'input': '%s'}", x.format.unknown)
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
		return invalidBody("body.truncate_prompt_tokens",
			"1 validation error:\n  {'type': 'greater_than_equal', 'loc': 'body.truncate_prompt_tokens', "+
				"'msg': 'Input should be greater than or equal to -1', 'input': '%d', 'ctx': {'ge': -1}}", x.truncate)
	case x.side != "" && x.side != "left" && x.side != "right":
		return invalidBody("body.truncation_side",
			"1 validation error:\n  {'type': 'literal_error', 'loc': 'body.truncation_side', "+
				"'msg': \"Input should be 'left' or 'right'\", 'input': '%s', 'ctx': {'expected': \"'left' or "+
				"'right'\"}}", x.side)
	case len(x.badBias) > 0:
		list := "['" + strings.Join(x.badBias, "', '") + "']"
		return valued("logit_bias", list,
			"logit_bias contains key(s) that cannot be converted to integer token IDs: %s", list)
	}
	return nil
}

// prepare refuses what vLLM refuses before it counts tokens, and shortens prompts.
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

// toolsAndTemplate looks at tools and templates. A server without --tool-call-parser has tools only where
// none may be called.
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

// truncate keeps the last tokens of each prompt, or with truncation_side the first ones; -1 is as many as the
// model takes.
func (s *Server) truncate(p *params) *problem {
	n, limit := p.rare.truncate, s.ranks[0].cfg.MaxModelLen
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
		n = limit - max(p.maxTokens, 1)
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

// engine is SamplingParams.verify, which a stream hears as its first event.
func (s *Server) engine(p *params) *problem {
	bad := s.verify(p)
	if bad != nil {
		bad.late = true
	}
	return bad
}

func (s *Server) verify(p *params) *problem {
	size := s.voc.size
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

// outside lists the ids that are not in the vocabulary as Python prints a list, "" when there is none.
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
