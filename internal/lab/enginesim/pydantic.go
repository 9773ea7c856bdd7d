package enginesim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// What pydantic refuses in a body of /v1/messages, /v1/messages/count_tokens, /v1/responses and a few others,
// as far as it can be told without the types of every branch (anthropic/protocol.py,
// openai/responses/protocol.py of vLLM 0.32.0).

// tree is a body taken apart, and what is wrong with it.
type tree struct {
	body  map[string]any
	wrong []string // what pydantic says of each field, in the order of the fields
	first string   // place of the first
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
	plural := ""
	if len(t.wrong) > 1 {
		plural = "s"
	}
	return invalidBody(t.first, "%d validation error%s:\n  %s",
		len(t.wrong), plural, strings.Join(t.wrong, "\n  "))
}

// note adds a mistake at loc; ctx is pydantic's context as it prints it, "" for none.
func (t *tree) note(kind, loc, msg string, input any, ctx string) {
	loc = "body" + loc
	if t.first == "" {
		t.first = loc
	}
	if ctx != "" {
		ctx = ", 'ctx': {" + ctx + "}"
	}
	t.wrong = append(t.wrong, fmt.Sprintf("{'type': '%s', 'loc': '%s', 'msg': %s, 'input': %s%s}",
		kind, loc, python(msg), python(inputText(input)), ctx))
}

// python writes text as Python's repr does.
func python(text string) string {
	if strings.Contains(text, "'") && !strings.Contains(text, `"`) {
		return `"` + text + `"`
	}
	return "'" + strings.ReplaceAll(text, "'", `\'`) + "'"
}

// inputText is how vLLM shows a value that was refused.
func inputText(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case map[string]any:
		return fmt.Sprintf("<dict of %d items>", len(v))
	case []any:
		return fmt.Sprintf("<list of %d items>", len(v))
	case bool:
		if v {
			return "True"
		}
		return "False"
	}
	return fmt.Sprint(v)
}

// need is a field that has to be there.
func (t *tree) need(in map[string]any, at, key string) (any, bool) {
	v, ok := in[key]
	if !ok {
		t.note("missing", at+"."+key, "Field required", in, "")
	}
	return v, ok
}

// is notes that v, the value at loc, is not of the type; it says whether it is. Numbers may be text, as
// pydantic takes them.
func (t *tree) is(kind, loc string, v any) bool {
	_, text := v.(string)
	switch kind {
	case "string":
		if !text {
			t.note("string_type", loc, "Input should be a valid string", v, "")
		}
		return text
	case "list":
		_, ok := v.([]any)
		if !ok {
			t.note("list_type", loc, "Input should be a valid list", v, "")
		}
		return ok
	case "dict":
		_, ok := v.(map[string]any)
		if !ok {
			t.note("dict_type", loc, "Input should be a valid dictionary", v, "")
		}
		return ok
	}
	return t.isScalar(kind, loc, v)
}

func (t *tree) isScalar(kind, loc string, v any) bool {
	names := map[string]string{"int": "integer", "float": "number", "bool": "boolean"}
	text := fmt.Sprint(v)
	var err error
	switch kind {
	case "int":
		_, err = strconv.Atoi(text)
	case "float":
		_, err = strconv.ParseFloat(text, 64)
	case "bool":
		if !slices.Contains([]string{"true", "false", "1", "0", "yes", "no", "on", "off", "t", "f", "y", "n"},
			strings.ToLower(text)) {
			err = strconv.ErrSyntax
		}
	}
	_, isText := v.(string)
	how := ", unable to parse string as " + map[string]string{"int": "an integer", "float": "a number"}[kind]
	if kind == "bool" {
		how = ", unable to interpret input"
	}
	switch {
	case err == nil:
		return true
	case isText:
		t.note(kind+"_parsing", loc, "Input should be a valid "+names[kind]+how, v, "")
	default:
		t.note(kind+"_type", loc, "Input should be a valid "+names[kind], v, "")
	}
	return false
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
	if text, ok := v.(string); ok && slices.Contains(words, text) {
		return true
	}
	n := len(words) - 1
	expected := "'" + strings.Join(words[:n], "', '") + "' or '" + words[n] + "'"
	t.note("literal_error", loc, "Input should be "+expected, v, `'expected': "`+expected+`"`)
	return false
}

func (t *tree) optionalLiteral(in map[string]any, at, key string, words ...string) {
	if v := in[key]; v != nil {
		t.literal(at+"."+key, v, words...)
	}
}

// value is a mistake that a validator of vLLM's own found.
func (t *tree) value(loc string, input any, msg string) {
	t.note("value_error", loc, "Value error, "+msg, input, "'error': ValueError("+python(msg)+")")
}

// textOrList is what a prompt may be. It returns the list.
func (t *tree) textOrList(loc string, v any) []any {
	switch v := v.(type) {
	case string:
		return nil
	case []any:
		return v
	}
	t.is("string", loc, v)
	t.is("list", loc, v)
	return nil
}

func less(n json.Number, limit int) bool {
	v, err := n.Float64()
	return err == nil && v < float64(limit)
}
