package canary

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Answer is the answer to one body. Err is set if there was no answer.
type Answer struct {
	Status int
	Body   []byte
	Err    error
}

// Counters are the counters of the decode engine that a transfer changes. NaN is unknown.
type Counters struct {
	ExternalHits    float64 // tokens, vllm:external_prefix_cache_hits_total
	FailedTransfers float64 // vllm:nixl_num_failed_transfers_total
	Bytes           float64 // transferred bytes of KV, vllm:nixl_bytes_transferred_sum
}

// Unknown returns counters that could not be read.
func Unknown() Counters { return Counters{math.NaN(), math.NaN(), math.NaN()} }

// since returns by how much the counters have grown. Other requests may have caused a part.
func (c Counters) since(before Counters) Counters {
	return Counters{
		c.ExternalHits - before.ExternalHits, c.FailedTransfers - before.FailedTransfers, c.Bytes - before.Bytes,
	}
}

// Kind is the result of a question.
type Kind uint8

// These are the kinds. Only Moved says that the pair works.
const (
	Failed  Kind = iota // an engine gave no valid answer: the pair cannot hand over now
	Wrong               // the answer differs from the decode engine's own: the blocks were wrong
	Nothing             // the answer is right, but the decode engine has computed the prompt itself
	Unclear             // the answer is right, but it is unknown whether anything was transferred
	Moved               // the answer is right, and Tokens of the prompt were transferred
)

func (k Kind) String() string {
	return [...]string{"failed", "wrong text", "moved nothing", "unclear", "moved"}[min(k, Moved)]
}

// Verdict is the judgement of one question.
type Verdict struct {
	Kind   Kind
	Tokens int    // transferred tokens; -1: unknown
	Prompt int    // tokens of the prompt
	Leg    string // the answer that Failed: prefill, decode or own
	Why    string // the sign for the verdict, without a full stop
}

func (v Verdict) String() string {
	switch v.Kind {
	case Moved, Nothing:
		return fmt.Sprintf("%s: %d of %d tokens came by transfer", v.Kind, max(v.Tokens, 0), v.Prompt)
	default:
		return v.Kind.String() + ": " + v.Why
	}
}

// Judge compares the three answers. likely sends [Question.Likely], and is called only if two answers differ.
// before and after are the decode engine's counters from before the decode leg and from after its answer.
// They are used only if the answer does not report cached tokens.
func (q *Question) Judge(prefill, decode, own Answer, likely func() Answer, before, after Counters) Verdict {
	v := Verdict{Tokens: -1, Prompt: len(q.IDs)}
	if why := q.prefilled(prefill); why != "" {
		return v.failed("prefill", why)
	}
	split, why := q.read(decode)
	if why != "" {
		if grown := after.since(before); grown.FailedTransfers > 0 {
			why += fmt.Sprintf("; it counts %.0f failed transfers meanwhile", grown.FailedTransfers)
		}
		return v.failed("decode", why)
	}
	alone, why := q.read(own)
	if why != "" {
		return v.failed("own", why)
	}
	if !split.is(alone) {
		if why := q.doubts(split, likely()); why != "" {
			v.Kind = Wrong
			v.Why = fmt.Sprintf("%q, where the decode engine says %q itself; %s", split.text, alone.text, why)
			return v
		}
	}
	return v.moved(split.cached, after.since(before))
}

// JudgePrefill returns a Failed verdict if it makes no sense to continue.
func (q *Question) JudgePrefill(prefill Answer) Verdict {
	v := Verdict{Kind: Unclear, Tokens: -1, Prompt: len(q.IDs)}
	if why := q.prefilled(prefill); why != "" {
		return v.failed("prefill", why)
	}
	return v
}

func (v Verdict) failed(leg, why string) Verdict {
	v.Kind = Failed
	v.Leg = leg
	v.Why = why
	return v
}

// moved finds from the answer, or else from the counters, how many tokens were transferred. A counter without
// a change is certain. A counter with a change may have counted other requests.
func (v Verdict) moved(cached int, grown Counters) Verdict {
	switch {
	case cached > 0:
		v.Kind, v.Tokens = Moved, cached
	case cached == 0:
		v.Kind = Nothing
		v.Tokens = 0
		v.Why = "the decode engine found nothing of the prompt, there or by transfer"
		if grown.FailedTransfers > 0 {
			v.Why += fmt.Sprintf(", and counts %.0f failed transfers meanwhile", grown.FailedTransfers)
		}
	case grown.FailedTransfers > 0:
		v.Kind, v.Tokens = Nothing, 0
		v.Why = fmt.Sprintf("the decode engine counts %.0f failed transfers meanwhile", grown.FailedTransfers)
	case grown.ExternalHits == 0:
		v.Kind = Nothing
		v.Tokens = 0
		v.Why = "the decode engine's external_prefix_cache_hits have not grown"
	default:
		v.Kind, v.Why = Unclear, "the answer has no prompt_tokens_details.cached_tokens"
	}
	return v
}

// prefilled says why a prefill answer is not valid; "" if it is.
func (q *Question) prefilled(a Answer) string {
	if _, why := q.read(a); why != "" {
		return why
	}
	if !q.NoParams && Params(a.Body) == nil {
		return "the answer has no kv_transfer_params: the engine has no connector, or has thrown the blocks away"
	}
	return ""
}

// said is the content of a good answer.
type said struct {
	text   string
	ids    []uint32 // nil: the engine does not say
	tokens []string
	likely []map[string]float64 // by position: likely alternatives, as log-probabilities
	cached int                  // -1: the engine does not say
}

// completion has the parts of a body that are read.
type completion struct {
	Choices []struct {
		Text     string
		IDs      []uint32 `json:"token_ids"`
		Logprobs *struct {
			Tokens []string
			Top    []map[string]float64 `json:"top_logprobs"`
		}
	}
	Usage struct {
		Prompt  int `json:"prompt_tokens"`
		Details *struct {
			Cached *int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

// read parses an answer, and says why it is not valid.
func (q *Question) read(a Answer) (said, string) {
	switch {
	case a.Err != nil:
		return said{}, a.Err.Error()
	case a.Status != 200:
		text := strings.TrimSpace(string(a.Body[:min(len(a.Body), 300)]))
		return said{}, fmt.Sprintf("answered %d: %s", a.Status, text)
	}
	var body completion
	switch err := json.Unmarshal(a.Body, &body); {
	case err != nil:
		return said{}, fmt.Sprintf("the answer cannot be read: %v", err)
	case len(body.Choices) != 1:
		return said{}, fmt.Sprintf("the answer has %d choices", len(body.Choices))
	case body.Usage.Prompt != len(q.IDs):
		return said{}, fmt.Sprintf("%d token ids were sent and %d were counted", len(q.IDs), body.Usage.Prompt)
	}
	s := said{text: body.Choices[0].Text, ids: body.Choices[0].IDs, cached: -1}
	if l := body.Choices[0].Logprobs; l != nil && len(l.Top) == len(l.Tokens) {
		s.tokens, s.likely = l.Tokens, l.Top
	}
	if d := body.Usage.Details; d != nil && d.Cached != nil {
		s.cached = *d.Cached
	}
	return s, ""
}

// nearTie is by how much a token may be less likely than the engine's own choice and still differ only by
// rounding: two correct engines may add numbers in different orders.
const nearTie = 0.5

// is reports whether two answers are the same.
func (s *said) is(other said) bool {
	if s.ids == nil || other.ids == nil {
		return s.text == other.text
	}
	return slices.Equal(s.ids, other.ids)
}

// doubts says why the decode engine itself cannot have given s; "" if it can: both tokens at the first
// difference are about equally likely. a is the answer to [Question.Likely].
func (q *Question) doubts(s said, a Answer) string {
	alone, why := q.read(a)
	switch {
	case why != "":
		return "what else is likely it does not say: " + why
	case s.ids == nil || alone.tokens == nil:
		return "what else is likely is not known"
	}
	for i := range min(len(s.ids), len(alone.tokens)) {
		here, there := fmt.Sprintf("token_id:%d", s.ids[i]), alone.tokens[i]
		if here == there {
			continue
		}
		if likely, known := alone.likely[i][here]; known && alone.likely[i][there]-likely <= nearTie {
			return "" // the rest may differ although both are right
		}
		return fmt.Sprintf("token %d is %s and not %s", i+1, here, there)
	}
	if len(s.ids) != len(alone.tokens) {
		return fmt.Sprintf("%d tokens and not %d", len(s.ids), len(alone.tokens))
	}
	return ""
}
