package enginesim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// What pydantic refuses in a body of /v1/messages, /v1/messages/count_tokens, /v1/responses and a few others
// (anthropic/protocol.py, openai/responses/protocol.py of vLLM 0.32.0). It is known only as far as the types
// of every branch are not needed. A refusal names the places as vLLM does, and says no more about them.

// tree is a body taken apart, and where it is wrong.
type tree struct {
	body  map[string]any
	wrong []string // places, in the order of the fields
}

// newTree takes body apart; nil when it is no JSON object, of which others tell.
func newTree(body []byte) *tree {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	t := new(tree)
	if d.Decode(&t.body) != nil {
		return nil
	}
	return t
}

// problem is what is wrong, nil for nothing.
func (t *tree) problem() *problem {
	if len(t.wrong) == 0 {
		return nil
	}
	return invalidBody(t.wrong...)
}

// invalidBody is a refusal of the values at places of a body, at least one.
func invalidBody(places ...string) *problem {
	text := fmt.Sprintf("%d validation errors:", len(places))
	if len(places) == 1 {
		text = "1 validation error:"
	}
	for _, place := range places {
		text += "\n  {'loc': '" + place + "'}"
	}
	return &problem{status: 400, kind: "Bad Request", param: places[0], message: text}
}

// refuse notes that the value at loc is wrong.
func (t *tree) refuse(loc string) { t.wrong = append(t.wrong, "body"+loc) }

// need is a field that has to be there.
func (t *tree) need(in map[string]any, at, key string) (any, bool) {
	v, ok := in[key]
	if !ok {
		t.refuse(at + "." + key)
	}
	return v, ok
}

// is refuses v, the value at loc, if it is not of the type; it says whether it is.
func (t *tree) is(kind, loc string, v any) bool {
	ok := isA(kind, v)
	if !ok {
		t.refuse(loc)
	}
	return ok
}

// isA reports whether v is of the type. Numbers may be text, as pydantic takes them.
func isA(kind string, v any) bool {
	var ok bool
	switch kind {
	case "string":
		_, ok = v.(string)
	case "list":
		_, ok = v.([]any)
	case "dict":
		_, ok = v.(map[string]any)
	case "int":
		_, err := strconv.Atoi(fmt.Sprint(v))
		ok = err == nil
	case "float":
		_, err := strconv.ParseFloat(fmt.Sprint(v), 64)
		ok = err == nil
	case "bool":
		ok = slices.Contains([]string{"true", "false", "1", "0", "yes", "no", "on", "off", "t", "f", "y", "n"},
			strings.ToLower(fmt.Sprint(v)))
	}
	return ok
}

// optional looks at a field that may be missing or null.
func (t *tree) optional(kind, key string) (any, bool) {
	v := t.body[key]
	if v == nil {
		return nil, false
	}
	return v, t.is(kind, "."+key, v)
}

// literal wants v to be one of the words.
func (t *tree) literal(loc string, v any, words ...string) bool {
	text, ok := v.(string)
	if ok = ok && slices.Contains(words, text); !ok {
		t.refuse(loc)
	}
	return ok
}

func (t *tree) optionalLiteral(in map[string]any, at, key string, words ...string) {
	if v := in[key]; v != nil {
		t.literal(at+"."+key, v, words...)
	}
}

// textOrList is what a prompt may be. It returns the list.
func (t *tree) textOrList(loc string, v any) []any {
	switch v := v.(type) {
	case string:
		return nil
	case []any:
		return v
	}
	t.wrong = append(t.wrong, "body"+loc, "body"+loc) // neither the one nor the other
	return nil
}

func less(n json.Number, limit int) bool {
	v, err := n.Float64()
	return err == nil && v < float64(limit)
}
