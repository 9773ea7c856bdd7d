package enginesim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// invalidMessages returns pydantic's refusal of a body of /v1/messages or, if count, of count_tokens.
func invalidMessages(body []byte, count bool) *problem {
	t := newTree(body)
	if t == nil {
		return nil
	}
	if v, ok := t.need(t.body, "", "model"); ok {
		t.is("string", ".model", v)
	}
	if v, ok := t.need(t.body, "", "messages"); ok && t.is("list", ".messages", v) {
		for i, m := range v.([]any) {
			t.message(fmt.Sprint(".messages.", i), m)
		}
	}
	if !count {
		t.answerLength()
		t.thinking()
		t.optional("list", "stop_sequences")
		t.optional("bool", "stream")
	}
	if v := t.body["system"]; v != nil {
		t.textOrList(".system", v)
	}
	if !count {
		t.optional("float", "temperature")
	}
	t.toolChoice()
	t.anthropicTools()
	if v, ok := t.body["cache_salt"].(string); ok && v == "" {
		t.refuse(".cache_salt")
	}
	t.optional("dict", "kv_transfer_params")
	if len(t.wrong) == 0 && !count {
		t.budget()
	}
	return t.problem()
}

// blockTypes are the types of a content block of /v1/messages.
var blockTypes = []string{
	"text", "image", "tool_use", "tool_result", "tool_reference", "thinking", "redacted_thinking",
	"tool_addition", "tool_removal",
}

func (t *tree) message(loc string, m any) {
	turn, ok := m.(map[string]any)
	if !ok {
		t.refuse(loc)
		return
	}
	if v, ok := t.need(turn, loc, "role"); ok {
		t.literal(loc+".role", v, "user", "assistant", "system")
	}
	v, ok := t.need(turn, loc, "content")
	if !ok {
		return
	}
	blocks := t.textOrList(loc+".content", v)
	for i, b := range blocks {
		block, _ := b.(map[string]any)
		at := fmt.Sprint(loc, ".content.", i)
		kind, ok := block["type"].(string)
		if ok && slices.Contains(blockTypes, kind) {
			continue
		}
		t.is("string", loc+".content", v) // the first branch of the union
		if _, ok := t.need(block, at, "type"); ok {
			t.literal(at+".type", block["type"], blockTypes...)
		}
	}
}

func (t *tree) answerLength() {
	v, ok := t.need(t.body, "", "max_tokens")
	if !ok || !t.is("int", ".max_tokens", v) {
		return
	}
	if n, _ := strconv.Atoi(fmt.Sprint(v)); n < 1 {
		t.refuse(".max_tokens")
	}
}

func (t *tree) thinking() {
	how, ok := t.body["thinking"].(map[string]any)
	if !ok {
		return
	}
	switch how["type"] {
	case "enabled":
		if n, ok := how["budget_tokens"].(json.Number); ok && less(n, 1024) {
			t.refuse(".thinking.enabled.budget_tokens")
		}
	case "disabled", "adaptive":
	default:
		t.refuse(".thinking")
	}
}

// budget refuses a thinking budget that is not less than max_tokens.
func (t *tree) budget() {
	how, _ := t.body["thinking"].(map[string]any)
	n, ok := how["budget_tokens"].(json.Number)
	limit, _ := strconv.Atoi(fmt.Sprint(t.body["max_tokens"]))
	if ok && !less(n, limit) {
		t.refuse("")
	}
}

func (t *tree) toolChoice() {
	choice, ok := t.body["tool_choice"].(map[string]any)
	if !ok {
		return
	}
	if v, ok := t.need(choice, ".tool_choice", "type"); !ok ||
		!t.literal(".tool_choice.type", v, "auto", "any", "tool", "none") {
		return
	}
	if name, _ := choice["name"].(string); choice["type"] == "tool" && name == "" {
		t.refuse(".tool_choice")
	}
}

func (t *tree) anthropicTools() {
	tools, ok := t.optional("list", "tools")
	if !ok {
		return
	}
	for i, v := range tools.([]any) {
		tool, _ := v.(map[string]any)
		for _, key := range []string{"name", "input_schema"} {
			t.need(tool, fmt.Sprint(".tools.", i), key)
		}
	}
}

// toolsOf converts the tools of /v1/messages to chat tools.
func (p *params) toolsOf(body []byte) {
	t := newTree(body)
	if t == nil || t.body["tools"] == nil && t.body["tool_choice"] == nil {
		return
	}
	x := p.more()
	x.hasTools = true
	choice, _ := t.body["tool_choice"].(map[string]any)
	switch choice["type"] {
	case "none":
		x.choice = []byte(`"none"`)
	case "any":
		x.choice = []byte(`"required"`)
	case "tool":
		name, _ := json.Marshal(choice["name"])
		x.choice = fmt.Appendf(nil, `{"type":"function","function":{"name":%s}}`, name)
	}
	if tools, ok := t.body["tools"].([]any); choice["type"] == "none" && (!ok || len(tools) == 0) {
		x.hasTools = false
	}
}
