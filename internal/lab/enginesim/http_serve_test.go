package enginesim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-router/tandem/internal/kvevents"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// stream returns the data of the events of a stream.
func stream(t *testing.T, s *Server, path, body string) []string {
	t.Helper()
	status, header, raw := postRaw(t, s, path, body, nil)
	if status != 200 || header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		t.Fatalf("%s: %d %s %s", path, status, header.Get("Content-Type"), raw)
	}
	var all []string
	for e := range strings.SplitSeq(strings.TrimSuffix(raw, "\n\n"), "\n\n") {
		all = append(all, strings.TrimPrefix(e, "data: "))
	}
	return all
}

// A stream has the same content as the whole answer, for all options.
func TestStreamsSayWhatAnswersSay(t *testing.T) {
	noLeaks(t)
	s := fastServer(t, core.Config{EOS: 5, EOSEvery: 40})
	for _, more := range []string{
		``, `,"echo":true`, `,"stop":[" ba","do"]`, `,"stop":"zzz"`, `,"n":3,"seed":4`,
		`,"min_tokens":30,"max_tokens":40`, `,"ignore_eos":true,"max_tokens":200`,
		`,"return_token_ids":true`, `,"logprobs":2`, `,"stop_token_ids":[300,301,302,303,304,305,306,307,308,309,` +
			`310,311,312,313,314,315,316,317,318,319],"max_tokens":300`,
	} {
		body := `{"model":"sim","prompt":"Where do the blocks go?","max_tokens":60,"temperature":0.5` + more
		_, want := post(t, s, "/v1/completions", body+"}")
		events := stream(t, s, "/v1/completions", body+`,"stream":true,"stream_options":{"include_usage":true}}`)
		texts, reasons := make([]string, len(want.Choices)), make([]string, len(want.Choices))
		var last answer
		for _, e := range events[:len(events)-1] {
			var c struct {
				Choices []struct {
					Index        int
					Text         string
					FinishReason *string `json:"finish_reason"`
				}
			}
			if err := json.Unmarshal([]byte(e), &c); err != nil {
				t.Fatal(err, e)
			}
			json.Unmarshal([]byte(e), &last)
			for _, choice := range c.Choices {
				texts[choice.Index] += choice.Text
				if choice.FinishReason != nil {
					reasons[choice.Index] += *choice.FinishReason
				}
			}
		}
		for i, choice := range want.Choices {
			if texts[i] != choice.Text || reasons[i] != choice.FinishReason {
				t.Errorf("%s, choice %d: streamed %q (%s), whole %q (%s)",
					more, i, texts[i], reasons[i], choice.Text, choice.FinishReason)
			}
		}
		if events[len(events)-1] != "[DONE]" || last.Usage.Completion != want.Usage.Completion ||
			last.Usage.Prompt != want.Usage.Prompt {
			t.Errorf("%s: usage %+v, want %+v; last %s", more, last.Usage, want.Usage, events[len(events)-1])
		}
	}
}

// The effect of each parameter on the answer.
func TestParameters(t *testing.T) {
	noLeaks(t)
	s := fastServer(t, core.Config{EOS: 5, EOSEvery: 10})
	ask := func(more string) *answer {
		t.Helper()
		status, a := post(t, s, "/v1/completions", `{"model":"sim","prompt":"hello blocks"`+more+`}`)
		if status != 200 {
			t.Fatalf("%s: %d %+v", more, status, a.Error)
		}
		return &a
	}
	if a := ask(`,"max_tokens":100`); a.Choices[0].FinishReason != "stop" || a.Usage.Completion == 100 {
		t.Errorf("EOS did not stop: %+v", a)
	}
	if a := ask(`,"max_tokens":100,"ignore_eos":true`); a.Choices[0].FinishReason != "length" ||
		a.Usage.Completion != 100 {
		t.Errorf("ignore_eos: %+v", a)
	}
	if a := ask(`,"min_tokens":50,"max_tokens":100`); a.Usage.Completion < 50 {
		t.Errorf("min_tokens: %d", a.Usage.Completion)
	}
	if a := ask(`,"ignore_eos":true`); a.Usage.Completion != 16 {
		t.Errorf("default limit: %d, want 16", a.Usage.Completion)
	}
	whole := ask(`,"ignore_eos":true,"max_tokens":40`).text()
	word := strings.Fields(whole)[9]
	a := ask(`,"ignore_eos":true,"max_tokens":40,"stop":["nowhere","` + word + `"]`)
	if before, _, _ := strings.Cut(whole, word); a.text() != before || a.Choices[0].StopReason != word {
		t.Errorf("stop %q: %q by %v, want %q", word, a.text(), a.Choices[0].StopReason, before)
	}
	if a := ask(`,"n":2,"seed":1,"ignore_eos":true`); len(a.Choices) != 2 ||
		a.Choices[0].Text == a.Choices[1].Text || a.Usage.Completion != 32 {
		t.Errorf("n: %+v", a)
	}
	salted, again := ask(`,"cache_salt":"a"`), ask(`,"cache_salt":"b"`)
	if salted.text() != again.text() {
		t.Error("a salt changed the text")
	}
	if a := ask(`,"return_token_ids":true,"max_tokens":3`); len(a.Choices[0].TokenIDs) != 3 ||
		len(a.Choices[0].PromptIDs) != a.Usage.Prompt {
		t.Errorf("return_token_ids: %+v", a.Choices[0])
	}
}

// The prompts of a batch are answered in order, each as if it were alone.
func TestBatchedPrompts(t *testing.T) {
	noLeaks(t)
	s := fastServer(t, core.Config{})
	_, a := post(t, s, "/v1/completions", `{"model":"sim","prompt":["one","two"],"max_tokens":5}`)
	for i, text := range []string{"one", "two"} {
		_, alone := post(t, s, "/v1/completions", `{"model":"sim","prompt":"`+text+`","max_tokens":5}`)
		if a.Choices[i].Text != alone.text() {
			t.Errorf("%s: %q in a batch, %q alone", text, a.Choices[i].Text, alone.text())
		}
	}
	_, ids := post(t, s, "/v1/completions", `{"model":"sim","prompt":[[300,301],[302]],"max_tokens":5}`)
	if len(ids.Choices) != 2 || ids.Usage.Prompt != 3 || ids.Usage.Completion != 10 {
		t.Errorf("ids: %+v", ids)
	}
}

func TestErrors(t *testing.T) {
	noLeaks(t)
	s := startServer(t, Options{ZeroLatency: true, Core: core.Config{MaxModelLen: 100}})
	for _, row := range []struct {
		path, body, want string
		status           int
	}{
		{"/v1/completions", `{"model":"nope","prompt":"x"}`, "NotFoundError", 404},
		{
			"/v1/chat/completions", `{"model":"nope","messages":[{"role":"user","content":"x"}]}`, "NotFoundError",
			404,
		},
		{"/v1/completions", `{"model":"sim","prompt":[]}`, "BadRequestError", 400},
		{"/v1/completions", `{"model":"sim","prompt":[1,2,"x"]}`, "Bad Request", 400},
		{"/v1/completions", `{"model":"sim","prompt":"x","max_tokens":"many"}`, "Bad Request", 400},
		{"/v1/completions", `{"model":"sim","prompt":"x","max_tokens":0}`, "BadRequestError", 400},
		{"/v1/completions", `{"model":"sim","prompt":[-5]}`, "BadRequestError", 400},
		{"/v1/completions", `{"model":"sim","prompt":"x"`, "Bad Request", 400},
		{"/v1/completions", `{"model":"sim","prompt":"x"} x`, "Bad Request", 400},
		{"/v1/completions", ``, "Bad Request", 400},
		{"/v1/completions", `[]`, "Bad Request", 400},
		{"/inference/v1/generate", `{"token_ids":[1]}`, "PermissionDeniedError", 403},
		{"/v1/chat/completions/render", `{}`, "PermissionDeniedError", 403},
		{"/tokenize", `{"model":"sim"}`, "Bad Request", 400},
	} {
		status, a := post(t, s, row.path, row.body)
		if status != row.status || a.Error.Type != row.want || a.Error.Code != row.status {
			t.Errorf("%s %s: %d %+v, want %d %s", row.path, row.body, status, a.Error, row.status, row.want)
		}
	}
	if s.HeldBlocks() != 0 || s.OpenRequests() != 0 {
		t.Error("blocks are held or requests are open after an error")
	}
}

// An answer is as long as the context has room. A prompt that leaves no room is refused, with the messages
// of two different checks.
func TestContextLimit(t *testing.T) {
	noLeaks(t)
	s := startServer(t, Options{ZeroLatency: true, Core: core.Config{MaxModelLen: 100}})
	for _, row := range []struct {
		prompt, status, made int
		want                 string
	}{
		{98, 200, 2, ""},
		{99, 200, 1, ""},
		{100, 400, 0, "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)"},
		{101, 400, 0, "However, your prompt contains at least 101 input tokens"},
		{102, 400, 0, "However, your prompt contains 102 input tokens"},
	} {
		status, _, raw := postRaw(t, s, "/v1/completions", completionBody(prompt(1, row.prompt), 5, "null"), nil)
		var a struct {
			Usage struct {
				Made int `json:"completion_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(raw), &a); err != nil || status != row.status ||
			a.Usage.Made != row.made || !strings.Contains(raw, row.want) {
			t.Errorf("%d tokens: %d %s, want %+v", row.prompt, status, raw, row)
		}
	}
}

// When a client disconnects, its request leaves the engine, streamed or not.
func TestClientLeaves(t *testing.T) {
	noLeaks(t)
	s := startServer(t, Options{Core: core.Config{Cost: core.Cost{D0: 0.005, T0: 0.005}}})
	for _, more := range []string{"", `"stream":true,`} {
		ctx, cancel := context.WithCancel(t.Context())
		body := strings.Replace(completionBody(prompt(1, 50), 1000, "null"), "{", "{"+more, 1)
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.URL()+"/v1/completions",
			strings.NewReader(body))
		failed := make(chan error, 1)
		go func() {
			resp, err := http.DefaultClient.Do(req)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			failed <- err
		}()
		eventually(t, "request in the engine", func() bool { return s.OpenRequests() == 1 })
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		eventually(t, "request gone", func() bool { return s.OpenRequests() == 0 && s.HeldBlocks() == 0 })
	}
}

// Several ranks at one address: the header selects the rank, the cores are separate, and labels name the
// rank.
func TestDataParallelRanks(t *testing.T) {
	noLeaks(t)
	s := startServer(t, Options{ZeroLatency: true, DPRanks: 2, EventsEndpoint: "tcp://127.0.0.1:0"})
	body := completionBody(prompt(1, 100), 1, askPrefill)
	for rank, id := range map[string]string{"0": s.EngineID(0), "1": s.EngineID(1)} {
		_, _, raw := postRaw(t, s, "/v1/completions", body, map[string]string{"X-data-parallel-rank": rank})
		if !strings.Contains(raw, `"remote_engine_id":"`+id+`"`) {
			t.Errorf("rank %s: %s", rank, raw)
		}
	}
	if status, _, raw := postRaw(t, s, "/v1/completions", body,
		map[string]string{"X-data-parallel-rank": "7"}); status != 400 {
		t.Errorf("rank 7: %d %s", status, raw)
	}
	if status, _, _ := postRaw(t, s, "/v1/completions", body,
		map[string]string{"X-data-parallel-rank": "first"}); status != 200 {
		t.Errorf("a rank that is not a number: %d", status)
	}
	_, _, text := getRaw(t, s, "/metrics")
	for _, want := range []string{
		`vllm:num_requests_running{engine="1",model_name="sim"}`, `num_gpu_blocks="16384"`,
		`kv_cache_size_tokens="131072"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	_, header, _ := postRaw(t, s, "/v1/completions", body,
		map[string]string{"endpoint-load-metrics-format": "text"})
	if got := header.Get("endpoint-load-metrics"); strings.Count(got, "kv_cache_usage_perc=") != 2 {
		t.Errorf("ORCA %q, want each name once per rank", got)
	}
	_, _, sources := getRaw(t, s, "/kv_event_sources")
	var by map[string]struct{ Endpoint string }
	if err := json.Unmarshal([]byte(sources), &by); err != nil || len(by) != 2 ||
		by["0"].Endpoint == by["1"].Endpoint {
		t.Errorf("event sources %s: %v", sources, err)
	}
}

func getRaw(t *testing.T, s *Server, path string) (int, http.Header, string) {
	t.Helper()
	resp, err := http.Get(s.URL() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(raw)
}

// Admin paths answer and are counted.
func TestAdminCalls(t *testing.T) {
	noLeaks(t)
	s := fastServer(t, core.Config{})
	post(t, s, "/reset_prefix_cache", "")
	postRaw(t, s, "/sleep", "", nil)
	getRaw(t, s, "/openapi.json")
	getRaw(t, s, "/health")
	want := map[string]int{"/reset_prefix_cache": 1, "/sleep": 1, "/openapi.json": 1}
	if got := s.AdminCalls(); !maps.Equal(got, want) {
		t.Errorf("admin calls %v, want %v", got, want)
	}
	if n := s.Calls()["/health"]; n != 1 {
		t.Errorf("%d calls of /health, want 1", n)
	}
}

// An older version has neither the new paths nor the new fields.
func TestOldVersion(t *testing.T) {
	noLeaks(t)
	s := startServer(t, Options{ZeroLatency: true, Version: "0.20.0"})
	if status, _, body := getRaw(t, s, "/kv_event_sources"); status != 404 || body != `{"detail":"Not Found"}` {
		t.Errorf("event sources: %d %s", status, body)
	}
	if status, _ := post(t, s, "/v1/chat/completions/render",
		`{"model":"sim","messages":[{"role":"user","content":"x"}]}`); status != 200 {
		t.Errorf("render: %d, want 200 without a flag", status)
	}
	_, a := post(t, s, "/v1/completions", completionBody(prompt(1, 20), 1, askPrefill))
	var keys map[string]any
	json.Unmarshal(a.Params, &keys)
	if got := slices.Sorted(maps.Keys(keys)); len(got) != 8 {
		t.Errorf("params %v, want 8 keys", got)
	}
	_, chat := post(t, s, "/v1/chat/completions", `{"model":"sim","messages":[{"role":"user","content":"x"}],`+
		`"kv_transfer_params":{"prompt_token_ids":[300,301,302,303,304,305]}}`)
	if chat.Usage.Prompt == 6 {
		t.Error("ids were reused")
	}
}

// Events are published before the answer of the request that caused them.
func TestEventsComeBeforeAnswers(t *testing.T) {
	noLeaks(t)
	seen := make(chan int, 100)
	s := startServer(t, Options{ZeroLatency: true, OnEvents: func(b *kvevents.EncodeBatch) {
		for _, e := range b.Events {
			seen <- len(e.Hashes)
		}
	}})
	for i := range 20 {
		post(t, s, "/v1/completions", completionBody(prompt(uint64(i+1), 100), 1, "null"))
		select {
		case n := <-seen:
			if n != 6 {
				t.Errorf("%d blocks stored, want 6", n)
			}
		default:
			t.Fatal("the answer came before the events")
		}
	}
}

// An idle connection is closed at the time when uvicorn would close it.
func TestIdleConnectionIsClosed(t *testing.T) {
	noLeaks(t)
	s := startServer(t, Options{ZeroLatency: true, KeepAlive: 50 * time.Millisecond})
	c := newRawClient(t, s)
	defer c.Close()
	if _, err := c.ask(rawRequest("/v1/completions", idBody(20, 1, ""))); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := c.br.ReadByte(); err != io.EOF {
		t.Errorf("read after the answer: %v, want EOF", err)
	}
	if took := time.Since(began); took < 40*time.Millisecond {
		t.Errorf("closed after %v", took)
	}
}

// Different ways to speak HTTP.
func TestHTTP(t *testing.T) {
	noLeaks(t)
	s := fastServer(t, core.Config{})
	for _, row := range []struct{ name, send, want string }{
		{"chunked body", "POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" +
			"5;x=y\r\n{\"pro\r\nc\r\nmpt\":\"hello\"\r\n1\r\n}\r\n0\r\nTrailer: x\r\n\r\n", `"count":5`},
		{
			"two at once", "GET /version HTTP/1.1\r\n\r\nGET /nothing HTTP/1.1\r\nconnection: Close\r\n\r\n",
			`Not Found`,
		},
		{"old", "GET /version HTTP/1.0\r\n\r\n", `{"version":"0.32.0"}`},
		{"query", "GET /health?a=b HTTP/1.1\r\nConnection: close\r\n\r\n", `200 OK`},
		{"waits for 100", "POST /tokenize HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 14\r\nConnection: " +
			"close\r\n\r\n{\"prompt\":\"h\"}", `"count":1`},
		{"no HTTP", "HELLO\r\n\r\n", `400 Bad Request`},
		{"bad length", "GET / HTTP/1.1\r\nContent-Length: -4\r\n\r\n", `400 Bad Request`},
		{"cut short", "POST /tokenize HTTP/1.1\r\nContent-Length: 14\r\n\r\n{", ``},
	} {
		c, err := dialServer(s)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, row.send)
		c.(*net.TCPConn).CloseWrite()
		got, err := io.ReadAll(c)
		if err != nil || !strings.Contains(string(got), row.want) || row.want == "" && len(got) > 0 {
			t.Errorf("%s: %q %v, want %s", row.name, got, err, row.want)
		}
		c.Close()
	}
}

// A server on in-memory connections and in fake time: a step of 20 ms takes exactly 20 ms.
func TestInMemoryAndFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		start := func() *Server {
			s, err := Start(Options{
				Listen: network.listen, Dial: network.dial, Core: core.Config{Cost: core.Cost{T0: 0.02, D0: 0.005}},
				TransferLatency: 3 * time.Millisecond,
			})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		p, d := start(), start()
		defer p.Close()
		defer d.Close()
		client := http.Client{Transport: &http.Transport{DialContext: network.dial}}
		defer client.CloseIdleConnections()
		ask := func(s *Server, body string) (a answer, took time.Duration) {
			began := time.Now()
			resp, err := client.Post(s.URL()+"/v1/completions", "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
				t.Fatal(err)
			}
			return a, time.Since(began)
		}
		a, took := ask(p, completionBody(prompt(1, 100), 1, askPrefill))
		if took != 20*time.Millisecond {
			t.Errorf("prefill took %v, want 20ms", took)
		}
		if _, took = ask(d, completionBody(prompt(1, 100), 5, string(a.Params))); took != 28*time.Millisecond {
			t.Errorf("decode took %v, want 3 + 5*5 ms", took)
		}
		time.Sleep(time.Second)
		if p.HeldBlocks() != 0 || d.HeldBlocks() != 0 {
			t.Error("blocks are still held")
		}
	})
}

// pipes is a network of net.Pipe connections.
type pipes struct {
	listeners chan map[string]*pipeListener // holds a single map
}

type pipeListener struct {
	addr  pipeAddr
	conns chan net.Conn
	done  chan struct{}
}

type pipeAddr string

func (a pipeAddr) Network() string { return "pipe" }
func (a pipeAddr) String() string  { return string(a) }

func newPipes() *pipes {
	p := &pipes{listeners: make(chan map[string]*pipeListener, 1)}
	p.listeners <- make(map[string]*pipeListener)
	return p
}

func (p *pipes) listen(_, _ string) (net.Listener, error) {
	all := <-p.listeners
	l := &pipeListener{
		addr: pipeAddr(fmt.Sprintf("sim:%d", len(all)+1)), conns: make(chan net.Conn), done: make(chan struct{}),
	}
	all[l.addr.String()] = l
	p.listeners <- all
	return l, nil
}

func (p *pipes) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	all := <-p.listeners
	l := all[addr]
	p.listeners <- all
	if l == nil {
		return nil, errors.New("refused")
	}
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.done:
		return nil, errors.New("refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.done); return nil }
func (l *pipeListener) Addr() net.Addr { return l.addr }

// The API key guards the same paths as in vLLM. The hook gets each accepted request.
func TestKeyAndHook(t *testing.T) {
	noLeaks(t)
	requests := make(chan Seen, 10)
	s := startServer(t, Options{ZeroLatency: true, APIKey: "k", OnRequest: func(r Seen) {
		r.Body = slices.Clone(r.Body)
		requests <- r
	}})
	for _, row := range []struct {
		path, key string
		status    int
	}{
		{"/v1/completions", "", 401},
		{"/v1/completions", "Bearer x", 401},
		{"/v1/completions", "Bearer k", 200},
		{"/v1/completions", "bearer k", 200},
		{"/tokenize", "", 200},
	} {
		status, _, raw := postRaw(t, s, row.path, `{"prompt":"x"}`,
			map[string]string{"Authorization": row.key, "X-Request-Id": "me"})
		if status != row.status {
			t.Errorf("%s with %q: %d %s, want %d", row.path, row.key, status, raw, row.status)
		}
	}
	close(requests)
	seen := slices.Collect(func(yield func(Seen) bool) {
		for r := range requests {
			yield(r)
		}
	})
	if len(seen) != 5 || seen[2].Authorization != "Bearer k" || seen[2].RequestID != "me" ||
		string(seen[4].Body) != `{"prompt":"x"}` {
		t.Errorf("seen %+v", seen)
	}
}

// Params in vllm_xargs reach the engine like any others, so a router has to remove them there too.
func TestHiddenParams(t *testing.T) {
	noLeaks(t)
	s := fastServer(t, core.Config{})
	status, a := post(t, s, "/v1/completions",
		`{"prompt":[300,301,302],"vllm_xargs":{"kv_transfer_params":{"do_remote_prefill":true}}}`)
	if status != 500 || s.Dead() == nil {
		t.Errorf("%d %+v, dead: %v", status, a.Error, s.Dead())
	}
}
