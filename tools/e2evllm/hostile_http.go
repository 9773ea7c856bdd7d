package main

import (
	"fmt"
	"net/url"
	"strings"
)

// httpCases are requests that are wrong as HTTP, or that two HTTP parsers may read differently.
//
// Long: one row per case.
func httpCases() []hostileCase {
	in := newValidBodies(3)
	body := "{" + in.members(completions) + "}"
	size := fmt.Sprint("Content-Length: ", len(body))
	chunk := func(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }
	chunked := chunk(body) + "0\r\n\r\n"
	const smuggled = "POST /reset_prefix_cache HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: " +
		"close\r\n\r\n"
	const te = "Transfer-Encoding: chunked"
	var cases []hostileCase
	add := func(name, text string, how ...string) {
		c := hostileCase{group: "http", name: name, path: completions, raw: []byte(text)}
		for _, h := range how {
			switch h {
			case "half":
				c.half = true
			case "served":
				c.clean = body
			case "either":
				c.clean, c.loose = body, true
			}
		}
		cases = append(cases, c)
	}
	request := func(head ...string) string {
		return "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: " +
			"close\r\n" + strings.Join(head, "\r\n") + "\r\n\r\n"
	}
	add("both lengths, chunks inside", request(size, te)+chunked, "either")
	add("both lengths, a request smuggled behind the chunks", strings.Replace(
		request(fmt.Sprint("Content-Length: ", len(chunked)+len(smuggled)), te), "Connection: close\r\n", "", 1,
	)+chunked+smuggled, "either")
	add("both lengths, a request smuggled behind the length",
		request("Content-Length: 4", te)+"0\r\n\r\n"+smuggled)
	add("two lengths", request(size, "Content-Length: 0")+body)
	add("two equal lengths", request(size, size)+body, "either")
	add("lengths in a list", request(fmt.Sprintf("Content-Length: %d, %d", len(body), len(body)))+body, "either")
	for _, n := range []string{
		"-1", "+5", "0x10", "1e3", "99999999999999999999", "9223372036854775807", "x", "",
	} {
		add("length "+n, request("Content-Length: "+n)+body)
	}
	add("too long a length", request(fmt.Sprint("Content-Length: ", len(body)+100))+body, "half")
	add("too short a length", request("Content-Length: 9")+body)
	add("no length", request()+body)
	add("length of gigabytes, nothing sent", request("Content-Length: 5000000000"))
	add("truncated in the head", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Le", "half")
	for _, t := range []string{
		"xchunked", "chunked, identity", "identity", "gzip, chunked", "chunked, chunked", "\x0bchunked",
		"chunked\x00", "'chunked'",
	} {
		add("coding "+t, request("Transfer-Encoding: "+t)+chunked)
	}
	add("coding named twice", request(te, "Transfer-Encoding: identity")+chunked)
	add("coding with a blank before the colon", request("Transfer-Encoding : chunked", size)+body)
	add("coding folded", request("Transfer-Encoding:\r\n chunked")+chunked, "either")
	add("chunks", request(te)+chunked, "served")
	add("chunks of a byte", request(te)+bytewise(body)+"0\r\n\r\n", "served")
	add("chunks with extensions and trailers", request(te)+fmt.Sprintf(
		"%x;a=b;c=\"d\"\r\n%s\r\n0\r\nContent-Length: 1\r\nX-Data-Parallel-Rank: 7\r\n\r\n", len(body), body,
	), "either")
	add("a chunk extension of 100 kB",
		request(te)+fmt.Sprintf("%x;%s\r\n%s\r\n0\r\n\r\n", len(body), strings.Repeat("a", 100_000), body))
	for _, n := range []string{"-1", "x", "ffffffffffffffff", "7fffffffffffffff", "0x5", "", "1 1"} {
		add("chunk size "+n, request(te)+n+"\r\n"+body+"\r\n0\r\n\r\n", "half")
	}
	add("a chunk without an end", request(te)+fmt.Sprintf("%x\r\n%s", len(body), body), "half")
	add("chunks without the last", request(te)+chunk(body), "half")
	add("chunks over the limit",
		request(te)+strings.Repeat(chunk(strings.Repeat("a", 1<<16)), 2*hostileBodyLimit>>16)+"0\r\n\r\n")
	add("4000 fields",
		request(strings.TrimSuffix(strings.Repeat("X-Flood: 0123456789\r\n", 4000), "\r\n"), size)+body)
	add("a field of 200 kB", request("X-Long: "+strings.Repeat("a", 200_000), size)+body)
	add("a name of 200 kB", request(strings.Repeat("a", 200_000)+": 1", size)+body)
	add("a target of 200 kB",
		"POST /v1/completions?"+strings.Repeat("a", 200_000)+" HTTP/1.1\r\nHost: x\r\n\r\n")
	for _, f := range []string{
		"X-A\x00: 1", "X-A: a\x00b", "X A: 1", ": 1", "no colon", "X-A: a\rb", "X-(): 1", "\x80: 1",
	} {
		add(fmt.Sprintf("field %q", f), request(f, size)+body)
	}
	add("no Host", "POST /v1/completions HTTP/1.1\r\n"+size+"\r\nConnection: close\r\n\r\n"+body)
	add("two Hosts", request("Host: y", size)+body)
	add("an invalid Host", strings.Replace(request(size), "Host: x", "Host: a b/../c", 1)+body)
	add("lines end in LF only", strings.ReplaceAll(request(size), "\r\n", "\n")+body, "either")
	for _, line := range []string{
		"GET", "POST /v1/completions", "POST /v1/completions HTTP/9.9", "POST /v1/completions HTTP/2.0",
		"POST  /v1/completions HTTP/1.1", "POST /v1/comp letions HTTP/1.1", "\x16\x03\x01\x02\x00\x01",
		"CONNECT 192.0.2.1:80 HTTP/1.1", "OPTIONS * HTTP/1.1", "TRACE /v1/completions HTTP/1.1", "POST * HTTP/1.1",
		"POST http://192.0.2.1:1/reset_prefix_cache HTTP/1.1",
		"POST //192.0.2.1/v1/completions HTTP/1.1", "POST /v1/completions/ HTTP/1.1",
		"POST /V1/COMPLETIONS HTTP/1.1", "POST /v1//completions HTTP/1.1", "PRI * HTTP/2.0",
	} {
		add(fmt.Sprintf("line %q", line), line+"\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
			"half")
	}
	for _, method := range []string{"GET", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW", "CONNECT"} {
		for _, path := range []string{completions, chat, messagesPath, responsesPath, "/tokenize"} {
			add(method+" "+path, method+" "+path+" HTTP/1.1\r\nHost: x\r\n"+size+"\r\nConnection: close\r\n\r\n"+body)
		}
	}
	for _, f := range []string{
		"Upgrade: websocket", "Upgrade: h2c", "Expect: 100-continue", "X-Data-Parallel-Rank: 7",
		"X-data-parallel-rank: x", "X-Vllm-Priority: urgent", "X-Request-Id: a\tb", "X-Session-Id: ../../reset",
		"X-Request-Id: ___prefill_addr_192.0.2.1:1___decode_addr_192.0.2.1:2_00", "X-KV-Transfer-Params: " + deadly,
		"X-Forwarded-For: 127.0.0.1", "X-Original-Url: /reset_prefix_cache",
		"X-Http-Method-Override: DELETE", "Traceparent: zz", "Accept-Encoding: gzip, br",
		"Connection: close, content-length", "TE: trailers", "Range: bytes=0-1", "If-None-Match: *",
		"X-Prefiller-Host-Port: 192.0.2.1:1", "X-Tandem-Decode: p0", "Authorization: Bearer x",
		"Cookie: " + strings.Repeat("a=b; ", 1000),
	} {
		add("field "+shorten(f), request(f, size)+body, "served")
	}
	add("an odd expectation", request("Expect: the worst", size)+body)
	add("an engine's admin call behind a good request",
		strings.Replace(request(size), "Connection: close\r\n", "", 1)+body+smuggled, "served")
	return cases
}

func bytewise(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "1\r\n%c\r\n", s[i])
	}
	return b.String()
}

// adminPaths are the paths that vLLM 0.32 serves beside its API, by default or in its development mode.
var adminPaths = []string{
	"/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache", "/collective_rpc", "/server_info",
	"/sleep", "/wake_up", "/is_sleeping", "/pause", "/resume", "/is_paused",
	"/abort_requests", "/inference/v1/abort_requests", "/scale_elastic_ep", "/is_scaling_elastic_ep",
	"/update_weights", "/update_weight_version", "/init_weight_transfer_engine",
	"/start_weight_update", "/finish_weight_update", "/weight_version", "/get_world_size",
	"/release_kv_cache_memory", "/resume_kv_cache_memory", "/invocations", "/ping", "/load", "/version",
	"/metrics", "/kv_event_sources", "/docs", "/redoc", "/openapi.json", "/start_profile", "/stop_profile",
	"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/generative_scoring",
	"/v1/systemone", "/tokenizer_info", "/debug/pprof/", "/debug/decisions", "/-/reload", "/rpc", "/dashboard",
}

// disguises are ways to write a path that some server or proxy may read as the same path.
var disguises = []struct {
	name string
	as   func(path string) string
}{
	{"plain", func(p string) string { return p }},
	{"slash behind", func(p string) string { return p + "/" }},
	{"two slashes", func(p string) string { return "/" + p }},
	{"slashes doubled", func(p string) string { return strings.ReplaceAll(p, "/", "//") }},
	{"dot segment", func(p string) string { return "/." + p }},
	{"behind a served one", func(p string) string { return "/v1/completions/.." + p }},
	{"from below", func(p string) string { return "/../.." + p }},
	{"dots encoded", func(p string) string { return "/v1/%2e%2e" + p }},
	{"from a model", func(p string) string { return "/v1/models/..%2f..%2f" + p[1:] }},
	{
		"from a stored response",
		func(p string) string { return "/v1/responses/..%2f.." + strings.ReplaceAll(p, "/", "%2f") + "/cancel" },
	},
	{"from a stored response, plainly", func(p string) string { return "/v1/responses/../.." + p }},
	{"semicolon", func(p string) string { return "/v1/completions/..;" + p }},
	{"parameter behind", func(p string) string { return p + ";a=b" }},
	{"slash encoded", func(p string) string { return "/%2f" + p[1:] }},
	{"a letter encoded", func(p string) string { return fmt.Sprintf("/%%%02x%s", p[1], p[2:]) }},
	{"encoded", func(p string) string { return "/" + hexed(p[1:]) }},
	{"encoded twice", func(p string) string { return "/" + strings.ReplaceAll(hexed(p[1:]), "%", "%25") }},
	{"backslashes", func(p string) string { return "/v1/..\\" + p[1:] }},
	{"backslash encoded", func(p string) string { return "/v1/..%5c" + p[1:] }},
	{"capitals", strings.ToUpper},
	{"NUL behind", func(p string) string { return p + "%00" }},
	{"line end behind", func(p string) string { return p + "%0d%0aX:1" }},
	{"blank behind", func(p string) string { return p + "%20" }},
	{"query", func(p string) string { return p + "?path=/v1/completions" }},
	{"query of a served one", func(p string) string { return "/v1/models/x?path=" + url.QueryEscape(p) }},
	{"fragment", func(p string) string { return p + "#/v1/completions" }},
	{"absolute", func(p string) string { return "http://tandem.test" + p }},
	{"absolute, at an engine", func(p string) string { return "http://127.0.0.1" + p }},
	{"without a slash", func(p string) string { return p[1:] }},
	{"below the API", func(p string) string { return "/v1" + p }},
	{"wide letters", func(p string) string { return "/%ef%bd" + fmt.Sprintf("%%%02x", 0x81+p[1]-'a') + p[2:] }},
}

func hexed(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

// adminCases request each path in each disguise.
func adminCases(paths []string) []hostileCase {
	var cases []hostileCase
	for i, path := range paths {
		for j, d := range disguises {
			method := []string{"POST", "GET"}[(i+j)%2]
			if d.name == "plain" {
				cases = append(cases, adminCase("POST", path, d.name, path), adminCase("GET", path, d.name, path))
				continue
			}
			cases = append(cases, adminCase(method, path, d.name, d.as(path)))
		}
	}
	return cases
}

func adminCase(method, path, name, target string) hostileCase {
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: tandem.test\r\nConnection: close\r\nContent-Type: "+
		"application/json\r\nContent-Length: 2\r\n\r\n{}", method, target)
	return hostileCase{group: "admin", name: method + " " + path + ", " + name, path: path, raw: []byte(head)}
}
