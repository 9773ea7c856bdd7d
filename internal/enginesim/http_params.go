package enginesim

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"tandem/internal/enginesim/core"
)

// endpoint says which front door a request came through.
type endpoint uint8

const (
	atCompletions endpoint = iota
	atChat
	atGenerate
	atResponses
	atMessages
)

// params is what a generating request asks for, whichever its front door. Fields that mean nothing to the
// simulator are accepted and skipped.
type params struct {
	at          endpoint
	model       string
	prompts     [][]uint32
	ids         []uint32 // backs prompts
	turns       []chatMessage
	maxTokens   int // -1 none
	minTokens   int
	n           int
	temperature float64 // NaN unset
	stop        []string
	stopIDs     []uint32
	ignoreEOS   bool
	includeStop bool // include_stop_str_in_output
	stream      bool
	usage       bool // stream_options.include_usage
	continuous  bool // stream_options.continuous_usage_stats
	echo        bool
	logprobs    int // -1 none
	promptLog   bool
	returnIDs   bool
	textMode    bool // generate: output_mode "text"
	salt        string
	session     string
	requestID   string
	priority    int
	seed        uint64
	transfer    *core.Transfer
	reuseRaw    []byte     // kv_transfer_params.prompt_token_ids
	raw         promptKind // how the prompt came
	strict      *problem   // the first field of a wrong type
	options     bool       // stream_options has a member
	tooFew      bool       // max_tokens is below 1, as asked
	asked       int
	rare        *rare    // nil without any of them
	counts      bool     // of /v1/messages/count_tokens
	later       *problem // what the handler says once the model is known
}

// promptKind says what there was in the prompt field.
type promptKind uint8

const (
	noPrompt promptKind = iota
	textPrompt
	idPrompt
)

var paramsPool = sync.Pool{New: func() any { return new(params) }}

func newParams(at endpoint) *params {
	p := paramsPool.Get().(*params)
	*p = params{
		at: at, ids: p.ids[:0], prompts: p.prompts[:0], turns: p.turns[:0],
		maxTokens: -1, asked: noNumber, n: 1, temperature: math.NaN(), logprobs: -1,
	}
	return p
}

// release gives p back. The engine must have let go of its prompts by then.
func (p *params) release() {
	if cap(p.ids) > 1<<20 {
		return
	}
	clear(p.turns)
	paramsPool.Put(p)
}

// parse reads the body. voc makes ids of text prompts.
func (p *params) parse(voc *vocabulary, k *call) *problem {
	s := scan(k.body)
	if s.Peek() != '{' {
		s.Fail(badType)
		return badBody(k.body, s.Err())
	}
	if bad := p.invalid(k); bad != nil {
		return bad
	}
	s.object(func(key []byte) {
		start := s.Pos
		p.field(s, voc, key)
		if s.Err() != nil && p.strict == nil {
			p.strict = p.wrongType(k.body, string(key), start)
		}
	})
	if err := s.end(); err != nil {
		if p.strict != nil {
			return p.strict
		}
		return badBody(k.body, err)
	}
	p.headers(k)
	if p.strict != nil {
		return p.strict
	}
	return p.validate()
}

// invalid asks the doors that are looked at as a whole.
func (p *params) invalid(k *call) *problem {
	switch p.at {
	case atMessages:
		if bad := invalidMessages(k.body, p.counts); bad != nil {
			return bad
		}
		p.toolsOf(k.body)
	case atResponses:
		if bad := invalidResponse(k.body); bad != nil {
			return bad
		}
		if t := newTree(k.body); t != nil {
			p.later = t.later()
		}
	case atGenerate:
		return invalidGenerate(k.body)
	}
	return nil
}

// wrongType says whether the value at start is JSON of another type than the field's; nil means that it is no
// JSON at all.
func (p *params) wrongType(body []byte, key string, start int) *problem {
	s := scan(body)
	s.Pos = start
	value := s.Value()
	if s.Err() != nil {
		return nil
	}
	kind, msg := "type_error", "Input has a wrong type"
	var v any
	_ = json.Unmarshal(value, &v) // it is JSON
	if value[0] == '"' {
		switch key {
		case "max_tokens", "max_completion_tokens", "min_tokens", "n", "seed", "priority":
			kind, msg = "int_parsing", "Input should be a valid integer, unable to parse string as an integer"
		case "temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty":
			kind, msg = "float_parsing", "Input should be a valid number, unable to parse string as a number"
		case "stream", "echo", "ignore_eos", "return_token_ids":
			kind, msg = "bool_parsing", "Input should be a valid boolean, unable to interpret input"
		case "messages":
			kind, msg = "list_type", "Input should be a valid list"
		}
	}
	if key == "kv_transfer_params" {
		kind, msg = "dict_type", "Input should be a valid dictionary"
	}
	return invalidBody("body."+key,
		"1 validation error:\n  {'type': '%s', 'loc': 'body.%s', 'msg': '%s', 'input': '%s'}", kind, key, msg,
		clip([]byte(inputText(v))))
}

func (p *params) headers(k *call) {
	if k.head.requestID != "" && p.at != atResponses {
		p.requestID = k.head.requestID
	}
	if k.head.session != "" && p.session == "" {
		p.session = k.head.session
	}
	if n, err := strconv.Atoi(k.head.priority); err == nil {
		p.priority = n
	}
}

// field consumes the value of one key of the body.
func (p *params) field(s *scanner, voc *vocabulary, key []byte) {
	switch string(key) {
	case "model":
		if !s.null() {
			p.model = string(s.str())
		}
	case "prompt":
		p.prompt(s, voc)
	case "token_ids":
		p.idList(s)
	case "messages":
		if p.messages(s); len(p.turns) == 0 {
			p.more().noTurns = true
		}
	case "system":
		p.system(s)
	case "input":
		p.input(s)
	case "instructions":
		if !s.null() {
			p.turns = slices.Insert(p.turns, 0, chatMessage{"system", string(s.str())})
		}
	case "sampling_params":
		if !s.null() {
			s.object(func(key []byte) { p.sampling(s, key) })
		}
	case "stream_options":
		p.streamOptions(s)
	case "kv_transfer_params":
		p.transferParams(s)
	case "output_mode":
		p.textMode = !s.null() && string(s.str()) == "text"
	case "stream":
		p.stream = s.boolean()
	case "echo":
		p.echo = s.boolean()
	case "return_token_ids":
		p.returnIDs = s.boolean()
	case "cache_salt":
		there := s.Peek() == '"'
		if p.salt = p.optional(s); there && p.salt == "" {
			p.more().emptySalt = true
		}
	case "session_id":
		p.session = p.optional(s)
	case "request_id":
		p.requestID = p.optional(s)
	case "priority":
		p.priority = s.integer(0)
	default:
		p.sampling(s, key)
	}
}

func (p *params) optional(s *scanner) string {
	if s.null() {
		return ""
	}
	return string(s.str())
}

// sampling consumes one sampling parameter: at the top level of the OpenAI bodies, in an object of its own on
// generate.
func (p *params) sampling(s *scanner, key []byte) {
	switch string(key) {
	case "max_tokens":
		if n := s.integer(noNumber); p.maxTokens < 0 || p.at != atChat {
			p.limit(n)
		}
	case "max_completion_tokens":
		if n := s.integer(noNumber); n != noNumber {
			p.limit(n)
		}
	case "max_output_tokens":
		p.limit(s.integer(noNumber))
	case "min_tokens":
		p.minTokens = s.integer(0)
	case "n":
		p.n = s.integer(1)
	case "temperature":
		p.temperature = s.number()
	case "ignore_eos":
		p.ignoreEOS = s.boolean()
	case "include_stop_str_in_output":
		p.includeStop = s.boolean()
	case "seed":
		p.seed = uint64(s.integer(0))
	case "stop", "stop_sequences":
		p.stops(s)
	case "stop_token_ids":
		if !s.null() {
			p.stopIDs = s.ids(nil)
		}
	case "logprobs":
		p.wantLogprobs(s)
	case "top_logprobs":
		n := s.integer(noNumber)
		if n != noNumber && p.at == atResponses {
			p.more().logprobs = n
		}
		if n != noNumber && p.at == atChat {
			p.more().topLogprobs = n
			p.logprobs = max(p.logprobs, n)
		}
	case "prompt_logprobs":
		if n := s.integer(noNumber); n != noNumber {
			p.more().promptLogprobs = n
			p.promptLog = n >= 0
		}
	case "vllm_xargs", "extra_args":
		p.extraArgs(s)
	default:
		p.uncommon(s, key)
	}
}

// limit takes max_tokens; noNumber is none.
func (p *params) limit(n int) {
	p.maxTokens, p.asked = max(n, -1), n
	p.tooFew = n < 1 && n != noNumber
}

// extraArgs reads what vLLM copies into SamplingParams.extra_args: kv_transfer_params live there, so this is
// a second way in for them.
func (p *params) extraArgs(s *scanner) {
	if s.null() {
		return
	}
	s.object(func(key []byte) {
		switch string(key) {
		case "kv_transfer_params":
			p.transferParams(s)
		case "session_id":
			p.session = p.optional(s)
		default:
			s.Skip()
		}
	})
}

// wantLogprobs reads a number on completions and a flag on chat.
func (p *params) wantLogprobs(s *scanner) {
	if c := s.Peek(); c == 't' || c == 'f' {
		if s.boolean() {
			p.logprobs = max(p.logprobs, 0)
			p.more().logprobsFlag = true
		}
		return
	}
	if n := s.integer(noNumber); n != noNumber {
		p.more().logprobs = n
		p.logprobs = max(n, -1)
	}
}

func (p *params) stops(s *scanner) {
	switch s.Peek() {
	case 'n':
		s.null()
	case '[':
		s.array(func() { p.stop = append(p.stop, string(s.str())) })
		if n := len(p.stop); n > maxStops && p.strict == nil {
			p.strict = tooManyStops(n)
		}
	default:
		p.stop = append(p.stop, string(s.str()))
	}
}

func (p *params) streamOptions(s *scanner) {
	if s.null() {
		return
	}
	s.object(func(key []byte) {
		p.options = true
		switch string(key) {
		case "include_usage":
			p.usage = s.boolean()
		case "continuous_usage_stats":
			p.continuous = s.boolean()
		default:
			s.Skip()
		}
	})
}

// prompt reads text, ids, a list of texts or a list of id lists.
func (p *params) prompt(s *scanner, voc *vocabulary) {
	switch s.Peek() {
	case 'n':
		s.null()
	case '"':
		p.text(s, voc)
	case '[':
		p.promptList(s, voc)
	default:
		s.Fail(badType)
	}
}

func (p *params) text(s *scanner, voc *vocabulary) {
	p.raw = textPrompt
	p.add(voc.tokenize(p.ids, string(s.str())))
}

func (p *params) idList(s *scanner) {
	p.raw = idPrompt
	p.add(s.ids(p.ids))
}

// add takes ids, grown, and makes the new tail a prompt. Earlier prompts keep their backing array when it was
// left behind.
func (p *params) add(ids []uint32) {
	p.prompts = append(p.prompts, ids[len(p.ids):len(ids):len(ids)])
	p.ids = ids
}

func (p *params) promptList(s *scanner, voc *vocabulary) {
	first := s.Scanner
	first.Pos++
	switch first.Peek() {
	case '"':
		s.array(func() { p.text(s, voc) })
	case '[':
		s.array(func() { p.idList(s) })
	case ']':
		s.Value()
		p.more().noPrompts = true
	default:
		p.idList(s)
	}
}

// messages reads turns whose content is text or a list of parts.
func (p *params) messages(s *scanner) {
	s.array(func() {
		var t chatMessage
		s.object(func(key []byte) {
			switch string(key) {
			case "role":
				t.role = string(s.str())
			case "content":
				t.content = p.content(s)
			default:
				s.Skip()
			}
		})
		if p.at == atChat && t.role == "" && p.strict == nil {
			p.strict = invalidBody("body.messages",
				"1 validation error:\n  {'type': 'missing', 'loc': 'body.messages.%d.role', 'msg': 'Field required', "+
					"'input': '<dict>'}", len(p.turns))
		}
		p.turns = append(p.turns, t)
	})
}

// content reads a string, a list of text parts, or null.
func (p *params) content(s *scanner) string {
	switch s.Peek() {
	case '"':
		return string(s.str())
	case '[':
		var all []string
		s.array(func() { all = append(all, p.part(s)) })
		return strings.Join(all, "\n")
	}
	s.Skip()
	return ""
}

func (p *params) part(s *scanner) string {
	if s.Peek() == '"' {
		return string(s.str())
	}
	text := ""
	s.object(func(key []byte) {
		if string(key) == "text" && s.Peek() == '"' {
			text = string(s.str())
			return
		}
		switch string(key) {
		case "image_url", "input_audio", "video_url":
			p.more().media = true
		case "type":
			p.partType(s.Value())
			return
		}
		s.Skip()
	})
	return text
}

// partType refuses parts of chat content that no vLLM knows (chat_utils.py, MM_PARSER_MAP).
func (p *params) partType(value []byte) {
	switch strings.Trim(string(value), `"`) {
	case "image":
		if p.at == atMessages {
			p.more().media = true
			return
		}
	case "text", "refusal", "input_text", "output_text", "thinking", "image_url", "image_pil", "image_embeds",
		"input_image", "audio_url", "input_audio", "audio_embeds", "video_url":
		return
	}
	if p.at == atChat && p.strict == nil {
		p.strict = badRequest("", "1 validation error for ValidatorIterator\n0.type\n  Unknown part type: %s",
			clip(value))
	}
}

// system reads Anthropic's system prompt, which goes before the turns.
func (p *params) system(s *scanner) {
	if text := p.content(s); text != "" {
		p.turns = slices.Insert(p.turns, 0, chatMessage{"system", text})
	}
}

// input reads the prompt of /v1/responses.
func (p *params) input(s *scanner) {
	if s.Peek() == '[' {
		if p.messages(s); len(p.turns) == 0 {
			p.more().noTurns = true
		}
		return
	}
	p.turns = append(p.turns, chatMessage{"user", string(s.str())})
}
