package enginesim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// toolTypes are the types of a tool of /v1/responses.
var toolTypes = []string{
	"function", "file_search", "computer", "computer_use_preview", "web_search", "web_search_2025_08_26", "mcp",
	"code_interpreter", "image_generation", "local_shell",
	"shell", "custom", "namespace", "tool_search", "web_search_preview", "web_search_preview_2025_03_11",
	"apply_patch",
}

// invalidResponse returns vLLM's refusal of a body of /v1/responses: first that of vLLM's own validators,
// then pydantic's.
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

// ownValidators runs the validators that vLLM runs before pydantic's.
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
			t.refuse(fmt.Sprint(".input.", i, ".EasyInputMessageParam.content"))
		}
	}
}

func (t *tree) format() {
	text, _ := t.body["text"].(map[string]any)
	format, ok := text["format"].(map[string]any)
	if kind, _ := format["type"].(string); ok &&
		!slices.Contains([]string{"text", "json_schema", "json_object"}, kind) {
		t.refuse(".text.format.ResponseFormatText.type")
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
	if f, _ := strconv.ParseFloat(fmt.Sprint(v), 64); f > 2 || f < -2 {
		t.refuse("." + key)
	}
}

// later returns the handler's refusal for /v1/responses, after the model check: fields that need the store,
// which is off by default.
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

// unknownResponse is the answer for a response that is not stored. No response is stored here.
func unknownResponse(id string) *problem {
	return &problem{
		status: 404, kind: "invalid_request_error", param: "response_id",
		message: "Response with id '" + id + "' not found.",
	}
}

// storedResponse answers GET /v1/responses/ID and POST /v1/responses/ID/cancel.
func (s *Server) storedResponse(k *call) {
	id := strings.TrimSuffix(strings.TrimPrefix(k.path, "/v1/responses/"), "/cancel")
	k.failWith(unknownResponse(id))
}

// ofStored reports whether the call is about one stored response.
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
