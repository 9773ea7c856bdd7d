package enginesim

// sampling consumes one sampling parameter. OpenAI bodies have them at the top level, generate in an object.
//
// Long: one case per key.
func (p *params) sampling(s *scanner, key []byte) {
	switch string(key) {
	case "max_tokens":
		if n := s.integer(noNumber); p.maxTokens < 0 || p.at != atChat {
			p.limit("max_tokens", n)
		}
	case "max_completion_tokens":
		if n := s.integer(noNumber); n != noNumber {
			p.limit("max_completion_tokens", n)
		}
	case "max_output_tokens":
		p.limit("max_output_tokens", s.integer(noNumber))
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

// limit sets the maximum number of tokens from a field. noNumber: none.
func (p *params) limit(field string, n int) {
	p.limitField = field
	p.maxTokens, p.asked = max(n, -1), n
	p.tooFew = n < 1 && n != noNumber
}

// extraArgs reads what vLLM copies into SamplingParams.extra_args. kv_transfer_params are kept there, so
// clients can also send them here.
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
			p.strict = tooManyStops()
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

// maxStops is VLLM_MAX_STOP_STRINGS.
const maxStops = 4

// tooManyStops refuses a list of stop strings twice: it is not text, and it is too long.
func tooManyStops() *problem { return invalidBody("body.stop", "body.stop") }
