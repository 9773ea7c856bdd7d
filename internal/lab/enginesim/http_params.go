package enginesim

import (
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// endpoint is the API of a request.
type endpoint uint8

const (
	atCompletions endpoint = iota
	atChat
	atGenerate
	atResponses
	atMessages
)

// params holds the parameters of a generating request of any API. Fields that the simulator does not use are
// accepted and skipped.
//
// Long: one field per parameter of vLLM.
type params struct {
	at          endpoint
	model       string
	prompts     [][]uint32
	ids         []uint32 // backs prompts
	turns       []chatMessage
	maxTokens   int    // -1: none
	limitField  string // the field that set maxTokens; "": none
	minTokens   int
	n           int
	temperature float64 // NaN: unset
	stop        []string
	stopIDs     []uint32
	ignoreEOS   bool
	includeStop bool // include_stop_str_in_output
	stream      bool
	usage       bool // stream_options.include_usage
	continuous  bool // stream_options.continuous_usage_stats
	echo        bool
	logprobs    int // -1: none
	promptLog   bool
	returnIDs   bool
	tokensAsIDs bool // return_tokens_as_token_ids
	textMode    bool // generate: output_mode "text"
	salt        string
	session     string
	requestID   string
	priority    int
	seed        uint64
	transfer    *core.Transfer
	reuseRaw    []byte     // kv_transfer_params.prompt_token_ids
	raw         promptKind // kind of the prompt
	strict      *problem   // the first field of a wrong type
	options     bool       // stream_options has members
	tooFew      bool       // the request's max_tokens is below 1
	asked       int
	rare        *rare    // nil without rare fields
	counts      bool     // the path is /v1/messages/count_tokens
	later       *problem // refusal by the handler, after the model check
}

// promptKind is the kind of the prompt field.
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

// release returns p to the pool. The engine must not use its prompts any more.
func (p *params) release() {
	if cap(p.ids) > 1<<20 {
		return
	}
	clear(p.turns)
	paramsPool.Put(p)
}

// parse reads the body. voc tokenizes text prompts.
func (p *params) parse(voc *vocabulary, k *call) *problem {
	s := scan(k.body)
	if s.Peek() != '{' {
		s.Fail(badType)
		return badBody()
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
	if s.end() != nil {
		if p.strict != nil {
			return p.strict
		}
		return badBody()
	}
	p.headers(k)
	if p.strict != nil {
		return p.strict
	}
	return p.validate()
}

// invalid validates the bodies of APIs that are validated as a whole.
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

// wrongType returns the refusal of a JSON value at start that has the wrong type. It returns nil if the value
// is not JSON.
func (p *params) wrongType(body []byte, key string, start int) *problem {
	s := scan(body)
	s.Pos = start
	if s.Value(); s.Err() != nil {
		return nil
	}
	return invalidBody("body." + key)
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
//
// Long: one case per key.
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
	case "return_tokens_as_token_ids":
		p.tokensAsIDs = s.boolean()
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
