package enginesim

// constraint is a constraint on the text: structured_outputs, or the equivalent response_format.
type constraint struct {
	there    bool
	kinds    int      // number of given kinds: json, regex, choice, grammar, json_object, structural_tag
	choices  []string // of choice
	choice   bool
	object   bool   // any JSON object
	unknown  string // unknown type of response_format
	noSchema bool   // json_schema without a schema
}

func (c *constraint) read(s *scanner) {
	*c = constraint{there: true}
	s.object(func(key []byte) {
		name := string(key)
		if s.null() {
			return
		}
		switch name {
		case "choice":
			c.kinds++
			c.choice = true
			s.array(func() { c.choices = append(c.choices, string(s.str())) })
			return
		case "json", "json_object":
			c.kinds++
			c.object = true
		case "regex", "grammar", "structural_tag":
			c.kinds++
		}
		s.Skip()
	})
}

func (c *constraint) readFormat(s *scanner) {
	kind, schema := "", false
	s.object(func(key []byte) {
		switch string(key) {
		case "type":
			kind = string(s.str())
			return
		case "json_schema":
			schema = s.Peek() != 'n'
		}
		s.Skip()
	})
	switch kind {
	case "text", "structural_tag":
	case "json_object":
		c.object = true
	case "json_schema":
		c.object, c.noSchema = schema, !schema
	default:
		c.unknown = kind
	}
}

// constrained refuses empty constraints (sampling_params.py, StructuredOutputsParams; v1/structured_output).
func (p *params) constrained() *problem {
	if p.rare == nil || !p.rare.structured.there {
		return nil
	}
	switch c := &p.rare.structured; {
	case c.kinds == 0:
		return badRequest("", "You must use one kind of structured outputs constraint but none are specified: "+
			"{'json': None, 'regex': None, "+
			"'choice': None, 'grammar': None, 'json_object': None, 'disable_any_whitespace': False, "+
			"'disable_additional_properties': False, "+
			"'whitespace_pattern': None, 'structural_tag': None, '_backend': None, '_backend_was_auto': False}")
	case c.choice && len(c.choices) == 0:
		return badRequest("", "Choice '[]' cannot be an empty list")
	}
	return nil
}

// jsonObjects are the answers to requests for JSON. Schemas are ignored.
var jsonObjects = []string{`{}`, `{"answer": true}`, `{"answer": "no"}`, `{"blocks": 3, "tokens": [1, 2]}`}

// scripts returns the allowed answers as token ids, each with an end. nil: no constraint.
func (p *params) scripts(voc *vocabulary) [][]uint32 {
	x := p.rare
	if x == nil {
		return nil
	}
	texts := x.structured.choices
	if texts == nil && (x.structured.object || x.format.object) {
		texts = jsonObjects
	}
	var all [][]uint32
	for _, text := range texts {
		all = append(all, append(voc.tokenize(nil, text), tokEOS))
	}
	return all
}
