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

// invalidMessages is what pydantic says of a body of /v1/messages or, when tokens are only counted, of
// count_tokens.
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
		t.note("string_too_short", ".cache_salt", "String should have at least 1 character", v, "'min_length': 1")
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
		t.note("model_attributes_type", loc, "Input should be a valid dictionary or object to extract fields from",
			m, "")
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
		t.value(".max_tokens", v, "max_tokens must be positive")
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
			t.note("greater_than_equal", ".thinking.enabled.budget_tokens",
				"Input should be greater than or equal to 1024", n, "'ge': 1024")
		}
	case "disabled", "adaptive":
	default:
		tags := "'enabled', 'disabled', 'adaptive'"
		t.note("union_tag_invalid", ".thinking", fmt.Sprintf(
			"Input tag '%v' found using 'type' does not match any of the expected tags: %s", how["type"], tags,
		), how,
			fmt.Sprintf(`'discriminator': "'type'", 'tag': '%v', 'expected_tags': "%s"`, how["type"], tags))
	}
}

// budget compares what thinking may take with the answer's length.
func (t *tree) budget() {
	how, _ := t.body["thinking"].(map[string]any)
	n, ok := how["budget_tokens"].(json.Number)
	limit, _ := strconv.Atoi(fmt.Sprint(t.body["max_tokens"]))
	if ok && !less(n, limit) {
		t.value("", t.body, "thinking.budget_tokens must be less than max_tokens")
	}
}

func less(n json.Number, limit int) bool {
	v, err := n.Float64()
	return err == nil && v < float64(limit)
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
		t.value(".tool_choice", choice, "tool_choice.name is required when type is 'tool'")
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

// toolsOf makes a chat's tools of those of /v1/messages.
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

// toolTypes are the types of a tool of /v1/responses.
var toolTypes = []string{
	"function", "file_search", "computer", "computer_use_preview", "web_search", "web_search_2025_08_26", "mcp",
	"code_interpreter", "image_generation", "local_shell",
	"shell", "custom", "namespace", "tool_search", "web_search_preview", "web_search_preview_2025_03_11",
	"apply_patch",
}

// invalidResponse is what vLLM says of a body of /v1/responses before it is a request: what its own
// validators say first, then pydantic.
func invalidResponse(body []byte) *problem {
	t := newTree(body)
	if t == nil {
		return nil
	}
	if bad := t.ownValidators(); bad != nil {
		return bad
	}
	t.optional("bool", "background")
	if list, ok := t.body["include"].([]any); ok {
		for i, v := range list {
			t.literal(fmt.Sprint(".include.", i), v, "code_interpreter_call.outputs",
				"computer_call_output.output.image_url", "file_search_call.results",
				"message.input_image.image_url", "message.output_text.logprobs", "reasoning.encrypted_content")
		}
	}
	t.input()
	t.optional("int", "max_output_tokens")
	if r, ok := t.body["reasoning"].(map[string]any); ok {
		t.optionalLiteral(r, ".reasoning", "effort", "none", "minimal", "low", "medium", "high", "xhigh", "max")
	}
	t.optionalLiteral(t.body, "", "service_tier", "auto", "default", "flex", "scale", "priority")
	t.optional("bool", "stream")
	t.optional("float", "temperature")
	t.format()
	if choice, ok := t.body["tool_choice"].(string); ok {
		t.literal(".tool_choice", choice, "none", "auto", "required")
	}
	t.responseTools()
	t.optionalLiteral(t.body, "", "truncation", "auto", "disabled")
	t.penalty("presence_penalty")
	t.penalty("frequency_penalty")
	t.optional("int", "priority")
	t.optional("dict", "kv_transfer_params")
	return t.problem()
}

// ownValidators are those that vLLM runs before pydantic's.
func (t *tree) ownValidators() *problem {
	tools, _ := t.body["tools"].([]any)
	named, _ := t.body["tool_choice"].(map[string]any)
	store, stored := t.body["store"].(bool)
	salt, salted := t.body["cache_salt"].(string)
	switch {
	case t.body["tool_choice"] == "required" && len(tools) == 0:
		return about("tool_choice", "Tool choice 'required' must be specified with 'tools' parameter.")
	case named["type"] == "function" && !slices.ContainsFunc(tools, func(v any) bool {
		tool, _ := v.(map[string]any)
		return tool["name"] == named["name"]
	}):
		return about("tool_choice", "Tool choice 'function' not found in 'tools' parameter.")
	case t.body["prompt"] != nil:
		return about("prompt", "prompt template is not supported")
	case t.body["background"] == true && stored && !store:
		return about("background", "background can only be used when `store` is true")
	case salted && salt == "":
		return about("cache_salt", "Parameter 'cache_salt' must be a non-empty string if provided.")
	}
	return nil
}

func (t *tree) input() {
	v, ok := t.need(t.body, "", "input")
	if !ok {
		return
	}
	for i, item := range t.textOrList(".input", v) {
		m, _ := item.(map[string]any)
		if kind, typed := m["type"].(string); typed && m["role"] == nil && kind == "nothing" || len(m) == 0 ||
			m["role"] == nil && !typed {
			t.note("missing", fmt.Sprint(".input.", i, ".EasyInputMessageParam.content"), "Field required", item, "")
		}
	}
}

func (t *tree) format() {
	text, _ := t.body["text"].(map[string]any)
	format, ok := text["format"].(map[string]any)
	if kind, _ := format["type"].(string); ok &&
		!slices.Contains([]string{"text", "json_schema", "json_object"}, kind) {
		t.note("literal_error", ".text.format.ResponseFormatText.type", "Input should be 'text'", format["type"],
			`'expected': "'text'"`)
	}
}

func (t *tree) responseTools() {
	tools, ok := t.optional("list", "tools")
	if !ok {
		return
	}
	for i, v := range tools.([]any) {
		tool, _ := v.(map[string]any)
		kind, _ := tool["type"].(string)
		if _, named := tool["name"].(string); !slices.Contains(toolTypes, kind) || kind == "function" && !named {
			t.need(map[string]any{}, fmt.Sprint(".tools.", i, ".FunctionTool"), "name")
		}
	}
}

func (t *tree) penalty(key string) {
	v, ok := t.optional("float", key)
	if !ok {
		return
	}
	f, _ := strconv.ParseFloat(fmt.Sprint(v), 64)
	switch {
	case f > 2:
		t.note("less_than_equal", "."+key, "Input should be less than or equal to 2", v, "'le': 2.0")
	case f < -2:
		t.note("greater_than_equal", "."+key, "Input should be greater than or equal to -2", v, "'ge': -2.0")
	}
}

// later is what the handler of /v1/responses refuses, once the model is known: what needs a store, which is
// off by default.
func (t *tree) later() *problem {
	stored, told := t.body["store"].(bool)
	previous, _ := t.body["previous_response_id"].(string)
	messages, _ := t.body["previous_input_messages"].([]any)
	refuse := func(status int, param, format string, args ...any) *problem {
		return &problem{
			status: status, kind: "invalid_request_error", param: param, message: fmt.Sprintf(format, args...),
		}
	}
	switch {
	case t.body["background"] == true && (stored || !told):
		return refuse(400, "background",
			"This vLLM engine does not support `store=True` and therefore does not support the background mode. "+
				"To enable these features, set the environment variable `VLLM_ENABLE_RESPONSES_API_STORE=1` when "+
				"launching the vLLM server.")
	case len(messages) > 0 && previous != "":
		return refuse(400, "previous_response_id",
			"Only one of `previous_input_messages` and `previous_response_id` can be set.")
	case t.body["previous_response_id"] != nil:
		return unknownResponse(previous)
	}
	return nil
}

// unknownResponse is the answer about a response that is not stored: none is.
func unknownResponse(id string) *problem {
	return &problem{
		status: 404, kind: "invalid_request_error", param: "response_id",
		message: "Response with id '" + id + "' not found.",
	}
}

// invalidDetokenize is what pydantic says of a body of /detokenize.
func invalidDetokenize(body []byte) *problem {
	t := newTree(body)
	if t == nil {
		return nil
	}
	v, ok := t.need(t.body, "", "tokens")
	if !ok || !t.is("list", ".tokens", v) {
		return t.problem()
	}
	for i, id := range v.([]any) {
		if n, ok := id.(json.Number); ok && less(n, 0) {
			t.note("greater_than_equal", fmt.Sprint(".tokens.", i), "Input should be greater than or equal to 0", n,
				"'ge': 0")
		}
	}
	return t.problem()
}

// storedResponse answers GET /v1/responses/ID and POST /v1/responses/ID/cancel.
func (s *Server) storedResponse(k *call) {
	id := strings.TrimSuffix(strings.TrimPrefix(k.path, "/v1/responses/"), "/cancel")
	k.failWith(unknownResponse(id))
}

// ofStored says whether the call is about one stored response.
func (k *call) ofStored() bool {
	rest, ok := strings.CutPrefix(k.path, "/v1/responses/")
	if !ok {
		return false
	}
	id, cancel := strings.CutSuffix(rest, "/cancel")
	want := "GET"
	if cancel {
		want = "POST"
	}
	return id != "" && !strings.Contains(id, "/") && string(k.method) == want
}

// maxStops is VLLM_MAX_STOP_STRINGS.
const maxStops = 4

// tooManyStops is what pydantic says of a list of n stop strings: it is not the text that it might be, and
// too long.
func tooManyStops(n int) *problem {
	var t tree
	list := make([]any, n)
	t.is("string", ".stop", list)
	t.note("too_long", ".stop",
		fmt.Sprintf("List should have at most %d items after validation, not %d", maxStops, n), list,
		fmt.Sprintf("'field_type': 'List', 'max_length': %d, 'actual_length': %d", maxStops, n))
	return t.problem()
}

// withoutFunction is what pydantic says of tool i of a chat that names no function.
func withoutFunction(i int) *problem {
	var t tree
	t.need(map[string]any{}, fmt.Sprint(".tools.", i), "function")
	return t.problem()
}

// invalidGenerate is what pydantic says of a body of /inference/v1/generate.
func invalidGenerate(body []byte) *problem {
	t := newTree(body)
	if t == nil {
		return nil
	}
	if v, ok := t.need(t.body, "", "token_ids"); ok {
		ids, list := v.([]any)
		switch {
		case list && len(ids) == 0:
			t.note("too_short", ".token_ids", "List should have at least 1 item after validation, not 0", v,
				"'field_type': 'List', 'min_length': 1, 'actual_length': 0")
		case slices.ContainsFunc(ids, func(id any) bool { n, ok := id.(json.Number); return ok && less(n, 0) }):
			t.value(".token_ids", v, "token_ids must not contain negative values")
		}
	}
	t.need(t.body, "", "sampling_params")
	return t.problem()
}
