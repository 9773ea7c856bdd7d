package enginesim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// What pydantic refuses in a body of /v1/messages, /v1/messages/count_tokens, /v1/responses and a few other
// paths (anthropic/protocol.py, openai/responses/protocol.py of vLLM 0.32.0). Types of all branches are not
// imitated. A refusal names the same places as vLLM, and nothing more.

// tree is a parsed body, with the places that are wrong.
type tree struct {
	body  map[string]any
	wrong []string // places, in the order of the fields
}

// newTree parses body. It returns nil if body is not a JSON object; other code refuses such a body.
func newTree(body []byte) *tree {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	t := new(tree)
	if d.Decode(&t.body) != nil {
		return nil
	}
	return t
}

// problem returns the refusal, nil if nothing is wrong.
func (t *tree) problem() *problem {
	if len(t.wrong) == 0 {
		return nil
	}
	return invalidBody(t.wrong...)
}

// invalidBody refuses the values at places, at least one, of a body.
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

// refuse records that the value at loc is wrong.
func (t *tree) refuse(loc string) { t.wrong = append(t.wrong, "body"+loc) }

// need returns a required field.
func (t *tree) need(in map[string]any, at, key string) (any, bool) {
	v, ok := in[key]
	if !ok {
		t.refuse(at + "." + key)
	}
	return v, ok
}

// is reports whether v, the value at loc, is of the type, and refuses v if not.
func (t *tree) is(kind, loc string, v any) bool {
	ok := isA(kind, v)
	if !ok {
		t.refuse(loc)
	}
	return ok
}

// isA reports whether v is of the type. As in pydantic, numbers may be text.
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

// optional checks a field that may be missing or null.
func (t *tree) optional(kind, key string) (any, bool) {
	v := t.body[key]
	if v == nil {
		return nil, false
	}
	return v, t.is(kind, "."+key, v)
}

// literal refuses v unless v is one of the words.
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

// textOrList refuses v unless v is text or a list. It returns the list.
func (t *tree) textOrList(loc string, v any) []any {
	switch v := v.(type) {
	case string:
		return nil
	case []any:
		return v
	}
	t.wrong = append(t.wrong, "body"+loc, "body"+loc) // one error per type, as in pydantic
	return nil
}

func less(n json.Number, limit int) bool {
	v, err := n.Float64()
	return err == nil && v < float64(limit)
}
