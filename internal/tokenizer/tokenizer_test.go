package tokenizer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeEngine answers as vLLM does. Its methods may run at the same time.
type fakeEngine struct {
	noRender int           // status that render answers instead, 0 for none
	refuse   bool          // render and tokenize answer 400
	noModel  bool          // both answer 404 about the model
	dead     bool          // the connection fails
	slow     time.Duration // of every answer

	mu    sync.Mutex
	asked []string // "path body"
}

func (e *fakeEngine) post(ctx context.Context, path string, body []byte) (int, []byte, error) {
	e.mu.Lock()
	e.asked = append(e.asked, path+" "+string(body))
	e.mu.Unlock()
	if !json.Valid(body) {
		return 0, nil, fmt.Errorf("asked with %s, which is not JSON", body)
	}
	if e.slow > 0 {
		select {
		case <-time.After(e.slow):
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		}
	}
	render := strings.HasSuffix(path, "/render")
	switch {
	case e.dead:
		return 0, nil, errors.New("connection refused")
	case render && e.noRender == http.StatusForbidden:
		return 403, []byte(`{"error":{"message":"Scale-out endpoints are disabled.",` +
			`"type":"PermissionDeniedError","param":null,"code":403}}`), nil
	case render && e.noRender > 0:
		return e.noRender, []byte(`{"detail":"Not Found"}`), nil
	case e.noModel:
		return 404, []byte(
			`{"error":{"message":"The model does not exist.","type":"NotFoundError","param":"model","code":404}}`,
		), nil
	case e.refuse:
		return 400, []byte(`{"error":{"message":"bad template","type":"BadRequestError","param":null,"code":400}}`),
			nil
	case path == "/v1/chat/completions/render":
		return 200,
			[]byte(`{"request_id":"chatcmpl-1","token_ids":[1,2,3],"sampling_params":{"stop_token_ids":[9]}}`), nil
	case path == "/v1/messages/render":
		return 200, []byte(`{"request_id":"chatcmpl-1","token_ids":[8,9,10,11],"sampling_params":{}}`), nil
	case path == "/v1/completions/render":
		return 200, []byte(`[{"request_id":"cmpl-1-0","token_ids":[4,5]}]`), nil
	case path == "/tokenize":
		return 200, []byte(`{"count":2,"max_model_len":4096,"tokens":[6,7],"token_strs":null}`), nil
	}
	return 404, []byte(`{"detail":"Not Found"}`), nil
}

// paths returns the requested paths since the last call, without the bodies.
func (e *fakeEngine) paths() (paths []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range e.asked {
		path, _, _ := strings.Cut(a, " ")
		paths = append(paths, path)
	}
	e.asked = nil
	return paths
}

func (e *fakeEngine) via() Via { return Via{Key: "p0", Post: e.post, Render: true} }

const (
	chatBody  = `{"model":"m","messages":[{"role":"user","content":"hello there"}],"temperature":0.5}`
	toolsBody = `{"model":"m","messages":[{"role":"user","content":"hello there"}],` +
		`"tools":[{"type":"function"}],"max_tokens":3}`
	chatRender = "/v1/chat/completions/render"
	compRender = "/v1/completions/render"
)

// usual are the options of a resolver. edit may change them.
func usual(changes ...func(o *Options)) Options {
	o := Options{
		RenderTimeout: 5 * time.Second, TokenizeTimeout: 5 * time.Second,
		CacheBytes: 64 << 20, CharsPerToken: 4, ChatTTL: time.Minute,
	}
	for _, change := range changes {
		change(&o)
	}
	return o
}

func TestSources(t *testing.T) {
	for _, tt := range []struct {
		name   string
		engine *fakeEngine
		body   string // "" for a completion
		want   Result
		paths  string
	}{
		{
			"render", &fakeEngine{}, chatBody,
			Result{IDs: []uint32{1, 2, 3}, Count: 3, Source: Render, Exact: true},
			chatRender,
		},
		{
			"render with tools", &fakeEngine{}, toolsBody,
			Result{IDs: []uint32{1, 2, 3}, Count: 3, Source: Render, Exact: true},
			chatRender,
		},
		{
			"tokenize", &fakeEngine{noRender: 403}, chatBody,
			Result{IDs: []uint32{6, 7}, Count: 2, Source: Tokenize, Exact: true},
			chatRender + " /tokenize",
		},
		{
			"old engine", &fakeEngine{noRender: 404}, chatBody,
			Result{IDs: []uint32{6, 7}, Count: 2, Source: Tokenize, Exact: true},
			chatRender + " /tokenize",
		},
		{
			"tokenize with tools is a hint", &fakeEngine{noRender: 403}, toolsBody,
			Result{IDs: []uint32{6, 7}, Count: 2, Source: Tokenize},
			chatRender + " /tokenize",
		},
		{
			"render fails", &fakeEngine{noRender: 500}, chatBody,
			Result{IDs: []uint32{6, 7}, Count: 2, Source: Tokenize, Exact: true},
			chatRender + " /tokenize",
		},
		{
			"a model the engine does not have", &fakeEngine{noModel: true}, chatBody,
			Result{Count: 10, Source: Estimate},
			chatRender + " /tokenize",
		},
		{
			"nobody there", &fakeEngine{dead: true}, chatBody,
			Result{Count: 10, Source: Estimate},
			chatRender + " /tokenize",
		},
		{
			"a completion rendered", &fakeEngine{}, "",
			Result{IDs: []uint32{4, 5}, Count: 2, Source: Render, Exact: true},
			compRender,
		},
		{
			"a completion tokenized", &fakeEngine{noRender: 403}, "",
			Result{IDs: []uint32{6, 7}, Count: 2, Source: Tokenize, Exact: true},
			compRender + " /tokenize",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := New(usual())
			var got Result
			if tt.body == "" {
				got = r.Completion(t.Context(), tt.engine.via(), "m", []byte(`"hello"`),
					[]byte(`{"model":"m","prompt":["x","hello"],"n":1}`))
			} else {
				got = r.Chat(t.Context(), tt.engine.via(), []byte(tt.body))
			}
			if tt.want.Source == Estimate {
				tt.want.Count = len(`[{"role":"user","content":"hello there"}]`) / 4
			}
			if !slices.Equal(got.IDs, tt.want.IDs) || got.Count != tt.want.Count || got.Source != tt.want.Source ||
				got.Exact != tt.want.Exact || got.Err != nil {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
			if paths := strings.Join(tt.engine.paths(), " "); paths != tt.paths {
				t.Errorf("asked %s, want %s", paths, tt.paths)
			}
		})
	}
}

func TestBodiesThatAreAsked(t *testing.T) {
	for _, tt := range []struct{ name, body, prompt, render, tokenize string }{
		{
			"chat", `{"model":"m","messages":[ ],"tools":[1],"stream":true,"documents":[2],"chat_template":null}`, "",
			`{"model":"m","messages":[ ],"tools":[1],"stream":true,"documents":[2],"chat_template":null}`,
			`{"model":"m","messages":[ ],"tools":[1]}`,
		},
		{
			"completion", `{"model":"other","prompt":["a","b"],"add_special_tokens":false,"n":1,"x":2,"suffix":null}`,
			`"b"`,
			`{"model":"m","prompt":"b","add_special_tokens":false,"x":2}`,
			`{"model":"m","prompt":"b","add_special_tokens":false}`,
		},
	} {
		e := &fakeEngine{noRender: 403}
		r := New(usual())
		if tt.prompt == "" {
			r.Chat(t.Context(), e.via(), []byte(tt.body))
		} else {
			r.Completion(t.Context(), e.via(), "m", []byte(tt.prompt), []byte(tt.body))
		}
		for i, want := range []string{tt.render, tt.tokenize} {
			if _, body, _ := strings.Cut(e.asked[i], " "); body != want {
				t.Errorf("%s: asked %s\nwant %s", tt.name, body, want)
			}
		}
	}
}

func TestExactOnlyWhenTokenizeKnowsEveryField(t *testing.T) {
	const user = `"messages":[{"role":"user","content":"x"}]`
	for body, want := range map[string]bool{
		`{` + user +
			`,"model":"m","temperature":1,"stop":["x"],"cache_salt":"s","vllm_xargs":{},"seed":null}`: true,
		`{` + user + `,"add_generation_prompt":true,"continue_final_message":false,"chat_template":"t",` +
			`"chat_template_kwargs":{},"add_special_tokens":false}`: true,
		`{` + user + `,"reasoning_effort":null}`:  true,
		`{` + user + `,"reasoning_effort":"low"}`: false, `{` + user + `,"documents":[]}`: false,
		`{` + user + `,"tool_choice":"none"}`:       false,
		`{` + user + `,"truncate_prompt_tokens":5}`: false, `{` + user + `,"never_heard_of":1}`: false,
		`{` + user + `,"response_format":{}}`:          false,
		`{` + user + `,"model":"openai/GPT-OSS-120b"}`: false, `{` + user + `,"mm_processor_kwargs":{}}`: false,
	} {
		e := &fakeEngine{noRender: 404}
		if got := New(usual()).Chat(t.Context(), e.via(), []byte(body)); got.Exact != want || got.IDs == nil {
			t.Errorf("%s: exact %v, want %v", body, got.Exact, want)
		}
	}
}

func TestRejected(t *testing.T) {
	e := &fakeEngine{refuse: true}
	r := New(usual())
	got := r.Chat(t.Context(), e.via(), []byte(chatBody))
	rejected, ok := errors.AsType[*Rejected](got.Err)
	if !ok || rejected.Status != 400 || !strings.Contains(string(rejected.Body), "bad template") ||
		got.Source != Estimate || got.IDs != nil {
		t.Errorf("render refuses: %+v", got)
	}
	if strings.Contains(got.Err.Error(), "template") {
		t.Errorf("the error quotes the engine: %v", got.Err)
	}
	via := e.via()
	via.Render = false
	if got := r.Chat(t.Context(), via, []byte(toolsBody)); got.Err != nil || got.Source != Estimate {
		t.Errorf("tokenize refuses what the chat path may take: %+v", got)
	}
	if got := r.Chat(t.Context(), via, []byte(chatBody)); got.Err == nil {
		t.Errorf("tokenize refuses what the chat path would refuse: %+v", got)
	}
	if e.paths(); len(r.cache.m) != 0 {
		t.Errorf("%d refusals are kept", len(r.cache.m))
	}
}

func TestCacheKey(t *testing.T) {
	base := `{"model":"m","messages":[{"role":"user","content":"x"}]`
	for _, tt := range []struct {
		more string
		hit  bool
	}{
		{`}`, true},
		{`,"temperature":0.1,"max_tokens":9,"stream":true,"seed":1}`, true},
		{`,"cache_salt":"s"}`, true},
		{`,"tools":[]}`, false},
		{`,"chat_template_kwargs":{"a":1}}`, false},
		{`,"never_heard_of":1}`, false},
		{`,"model":"n"}`, false},
		{`,"messages":[]}`, false},
	} {
		e, r := &fakeEngine{}, New(usual())
		r.Chat(t.Context(), e.via(), []byte(base+`}`))
		got := r.Chat(t.Context(), e.via(), []byte(base+tt.more))
		if hit := len(e.paths()) == 1; hit != tt.hit || (got.Source == Cache) != tt.hit || !got.Exact ||
			got.Count != 3 {
			t.Errorf("%s: hit %v (%+v), want %v", tt.more, hit, got, tt.hit)
		}
	}
	e, r := &fakeEngine{}, New(usual())
	for _, tt := range []struct{ model, prompt, body string }{
		{"m", `"a"`, `{}`}, {"n", `"a"`, `{}`}, {"m", `"b"`, `{}`}, {"m", `"a"`, `{"add_special_tokens":false}`},
	} {
		if got := r.Completion(t.Context(), e.via(), tt.model, []byte(tt.prompt),
			[]byte(tt.body)); got.Source != Render {
			t.Errorf("%v is taken for another: %+v", tt, got)
		}
	}
	if got := r.Chat(t.Context(), e.via(), []byte(`{"model":"m","prompt":"a"}`)); got.Source != Render {
		t.Errorf("a chat is taken for a completion: %+v", got)
	}
	const truncated = `{"truncate_prompt_tokens":1}`
	r.Completion(t.Context(), e.via(), "m", []byte(`"a"`), []byte(truncated))
	if got := r.Completion(t.Context(), e.via(), "m", []byte(`"a"`), []byte(truncated)); got.Source != Render {
		t.Errorf("ids that depend on max_tokens are kept: %+v", got)
	}
}

func TestAHintGivesWayToRender(t *testing.T) {
	old := &fakeEngine{noRender: 404}
	newer := &fakeEngine{}
	r := New(usual())
	if got := r.Chat(t.Context(), old.via(), []byte(toolsBody)); got.Exact || got.Source != Tokenize {
		t.Fatalf("%+v", got)
	}
	if got := r.Chat(t.Context(), old.via(), []byte(toolsBody)); got.Source != Cache || got.Exact {
		t.Errorf("the hint is not kept: %+v", got)
	}
	via := newer.via()
	via.Key = "p1"
	if got := r.Chat(t.Context(), via, []byte(toolsBody)); !got.Exact || got.Source != Render {
		t.Errorf("the hint is taken where render works: %+v", got)
	}
}

func TestCacheIsBounded(t *testing.T) {
	entryBytes := (&entry{result: Result{IDs: make([]uint32, 2)}}).bytes()
	e, r := &fakeEngine{}, New(usual(func(o *Options) { o.CacheBytes = 3 * entryBytes }))
	ask := func(i int) Source {
		return r.Completion(t.Context(), e.via(), "m", fmt.Appendf(nil, `"%d"`, i), []byte(`{}`)).Source
	}
	for i := range 3 {
		ask(i)
	}
	if ask(0) != Cache { // 0 is now younger than 1
		t.Fatal("0 is not kept")
	}
	ask(3)
	if ask(0) != Cache || ask(2) != Cache || ask(3) != Cache || len(r.cache.m) != 3 || r.cache.room != 0 ||
		r.cache.order.Len() != 3 {
		t.Errorf("%d entries, %d bytes left", len(r.cache.m), r.cache.room)
	}
	if ask(1) != Render {
		t.Error("the oldest is still there")
	}
	none := New(usual(func(o *Options) { o.CacheBytes = 0 }))
	none.Chat(t.Context(), e.via(), []byte(chatBody))
	if got := none.Chat(t.Context(), e.via(), []byte(chatBody)); got.Source != Render {
		t.Errorf("without a cache: %+v", got)
	}
	long := New(usual(func(o *Options) { o.maxTokens = 2 }))
	if got := long.Chat(t.Context(), e.via(), []byte(chatBody)); got.IDs != nil || got.Count != 3 ||
		got.Exact || got.Source != Render {
		t.Errorf("more ids than are kept: %+v", got)
	}
}

func TestMissingIsRememberedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{noRender: 403}
		r := New(usual(func(o *Options) { o.remember, o.CacheBytes = time.Minute, 0 }))
		ask := func(key string) string {
			via := e.via()
			via.Key = key
			r.Chat(t.Context(), via, []byte(chatBody))
			return strings.Join(e.paths(), " ")
		}
		if got := ask("p0"); got != chatRender+" /tokenize" {
			t.Errorf("first: %s", got)
		}
		time.Sleep(time.Minute - 1)
		if got := ask("p0"); got != "/tokenize" {
			t.Errorf("within the minute: %s", got)
		}
		if got := ask("p1"); got != chatRender+" /tokenize" {
			t.Errorf("another engine: %s", got)
		}
		time.Sleep(time.Nanosecond)
		if got := ask("p0"); got != chatRender+" /tokenize" {
			t.Errorf("after the minute: %s", got)
		}
		e.noRender, e.noModel = 0, true
		if ask("p2"); ask("p2") != chatRender+" /tokenize" {
			t.Errorf("an unknown model is taken for an endpoint that is not there")
		}
	})
}

// An engine that did not answer in time gets no request on another path.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{slow: time.Hour}
		r := New(usual(func(o *Options) { o.RenderTimeout, o.TokenizeTimeout = 2*time.Second, 3*time.Second }))
		for _, c := range []struct {
			render bool
			took   time.Duration
		}{{true, 2 * time.Second}, {false, 3 * time.Second}} {
			via := e.via()
			via.Render = c.render
			start := time.Now()
			got := r.Chat(t.Context(), via, []byte(chatBody))
			took := time.Since(start)
			if took != c.took || got.Source != Estimate || got.Err != nil || got.Count == 0 {
				t.Errorf("%+v after %v, want an estimate after %v", got, took, c.took)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		got := r.Chat(ctx, e.via(), []byte(chatBody))
		if took := time.Since(start); took != time.Second || !errors.Is(got.Err, context.DeadlineExceeded) ||
			got.Count == 0 {
			t.Errorf("%+v after %v, want the caller's deadline after 1 s", got, took)
		}
	})
}

func TestTheSamePromptIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, r := &fakeEngine{slow: time.Second}, New(usual(func(o *Options) { o.CacheBytes = 0 }))
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				body := strings.Replace(chatBody, "0.5", fmt.Sprint(i), 1) // temperature: not part of the prompt
				if got := r.Chat(t.Context(), e.via(), []byte(body)); !got.Exact || got.Count != 3 {
					t.Errorf("%+v", got)
				}
			})
		}
		start := time.Now()
		wg.Wait()
		if got := len(e.paths()); got != 1 || time.Since(start) != time.Second {
			t.Errorf("asked %d times in %v", got, time.Since(start))
		}
		if len(r.calls.m) != 0 {
			t.Errorf("%d calls are left", len(r.calls.m))
		}
	})
}

func TestWhoLeavesDoesNotTakeTheOthersAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, r := &fakeEngine{slow: time.Second}, New(usual())
		leaving, leave := context.WithCancel(t.Context())
		impatient, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		start := time.Now()
		wg.Go(func() { // asks first, and leaves
			if got := r.Chat(leaving, e.via(), []byte(chatBody)); !errors.Is(got.Err, context.Canceled) {
				t.Errorf("the first: %+v", got)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if got := r.Chat(impatient, e.via(), []byte(chatBody)); !errors.Is(got.Err, context.DeadlineExceeded) ||
				time.Since(start) != 300*time.Millisecond {
				t.Errorf("the second: %+v after %v", got, time.Since(start))
			}
		})
		wg.Go(func() { // asks again when the first has left
			got := r.Chat(t.Context(), e.via(), []byte(chatBody))
			if !got.Exact || time.Since(start) != 1500*time.Millisecond {
				t.Errorf("the third: %+v after %v", got, time.Since(start))
			}
		})
		time.Sleep(500 * time.Millisecond)
		leave()
		wg.Wait()
		if got := len(e.paths()); got != 2 {
			t.Errorf("asked %d times, want 2", got)
		}
	})
}

// A resolver has no default numbers: a missing required number is an error at once.
func TestOptionsAreSaidInFull(t *testing.T) {
	for name, forget := range map[string]func(o *Options){
		"render": func(o *Options) { o.RenderTimeout = 0 }, "tokenize": func(o *Options) { o.TokenizeTimeout = 0 },
		"chars":     func(o *Options) { o.CharsPerToken = 0 },
		"no number": func(o *Options) { o.CharsPerToken = math.NaN() },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("was accepted")
				}
			}()
			New(usual(forget))
		})
	}
}

func TestEstimate(t *testing.T) {
	for _, tt := range []struct {
		perToken float64
		prompt   string
		want     int
	}{{4, `"123456"`, 2}, {2, `"123456"`, 4}, {4, `"a"`, 1}} {
		got := New(usual(func(o *Options) { o.CharsPerToken = tt.perToken })).Completion(t.Context(), Via{}, "m",
			[]byte(tt.prompt), []byte(`{}`))
		if got.Count != tt.want || got.Source != Estimate || got.Exact || got.Err != nil {
			t.Errorf("%v bytes a token of %s: %+v, want %d", tt.perToken, tt.prompt, got, tt.want)
		}
	}
}

func TestOddReplies(t *testing.T) {
	for _, reply := range []string{
		``, `{`, `[]`, `{}`, `null`, `{"token_ids":null}`, `{"token_ids":[]}`, `{"token_ids":["a"]}`,
		`{"token_ids":[-1]}`,
		`[{"token_ids":[1]},{"token_ids":[2]}]`, `{"token_ids":[1]}x`, `{"tokens":[1]}`,
	} {
		r := New(usual())
		via := Via{Key: "p", Render: true, Post: func(_ context.Context, path string,
			_ []byte,
		) (int, []byte, error) {
			if path == "/tokenize" {
				return 500, nil, nil
			}
			return 200, []byte(reply), nil
		}}
		if got := r.Chat(t.Context(), via, []byte(chatBody)); got.Source != Estimate || got.IDs != nil {
			t.Errorf("reply %s: %+v", reply, got)
		}
	}
}

func FuzzFindIDs(f *testing.F) {
	f.Add([]byte(`{"token_ids":[1,2]}`))
	f.Add([]byte(`[{"a":{},"token_ids":[4294967295]}]`))
	f.Fuzz(func(t *testing.T, reply []byte) {
		if ids, ok := findIDs(reply, "token_ids"); ok && len(ids) > len(reply) {
			t.Fatalf("%d ids of %q", len(ids), reply)
		}
	})
}

func BenchmarkCacheHit(b *testing.B) {
	e, r := &fakeEngine{}, New(usual())
	body := []byte(strings.Replace(chatBody, "hello", strings.Repeat("hello ", 50_000), 1))
	r.Chat(b.Context(), e.via(), body)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if r.Chat(b.Context(), e.via(), body).Source != Cache {
			b.Fatal("missed")
		}
	}
}

// Only render knows what the engine makes of messages and responses, and what shapes the answer alone does
// not ask again.
func TestConversations(t *testing.T) {
	const path, body = "/v1/messages",
		`{"model":"m","max_tokens":4,"messages":[{"role":"user","content":"hello there"}]}`
	engine := &fakeEngine{}
	r := New(usual())
	want := Result{IDs: []uint32{8, 9, 10, 11}, Count: 4, Source: Render, Exact: true}
	if got := r.Conversation(t.Context(), engine.via(), path,
		[]byte(body)); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if asked := engine.paths(); !slices.Equal(asked, []string{"/v1/messages/render"}) {
		t.Errorf("asked %v", asked)
	}
	again := strings.Replace(body, `"max_tokens":4`,
		`"max_tokens":9,"temperature":1,"stop_sequences":["x"],"stream":true`, 1)
	if got := r.Conversation(t.Context(), engine.via(), path, []byte(again)); got.Source != Cache || !got.Exact {
		t.Errorf("%+v, want the kept ids", got)
	}
	for _, other := range []string{
		strings.Replace(body, "hello", "hullo", 1), strings.Replace(body, `"model"`, `"system":"s","model"`, 1),
	} {
		if got := r.Conversation(t.Context(), engine.via(), path, []byte(other)); got.Source != Render {
			t.Errorf("%s: %+v, want another question", other, got)
		}
	}
	engine.noRender, engine.asked = 403, nil
	if got := New(usual()).Conversation(t.Context(), engine.via(), path, []byte(body)); got.Source != Estimate ||
		got.Exact || got.Err != nil {
		t.Errorf("%+v, want an estimate", got)
	}
	if asked := engine.paths(); !slices.Equal(asked, []string{"/v1/messages/render"}) {
		t.Errorf("asked %v", asked)
	}
}
