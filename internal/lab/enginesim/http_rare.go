package enginesim

import (
	"fmt"
	"math"
	"strconv"
)

// vLLM 0.32.0's refusals, in its order and with its texts. testdata/refusals-vllm-0.32.0.jsonl has a real
// server's answers.
//
// 	validate   the body alone (protocol.py): 400 before the handler, so transfer params are not cleaned up
// 	prepare    checks before tokens are counted: tools, templates, media, suffix
// 	verifyArgs SamplingParams._verify_args: 400, also for a stream
// 	engine     SamplingParams.verify: a stream has begun, and the error is its first event

// rare holds rarely used fields. A request without such fields has no rare.
//
// Long: one field per parameter of vLLM.
type rare struct {
	topP, topK, minP, presence, frequency, repetition float64 // NaN: unset
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
	choice                                            []byte // tool_choice as received; nil: none
	bias                                              map[uint32]float64
	badBias                                           []string // keys that are not numbers
	allowed                                           []uint32
	hasAllowed                                        bool
	structured, format                                constraint
}

// noNumber is an integer field that is missing.
const noNumber = math.MinInt

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

// uncommon consumes one rarely used field. Unknown fields are skipped.
//
// Long: one case per key.
func (p *params) uncommon(s *scanner, key []byte) {
	if s.Peek() == 'n' {
		s.Skip() // null counts as missing
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

// toolName reads a tool or a tool_choice. It returns the function's name, and whether there is a function.
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

// withoutFunction returns pydantic's refusal of tool i of a chat, if the tool has no function.
func withoutFunction(i int) *problem { return invalidBody(fmt.Sprint("body.tools.", i, ".function")) }
