package main

import "slices"

// Conversations: chats, responses and messages. They all share a system prompt, so also the first blocks.

// talk returns a conversation with one more turn of the user. A long conversation is replaced by a new one,
// with or without the shared system prompt.
func (g *generator) talk(of string) []turn {
	said := g.history[of]
	if len(said) > 7 || len(said) == 0 {
		said = nil
		if g.rnd.IntN(4) > 0 {
			said = append(said, turn{"system", g.system})
		}
	}
	said = append(said, turn{"user", g.text(g.pick(2, 9, 25))})
	g.history[of] = append(slices.Clip(said), turn{"assistant", g.text(6)})
	return said
}

// parts returns text in one or two parts. The type of a part depends on the API.
func (g *generator) parts(kind, text string) []map[string]any {
	cut := g.rnd.IntN(len(text))
	if cut == 0 {
		return []map[string]any{{"type": kind, "text": text}}
	}
	return []map[string]any{{"type": kind, "text": text[:cut]}, {"type": kind, "text": text[cut:]}}
}

func message(role string, content any) map[string]any {
	return map[string]any{"role": role, "content": content}
}

func (g *generator) chatTurns() request {
	var said []map[string]any
	for _, t := range g.talk(chat) {
		said = append(said, message(t.role, t.text))
	}
	return request{"chat, turns", chat, map[string]any{"messages": said, "max_completion_tokens": g.output()}}
}

// schema is the schema of a function or of an answer.
var schema = map[string]any{
	"type": "object", "properties": map[string]any{"at": map[string]any{"type": "string"}},
	"required": []string{"at"},
}

// chatTools has a tool in the prompt, and sometimes an earlier call. An engine calls tools only if it
// was started with a tool parser.
func (g *generator) chatTools() request {
	tools := []map[string]any{{
		"type":     "function",
		"function": map[string]any{"name": "look", "description": g.text(5), "parameters": schema},
	}}
	said := []map[string]any{message("system", g.system), message("user", g.text(8))}
	if g.rnd.IntN(2) > 0 {
		called := message("assistant", g.text(2))
		called["tool_calls"] = []map[string]any{
			{"id": "call_1", "type": "function", "function": map[string]any{"name": "look", "arguments": called1}},
		}
		found := message("tool", g.text(20))
		found["tool_call_id"] = "call_1"
		said = append(said, called, found)
	}
	return request{
		"chat, tools", chat,
		map[string]any{"messages": said, "tools": tools, "tool_choice": "none", "max_tokens": g.output()},
	}
}

// called1 holds the arguments of a call.
const called1 = `{"at":"one"}`

func (g *generator) chatLogprobs() request {
	return request{"chat, parts, logprobs", chat, map[string]any{
		"messages": []map[string]any{message("user", g.parts("text", g.text(16)))}, "logprobs": true,
		"top_logprobs": 2, "max_tokens": g.output(),
	}}
}

func (g *generator) chatContinued() request {
	return request{"chat, continued answer", chat, map[string]any{
		"messages":              []map[string]any{message("user", g.system), message("assistant", g.text(3))},
		"add_generation_prompt": false, "continue_final_message": true,
		"max_tokens": g.output(),
	}}
}

// chatSampled is repeatable by its seed. Some have n = 2, some a response format.
func (g *generator) chatSampled() request {
	body := map[string]any{
		"messages": []map[string]any{message("system", g.system), message("user", g.text(5))}, "temperature": 0.8,
		"top_k": 40, "seed": g.rnd.IntN(1000), "max_tokens": 10,
		"stop": []string{"zz"},
	}
	switch g.rnd.IntN(3) {
	case 0:
		body["n"] = 2
	case 1:
		body["response_format"] = map[string]any{
			"type": "json_schema", "json_schema": map[string]any{"name": "place", "schema": schema},
		}
	}
	return request{"chat, sampled", chat, body}
}

// responsesTurns has its turns as items, each in one of the API's forms.
func (g *generator) responsesTurns() request {
	body := map[string]any{"max_output_tokens": g.output()}
	var items []map[string]any
	for _, t := range g.talk(responses) {
		kind := map[string]string{"user": "input_text", "assistant": "output_text", "system": "input_text"}[t.role]
		item := message(t.role, t.text)
		switch {
		case t.role == "system" && g.rnd.IntN(2) > 0:
			body["instructions"] = t.text
			continue
		case g.rnd.IntN(2) > 0:
			item["type"], item["content"] = "message", g.parts(kind, t.text)
		}
		items = append(items, item)
	}
	body["input"] = items
	return request{"responses, turns", responses, body}
}

func (g *generator) responsesText() request {
	body := map[string]any{"input": g.text(g.pick(1, 20, 80)), "max_output_tokens": g.output(), "store": false}
	if g.rnd.IntN(2) > 0 {
		body["include"], body["top_logprobs"] = []string{"message.output_text.logprobs"}, 1
	}
	return request{"responses, text", responses, body}
}

func (g *generator) responsesSampled() request {
	return request{"responses, sampled, salted", responses, map[string]any{
		"input": g.text(12), "instructions": g.system, "temperature": 0.8, "top_p": 0.9, "seed": g.rnd.IntN(1000),
		"cache_salt": g.tenant(), "max_output_tokens": 12,
	}}
}

func (g *generator) responsesTools() request {
	tools := []map[string]any{
		{"type": "function", "name": "look", "description": g.text(5), "parameters": schema},
	}
	body := map[string]any{
		"input": g.text(9), "tools": tools, "tool_choice": "none", "max_output_tokens": g.output(),
	}
	if g.rnd.IntN(2) > 0 {
		body["input"] = []map[string]any{
			message("user", g.text(9)),
			{"type": "function_call", "call_id": "call_1", "name": "look", "arguments": called1},
			{"type": "function_call_output", "call_id": "call_1", "output": g.text(20)},
		}
	}
	return request{"responses, tools", responses, body}
}

// responsesWhole allows truncation by the engine, so it is not split.
func (g *generator) responsesWhole() request {
	return request{
		"responses, truncated", responses,
		map[string]any{"input": g.text(40), "truncation": "auto", "max_output_tokens": g.output()},
	}
}

func (g *generator) messagesTurns() request {
	body := map[string]any{"max_tokens": g.output()}
	var said []map[string]any
	for _, t := range g.talk(messages) {
		var content any = t.text
		if g.rnd.IntN(2) > 0 {
			content = g.parts("text", t.text)
		}
		if t.role == "system" {
			body["system"] = content
			continue
		}
		said = append(said, message(t.role, content))
	}
	body["messages"] = said
	return request{"messages, turns", messages, body}
}

// messagesStops has top_k 1, another way than temperature 0 to get the likeliest token.
func (g *generator) messagesStops() request {
	return request{"messages, stops, top_k", messages, map[string]any{
		"messages": []map[string]any{message("user", g.system+g.text(2))}, "temperature": 0.7, "top_k": 1,
		"stop_sequences": []string{"a", "o", "e"}, "max_tokens": 24,
	}}
}

func (g *generator) messagesSalted() request {
	return request{"messages, salted", messages, map[string]any{
		"system": g.system, "messages": []map[string]any{message("user", g.text(g.pick(1, 60)))},
		"cache_salt": g.tenant(), "max_tokens": g.output(),
	}}
}

func (g *generator) messagesTools() request {
	tools := []map[string]any{{"name": "look", "description": g.text(5), "input_schema": schema}}
	said := []map[string]any{message("user", g.text(8))}
	if g.rnd.IntN(2) > 0 {
		called := map[string]any{
			"type": "tool_use", "id": "call_1", "name": "look", "input": map[string]any{"at": "one"},
		}
		found := map[string]any{"type": "tool_result", "tool_use_id": "call_1", "content": g.text(20)}
		said = append(said, message("assistant", []map[string]any{{"type": "text", "text": g.text(2)}, called}),
			message("user", []map[string]any{found}))
	}
	return request{"messages, tools", messages, map[string]any{
		"system": g.parts("text", g.system), "messages": said, "tools": tools,
		"tool_choice": map[string]any{"type": "none"}, "max_tokens": g.output(),
	}}
}
