package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf16"
)

// hostileBodyLimit is the router's limit for bodies in this act.
const hostileBodyLimit = 1 << 20

// jsonCases are bodies that are huge, deep, broken or of the wrong types.
//
// Long: one row per case.
func jsonCases() []hostileCase {
	var cases []hostileCase
	in := newValidBodies(2)
	refused := func(name, path, body string, fields ...string) {
		cases = append(cases,
			hostileCase{group: "bodies", name: name, path: path, raw: posted(path, body, fields...)})
	}
	like := func(name, path, body, clean string, fields ...string) {
		cases = append(cases,
			hostileCase{group: "bodies", name: name, path: path, raw: posted(path, body, fields...), clean: clean})
	}
	for _, path := range []string{
		completions, chat, messagesPath, responsesPath, "/tokenize", "/inference/v1/generate",
	} {
		members := in.members(path)
		for _, b := range brokenBodies(members) {
			refused(b.name, path, b.value)
		}
		for _, b := range oddBodies(members) {
			cases = append(cases, hostileCase{
				group: "bodies", name: b.name, path: path, raw: posted(path, b.value), clean: "{" + members + "}",
				loose: true,
			})
		}
		killing := "{" + members + `,"kv_transfer_params":` + deadly + "}"
		for _, e := range encodings(killing) {
			refused("deadly, in "+e.name, path, e.value)
			refused("deadly, in "+e.name+", named", path, e.value,
				"Content-Type: application/json; charset="+strings.Fields(e.name)[0])
		}
		refused("deadly, compressed", path, string(zipped(killing)), "Content-Encoding: gzip")
		like("deadly, called compressed", path, killing, "{"+members+"}", "Content-Encoding: gzip")
		for _, typ := range contentTypes {
			cases = append(cases, hostileCase{
				group: "bodies", name: "deadly, as " + typ, path: path, raw: posted(path, killing, "Content-Type: "+typ),
				clean: "{" + members + "}", loose: true,
			})
		}
	}
	return append(cases, append(sizeCases(in), typeCases(in)...)...)
}

// brokenBodies are not JSON, or not JSON that both Python and Tandem accept.
func brokenBodies(m string) []badParams {
	return []badParams{
		{"empty", ""},
		{"blank", " \n"},
		{"not closed", "{" + m},
		{"a comma too many", "{" + m + ",}"},
		{"single quotes", "{'model':'tiny'}"},
		{"a comment", "{" + m + "/*x*/}"},
		{"trailing text", "{" + m + "} x"},
		{"two bodies", "{" + m + "}{" + m + "}"},
		{"a name without a value", "{" + m + `,"x"}`},
		{"a name without quotes", "{" + m + ",x:1}"},
		{"a control character in a text", "{" + m + ",\"user\":\"a\x01b\"}"},
		{"a line feed in a text", "{" + m + ",\"user\":\"a\nb\"}"},
		{"a NUL in a text", "{" + m + ",\"user\":\"a\x00b\"}"},
		{"a NUL behind", "{" + m + "}\x00"},
		{"a bad escape", "{" + m + `,"user":"\x41"}`},
		{"half an escape", "{" + m + `,"user":"\u12"}`},
		{"a bad number", "{" + m + `,"seed":01}`},
		{"invalid UTF-8", "{" + m + ",\"user\":\"\xff\xfe\"}"},
		{"invalid UTF-8 in a name", "{" + m + ",\"us\xc3er\":1}"},
		{"overlong UTF-8", "{" + m + ",\"user\":\"\xc0\xaf\"}"},
		{"a surrogate in UTF-8", "{" + m + ",\"user\":\"\xed\xa0\x80\"}"},
		{"overlong name of parameters", "{" + m + ",\"kv\xc1\x9ftransfer_params\":" + deadly + "}"},
		{"null", "null"},
		{"a number", "1"},
		{"a text", `"x"`},
		{"the body in an array", "[{" + m + "}]"},
		{"an empty array", "[]"},
	}
}

// oddBodies are accepted by some parsers and refused by others. Only a different answer is an error.
func oddBodies(m string) []badParams {
	return []badParams{
		{"NaN", "{" + m + `,"unknown":NaN}`},
		{"infinity", "{" + m + `,"unknown":-Infinity}`},
		{"a huge number", "{" + m + `,"unknown":1e999}`},
		{"a long number", "{" + m + `,"unknown":` + strings.Repeat("9", 5000) + `}`},
		{"a byte order mark", "\ufeff{" + m + "}"},
		{"half a surrogate pair", "{" + m + `,"unknown":"\ud800"}`},
		{"an escaped NUL", "{" + m + `,"unknown":"\u0000"}`},
		{"an empty name", "{" + m + `,"":1}`},
		{"model twice", `{"model":"nobody",` + m + "}"},
		{"__proto__", "{" + m + `,"__proto__":{"a":1},"constructor":{}}`},
		{"deadly, behind NaN", "{" + m + `,"unknown":NaN,"kv_transfer_params":` + deadly + `}`},
	}
}

var contentTypes = []string{
	"text/plain", "application/x-www-form-urlencoded", "application/xml", "application/octet-stream",
	"application/msgpack", "application/vnd.api+json", "x", "",
	"application/json, text/plain", "multipart/form-data; boundary=x",
}

// encodings returns a text in encodings other than UTF-8 that Python's JSON parser accepts.
func encodings(s string) []badParams {
	units := utf16.Encode([]rune(s))
	var le, be, le32 []byte
	for _, u := range units {
		le = binary.LittleEndian.AppendUint16(le, u)
		be = binary.BigEndian.AppendUint16(be, u)
		le32 = binary.LittleEndian.AppendUint32(le32, uint32(u))
	}
	return []badParams{
		{"utf-16 without a mark", string(le)},
		{"utf-16", "\xff\xfe" + string(le)},
		{"utf-16be", string(be)},
		{"utf-32", "\xff\xfe\x00\x00" + string(le32)},
		{"utf-32le", string(le32)},
	}
}

func zipped(s string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(s))
	if err = errors.Join(err, w.Close()); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// sizeCases are huge and deep bodies.
func sizeCases(in validBodies) []hostileCase {
	var cases []hostileCase
	add := func(name, path, body string) {
		cases = append(cases, hostileCase{group: "bodies", name: name, path: path, raw: posted(path, body)})
	}
	big := strings.Repeat("a", hostileBodyLimit)
	for _, path := range append([]string{"/tokenize", "/v1/embeddings"}, splitPaths...) {
		m := in.members(path)
		add("over the limit", path, `{"x":"`+big+`",`+m+`}`)
		add("over the limit, in the prompt", path, strings.Replace("{"+m+"}", `"model"`,
			`"prompt":"`+big+`","messages":[{"role":"user","content":"`+big+`"}],"model"`, 1))
		for _, n := range []int{2000, 100_000} {
			add(fmt.Sprint(n, " arrays deep"), path, "{"+m+`,"x":`+strings.Repeat("[", n)+strings.Repeat("]", n)+`}`)
			add(fmt.Sprint(n, " arrays deep, not closed"), path, "{"+m+`,"x":`+strings.Repeat("[", n))
			add(fmt.Sprint(n, " objects deep"), path,
				"{"+m+`,"x":`+strings.Repeat(`{"x":`, n)+`1`+strings.Repeat("}", n)+`}`)
			add(fmt.Sprint(n, " deep, deadly inside"), path, "{"+m+`,"vllm_xargs":`+strings.Repeat("[", n)+
				`{"kv_transfer_params":`+deadly+`}`+strings.Repeat("]", n)+`}`)
			add(fmt.Sprint(n, " deep in messages"), path,
				"{"+m+`,"messages":`+strings.Repeat("[", n)+strings.Repeat("]", n)+`}`)
		}
		cases = append(cases, hostileCase{
			group: "bodies", name: "20000 fields", path: path, raw: posted(path, "{"+m+many(20_000)+"}"),
			clean: "{" + m + "}", loose: true,
		})
	}
	ids := strings.TrimSuffix(strings.Repeat("7,", 100_000), ",")
	add("100000 ids", completions, `{"model":"tiny","max_tokens":1,"prompt":[`+ids+`]}`)
	add("200 prompts that are too long", completions,
		`{"model":"tiny","max_tokens":1,"prompt":[`+strings.TrimSuffix(
			strings.Repeat(`[`+strings.TrimSuffix(strings.Repeat("7,", contextTokens), ",")+`],`, 200), ",",
		)+`]}`)
	add("a text that is too long", completions,
		`{"model":"tiny","max_tokens":1,"prompt":"`+strings.Repeat("bo ", 20_000)+`"}`)
	add("a chat that is too long", chat, `{"model":"tiny","max_tokens":1,"messages":[{"role":"user","content":"`+
		strings.Repeat("bo ", 20_000)+`"}]}`)
	return cases
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"f%d":0`, i)
	}
	return b.String()
}

// bodyFields are the fields that an engine or the router reads, by path.
var bodyFields = map[string][]string{
	completions: {
		"model", "prompt", "max_tokens", "temperature", "n", "stream", "stream_options", "logprobs", "echo", "stop",
		"seed", "suffix", "top_p", "presence_penalty", "frequency_penalty",
		"logit_bias", "best_of", "user", "top_k", "min_p", "repetition_penalty", "length_penalty", "stop_token_ids",
		"include_stop_str_in_output", "ignore_eos", "min_tokens",
		"skip_special_tokens", "spaces_between_special_tokens", "truncate_prompt_tokens", "allowed_token_ids",
		"prompt_logprobs", "add_special_tokens", "response_format",
		"structured_outputs", "priority", "logits_processors", "return_token_ids", "cache_salt", "vllm_xargs",
		"prompt_embeds", "request_id", "bad_words", "use_beam_search",
	},
	chat: {
		"model", "messages", "max_tokens", "max_completion_tokens", "temperature", "n", "stream", "stream_options",
		"logprobs", "top_logprobs", "stop", "seed", "tools", "tool_choice",
		"parallel_tool_calls", "reasoning_effort", "response_format", "logit_bias", "echo", "add_generation_prompt",
		"continue_final_message", "add_special_tokens", "documents",
		"chat_template", "chat_template_kwargs", "mm_processor_kwargs", "structured_outputs", "priority",
		"request_id", "return_token_ids", "cache_salt", "vllm_xargs", "bad_words",
		"allowed_token_ids", "min_tokens", "truncate_prompt_tokens", "prompt_logprobs", "media_io_kwargs",
		"include_reasoning",
	},
	messagesPath: {
		"model", "messages", "max_tokens", "system", "stop_sequences", "stream", "temperature", "tools",
		"tool_choice", "top_k", "top_p", "metadata", "thinking", "cache_salt",
	},
	responsesPath: {
		"model", "input", "instructions", "max_output_tokens", "stream", "temperature", "tools", "tool_choice",
		"text", "top_p", "truncation", "metadata", "reasoning", "include", "store", "background",
		"previous_response_id", "cache_salt", "priority", "request_id", "user",
	},
}

// wrongValues have types and sizes that few fields accept.
var wrongValues = []string{
	`"x"`, `-1`, `1e400`, `{}`, `[]`, `null`, `[null]`, `99999999999999999999`, `{"a":{"b":[1]}}`,
	`["a",1,null]`, `true`, `""`, `1.5`, `"\u0000"`, `[[[1]]]`, `[-5,99999999]`,
	`{"99999999":1}`, `{"type":"x"}`, `"\ud800"`, `[{"role":"user","content":{"a":1}}]`,
	`"` + strings.Repeat("z", 3000) + `"`,
}

// typeCases set each field to three wrong values, and expect the answer of one engine.
func typeCases(in validBodies) []hostileCase {
	var cases []hostileCase
	for i, path := range splitPaths {
		for j, field := range bodyFields[path] {
			for k := range 3 {
				value := wrongValues[(5*i+4*j+7*k)%len(wrongValues)]
				body := "{" + in.members(path) + `,"` + field + `":` + value + "}"
				if field == "temperature" { // makes the answers deterministic
					body = strings.Replace(body, "{", `{"seed":7,"top_k":1,`, 1)
				}
				cases = append(cases, hostileCase{
					group: "types", name: field + " is " + shorten(value), path: path, raw: posted(path, body), clean: body,
					loose: true, names: field,
				})
			}
		}
	}
	return cases
}
