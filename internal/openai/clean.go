package openai

import (
	"bytes"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// cleaner walks JSON and notes which byte ranges must go so that no member is named like transfer params. A
// transfer param from a client can end an engine's process or read another prompt's blocks. So cleaner
// removes such members at every depth: vLLM merges vllm_xargs into the same map. The exception is a client's
// own data (opaque), which no engine takes for parameters. kv_hints of a client may push the blocks of other
// clients out of a cache. So kv_hints go too, unless the client may send hints. The priority goes from the
// requests of a client that may not set one: an engine that schedules by priority heeds it.
type cleaner struct {
	scan  rawjson.Scanner
	lim   Limits
	depth int    // of the object that is walked; that of a request is 1
	cuts  []span // ascending, disjoint
	reading
}

// forbidden reports whether raw names a member that must go, however the name is escaped.
func (c *cleaner) forbidden(raw []byte) bool {
	return rawjson.Equal(raw, "kv_transfer_params") || rawjson.Equal(raw, "ec_transfer_params") ||
		!c.lim.KVHints && rawjson.Equal(raw, "kv_hints") ||
		c.lim.NoPriority && c.depth == 1 && rawjson.Equal(raw, "priority")
}

// opaque reports whether the member of a request holds a client's own data, such as a JSON schema, in which
// any name may occur.
func opaque(name []byte) bool {
	switch string(name) {
	case "messages", "input", "prompt", "documents",
		"tools", "functions", "response_format", "structured_outputs", "guided_json", "chat_template_kwargs":
		return true
	}
	return false
}

// value walks one value. root says that the value is a request, or an array of requests. The opaque members
// of a request are left alone.
func (c *cleaner) value(root bool) {
	switch c.scan.Peek() {
	case '{':
		c.object(func(key []byte) {
			if root && opaque(rawjson.Name(key)) {
				c.scan.Skip()
			} else {
				c.value(false)
			}
		})
	case '[':
		for range c.scan.Elements() {
			c.value(root)
		}
	default:
		c.scan.Skip()
	}
}

// object walks an object and gives each member that may stay to member, which consumes its value.
//
// A member goes together with the comma before it, or, when nothing that stays is before it, with all up to
// the next name.
func (c *cleaner) object(member func(key []byte)) {
	c.depth++
	defer func() { c.depth-- }()
	s := &c.scan
	kept, prev := false, 0     // whether a member stayed, and where the last one ended
	leading := span{start: -1} // members that go and have none before them that stays
	for key := range s.Members() {
		at := s.KeyAt(key)
		if leading.start >= 0 {
			c.cuts = append(c.cuts, span{leading.start, at})
			leading.start = -1
		}
		if !c.forbidden(key) {
			member(key)
			kept, prev = true, s.Pos
			continue
		}
		if s.Skip(); kept {
			c.cuts = append(c.cuts, span{prev, s.Pos})
			prev = s.Pos
		} else {
			leading = span{at, s.Pos}
		}
	}
	if leading.start >= 0 {
		c.cuts = append(c.cuts, leading)
	}
}

// cut returns a copy of the text without the cuts.
func (c *cleaner) cut() []byte {
	var out bytes.Buffer
	out.Grow(len(c.scan.Data))
	pos := 0
	for _, gap := range c.cuts {
		out.Write(c.scan.Data[pos:gap.start])
		pos = gap.end
	}
	out.Write(c.scan.Data[pos:])
	return out.Bytes()
}
