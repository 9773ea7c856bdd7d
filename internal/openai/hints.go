package openai

import "github.com/tandem-router/tandem/internal/rawjson"

// Hints are the hints in a body at its answer's length, besides its limit. No hint makes the router refuse a
// request. The hints go to the engine unchanged, and the engine ignores unknown ones (vLLM's OpenAIBaseModel
// allows all fields).
type Hints struct {
	// Tokens that the client expects of an answer, 0 where it does not say: nvext.agent_hints.osl, as in
	// Dynamo.
	Output     int
	Structured bool // the answer has to keep to a form: response_format, structured_outputs, guided_…
	Stops      bool // words of the client's end it: stop, stop_sequences
}

// hint takes note of a member that is one.
func (p *parser) hint(name, value []byte) {
	h := &p.req.Hints
	switch string(name) {
	case "nvext":
		h.Output = 0
		inObject(value, "agent_hints", func(hints []byte) {
			h.Output = 0
			inObject(hints, "osl", func(osl []byte) { h.Output = length(osl) })
		})
	case "stop", "stop_sequences":
		h.Stops = !isEmpty(value)
	case "response_format":
		h.Structured = hasForm(value)
	case "text": // of responses
		inObject(value, "format", func(format []byte) { h.Structured = hasForm(format) })
	case "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar":
		h.Structured = h.Structured || !isEmpty(value)
	}
}

// hasForm reports whether a response_format asks for more than text.
func hasForm(format []byte) (form bool) {
	inObject(format, "type", func(kind []byte) { form = !rawjson.Equal(kind, "text") })
	return form
}

// length reads a length that a client expects; 0 where it is none.
func length(value []byte) int {
	n, ok := whole(value)
	if !ok || n < 0 || n > maxHint {
		return 0
	}
	return n
}

// maxHint is more than any answer has.
const maxHint = 1 << 20

// inObject calls with for each member called name, if value is an object.
func inObject(value []byte, name string, with func(value []byte)) {
	if value[0] != '{' {
		return
	}
	s := rawjson.Scanner{Data: value}
	for key := range s.Members() {
		if v := s.Value(); v != nil && rawjson.Equal(key, name) {
			with(v)
		}
	}
}
