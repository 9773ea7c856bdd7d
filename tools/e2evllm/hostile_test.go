package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var stolenForTests = map[string]any{
	"do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": [][]int{{1, 2, 3}},
	"remote_engine_id": "an-engine", "remote_request_id": "cmpl-1-0-aa",
	"remote_host": "192.0.2.1", "remote_port": 5600, "tp_size": 1, "remote_num_tokens": 73,
}

// TestHostileCases checks the list: no two cases are equal, clean bodies are JSON without parameters, and
// each group has enough cases.
func TestHostileCases(t *testing.T) {
	cases, again := hostileCases(stolenForTests), hostileCases(stolenForTests)
	names, groups := map[string]bool{}, map[string]int{}
	for i, c := range cases {
		if !bytes.Equal(c.raw, again[i].raw) {
			t.Errorf("%s differs between two calls", c.name)
		}
		key := c.group + c.path + c.name + string(c.raw)
		if names[key] {
			t.Errorf("%s is listed twice", c.name)
		}
		names[key] = true
		groups[c.group]++
		if c.group == "params" && (strings.Contains(c.clean, "transfer_params") || !json.Valid([]byte(c.clean))) {
			t.Errorf("%s: the clean body is %s", c.name, c.clean)
		}
		if c.group == "params" && !strings.Contains(strings.ToLower(string(c.raw)), "transfer") &&
			!strings.Contains(string(c.raw), `\u0074`) {
			t.Errorf("%s has no parameters: %s", c.name, c.raw)
		}
	}
	for group, least := range map[string]int{
		"params": 350, "bodies": 300, "types": 300, "http": 120, "admin": 1000,
	} {
		if groups[group] < least {
			t.Errorf("%d cases of %s, fewer than %d", groups[group], group, least)
		}
	}
}

// A careless front passes all requests on to an engine that answers like a real engine. Each kind of
// mistake is detected.
func TestHostileMistakesAreSeen(t *testing.T) {
	good := `{"id":"a","choices":[{"index":0,"text":"right","finish_reason":"length"}],` +
		`"usage":{"prompt_tokens":3,"completion_tokens":1}}`
	right := &heard{status: 200, body: []byte(good)}
	answer := func(status int, text string, fields ...string) heard {
		head := fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: application/json\r\n%s\r\n",
			status, strings.Join(append(fields, ""), "\r\n"))
		return parseHeard([]byte(head+text), nil, false)
	}
	asked := hostileCase{raw: posted(completions, `{"kv_transfer_params":{"remote_host":"x"}}`), clean: "{}"}
	strict, named := hostileCase{}, hostileCase{clean: "{}", names: "seed"}
	for _, tt := range []struct {
		name string
		c    hostileCase
		h    heard
		want *heard
		out  string
	}{
		{"the same", asked, answer(200, strings.Replace(good, `"a"`, `"b"`, 1)), right, rightText},
		{"another text", asked, answer(200, strings.Replace(good, "right", "wrong", 1)), right, notRight},
		{"another count", asked, answer(200, strings.Replace(good, ":3", ":4", 1)), right, notRight},
		{"another end", asked, answer(200, strings.Replace(good, "length", "stop", 1)), right, notRight},
		{"an error inside", asked, answer(200, `data: {"error":{"message":"x"}}`+"\n\n"), right, notRight},
		{
			"refused where one engine is not", asked, answer(400, `{"error":{"message":"m","type":"t","code":400}}`),
			right, notRight,
		},
		{"refused", strict, answer(400, `{"error":{"message":"m","type":"t","code":400}}`), nil, refusal},
		{
			"refused as Anthropic does", strict, answer(400, `{"type":"error","error":{"message":"m","type":"t"}}`),
			nil, refusal,
		},
		{
			"refused in plain words", strict,
			parseHeard([]byte("HTTP/1.1 431 X\r\nContent-Type: text/plain\r\n\r\n431 too much"), nil, false), nil,
			refusal,
		},
		{"refused without a word", strict, answer(400, ``), nil, notClear},
		{
			"refused without a message", strict, answer(400, `{"error":{"message":"","type":"t","code":400}}`), nil,
			notClear,
		},
		{
			"refused by another code", strict, answer(400, `{"error":{"message":"m","type":"t","code":500}}`), nil,
			notClear,
		},
		{"not refused", strict, answer(200, good), nil, notClear},
		{"sent elsewhere", strict, answer(307, ""), nil, notClear},
		{
			"refused without the field", named, answer(400, `{"error":{"message":"m","type":"t","code":400}}`),
			&heard{status: 400, body: []byte(`seed is bad`)}, notClear,
		},
		{
			"refused with the field", named,
			answer(400, `{"error":{"message":"m","type":"t","param":"seed","code":400}}`),
			&heard{status: 400, body: []byte(`seed is bad`)}, refusal,
		},
		{"a dead engine", asked, answer(500, `{"error":{"message":"m","type":"t","code":500}}`), right, serverSide},
		{"silence", asked, parseHeard(nil, nil, false), right, noAnswer},
		{"half an answer", asked, answer(200, "x", "Content-Length: 9"), right, noAnswer},
		{"an address in the body", asked, answer(200, strings.Replace(good, `"a"`, `"h:5600"`, 1)), right, leaked},
		{"an address in a field", asked, answer(200, good, "X-Engine: http://h:5600/"), right, leaked},
		{
			"parameters",
			hostileCase{raw: posted(completions, "{}"), clean: "{}"},
			answer(200, `{"kv_transfer_params": {"a":1},`+good[1:]), right, leaked,
		},
		{"none", asked, answer(200, `{"kv_transfer_params": null,`+good[1:]), right, rightText},
		{
			"a number that only resembles", asked,
			answer(200, strings.Replace(good, `"a"`, `"15600b"`, 1), "X-Request-Id: 5600f"), right, rightText,
		},
		{
			"an inner word", asked, answer(400, `{"error":{"message":"remote_block_ids","type":"t","code":400}}`), nil,
			leaked,
		},
		{
			"the client's own word", asked, answer(400, `{"error":{"message":"remote_host","type":"t","code":400}}`),
			nil, refusal,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if out, why := judgeHeard(
				tt.c, tt.h, tt.want, []*regexp.Regexp{regexp.MustCompile(`\b5600\b`)},
			); out != tt.out || (why == "") != (out == rightText || out == refusal) {
				t.Errorf("%s (%s), want %s", out, why, tt.out)
			}
		})
	}
}

// For each API, a stream has the same essential content as the whole answer.
func TestHeartsOfStreams(t *testing.T) {
	for whole, streamed := range map[string]string{
		`{"id":"1","choices":[{"index":0,"text":"ab","finish_reason":"length"}],"usage":{"prompt_tokens":3,` +
			`"completion_tokens":2}}`: "data: {\"id\":\"2\",\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n\ndata: " +
			"{\"choices\":[{\"index\":0,\"text\":\"b\",\"finish_reason\":\"length\"}]}\n\n" +
			"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n",
		`{"choices":[{"index":0,"message":{"content":"ab"},` +
			`"finish_reason":"stop"}]}`: "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ab\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
		`{"type":"message","content":[{"type":"text","text":"ab"}],"stop_reason":"max_tokens",` +
			`"usage":{"input_tokens":1,"cache_read_input_tokens":2,` +
			`"output_tokens":2}}`: "event: message_start\ndata: " +
			"{\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3}}}\n\n" +
			"event: content_block_delta\ndata: " +
			"{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"ab\"}}\n\n" +
			"event: message_delta\ndata: " +
			"{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\"},\"usage\":{\"input_tokens\":3,\"output_tokens\":2}}\n\n",
		`{"object":"response","status":"completed","output":[{"content":[{"text":"ab"}]}],` +
			`"usage":{"input_tokens":3,"output_tokens":2}}`: "event: response.created\ndata: " +
			"{\"type\":\"response.created\",\"response\":{\"output\":[],\"usage\":null}}\n\n" +
			"data: {\"type\":\"response.output_text.delta\",\"delta\":\"ab\"}\n\ndata: " +
			"{\"type\":\"response.output_text.done\",\"text\":\"ab\"}\n\n" +
			"data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[{\"content\":[{\"text\":\"ab\"}]}],\"usage\":{\"input_tokens\":3,\"output_tokens\":2}}}\n\n",
	} {
		a, err := heart([]byte(whole))
		b, errStream := heart([]byte(streamed))
		if a != b || err != nil || errStream != nil || !strings.Contains(a, "ab") {
			t.Errorf("%v %v\n%s\n%s", err, errStream, a, b)
		}
	}
}

// An exchange is read to its end. That includes two requests in one exchange, and a server that closes
// without an answer.
func TestExchange(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Length", fmt.Sprint(r.ContentLength))
		w.WriteHeader(map[bool]int{true: 200, false: 404}[r.URL.Path == completions])
		fmt.Fprint(w, r.URL.Path)
	}))
	defer s.Close()
	h := exchange(t.Context(), s.URL, posted(completions, "{}"), false)
	if h.status != 200 || string(h.body) != completions || h.header.Get("X-Length") != "2" ||
		h.responses != 1 || h.err != nil {
		t.Errorf("%+v", h)
	}
	twice := "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n" + string(posted("/b", ""))
	if h := exchange(t.Context(), s.URL, []byte(twice), false); h.responses != 2 || h.status != 404 ||
		string(h.body) != "/a" {
		t.Errorf("%+v", h)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	defer l.Close()
	if h := exchange(t.Context(), "http://"+l.Addr().String(), posted(completions, "{}"), false); h.err == nil {
		t.Errorf("a server that closes without an answer: %+v", h)
	}
}

func TestStrangers(t *testing.T) {
	log := "INFO: 127.0.0.1:1 - \"POST /v1/completions HTTP/1.1\" 200 OK\nINFO: - \"GET /metrics HTTP/1.1\" " +
		"200 OK\nINFO: - \"POST /v1/responses/abc/cancel HTTP/1.1\" 404\n" +
		"INFO: - \"POST /reset_prefix_cache?x=1 HTTP/1.1\" 200 OK\nINFO: - \"POST /v1/../sleep HTTP/1.1\" 404 " +
		"Not Found\n"
	if got, want := strangers(
		[]byte(log),
	), []string{"/reset_prefix_cache?x=1", "/v1/../sleep"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A reset is detected in the engine's own log line, no matter which program asked for it. A stranger's
// path is detected at every engine except the reference, because the suite itself sends requests to the
// reference.
func TestDisturbed(t *testing.T) {
	const path, reset = "INFO: - \"POST /v1/../sleep HTTP/1.1\" 404 Not Found\n",
		"INFO 11-21 [block_pool.py:861] Successfully reset prefix cache\n"
	e := &engine{Name: "d1"}
	for _, c := range []struct {
		log       string
		reference bool
		want      string
	}{
		{"INFO: - \"POST /v1/completions HTTP/1.1\" 200 OK\n", false, ""},
		{path, false, "was asked for /v1/../sleep"},
		{path, true, ""},
		{reset, false, "told to empty its cache"},
		{reset, true, "told to empty its cache"},
	} {
		holdsOr(t, e.disturbed([]byte(c.log), c.reference), c.want)
	}
}

func TestHostileVerdict(t *testing.T) {
	ok, bad := hostileResult{outcome: rightText}, hostileResult{outcome: notRight, why: "x"}
	for _, tt := range []struct {
		name    string
		results []hostileResult
		held    bool
	}{
		{"params", []hostileResult{ok}, true},
		{"params", []hostileResult{ok, bad}, false},
		{"params", nil, false},
		{"params", []hostileResult{{outcome: refusal}}, false},
		{"admin", []hostileResult{{outcome: refusal}}, true},
	} {
		if err := judgeHostile(tt.name, tt.results); (err == nil) != tt.held {
			t.Errorf("%v: %v", tt.results, err)
		}
	}
}
