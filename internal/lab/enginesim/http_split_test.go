package enginesim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/rawjson"
)

// answer has the fields of an answer that tests read.
type answer struct {
	ID      string
	Choices []struct {
		Text         string
		Message      struct{ Content string }
		FinishReason string   `json:"finish_reason"`
		StopReason   any      `json:"stop_reason"`
		TokenIDs     []uint32 `json:"token_ids"`
		PromptIDs    []uint32 `json:"prompt_token_ids"`
	}
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	PromptIDs []uint32        `json:"prompt_token_ids"`
	Params    json.RawMessage `json:"kv_transfer_params"`
	Error     struct {
		Message, Type string
		Code          int
	}
	Detail string
}

func (a *answer) text() string {
	if len(a.Choices) == 0 {
		return ""
	}
	return a.Choices[0].Text + a.Choices[0].Message.Content
}

// post sends a JSON body and reads the answer, whatever its status.
func post(t *testing.T, s *Server, path, body string) (int, answer) {
	t.Helper()
	status, _, raw := postRaw(t, s, path, body, nil)
	var a answer
	if err := json.Unmarshal([]byte(raw), &a); err != nil {
		t.Fatalf("%s: %v in %q", path, err, raw)
	}
	return status, a
}

func postRaw(
	t *testing.T, s *Server, path, body string, header map[string]string,
) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
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

const askPrefill = `{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,` +
	`"remote_block_ids":null,"remote_host":null,"remote_port":null}`

func completionBody(ids []uint32, maxTokens int, params string) string {
	return fmt.Sprintf(`{"model":"sim","prompt":%s,"max_tokens":%d,"temperature":0,"kv_transfer_params":%s}`,
		rawjson.AppendIDs(nil, ids), maxTokens, params)
}

// prefillLeg runs leg 1 and returns P's params for D.
func prefillLeg(t *testing.T, p *Server, ids []uint32) string {
	t.Helper()
	status, a := post(t, p, "/v1/completions", completionBody(ids, 1, askPrefill))
	if status != 200 || string(a.Params) == "null" {
		t.Fatalf("prefill leg: %d %+v", status, a)
	}
	return string(a.Params)
}

// eventually waits for an effect of another goroutine.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not in 5 s: %s", what)
}

func fastServer(t *testing.T, c core.Config) *Server {
	return startServer(t,
		Options{ZeroLatency: true, ScaleOut: true, HandshakeTimeout: 50 * time.Millisecond, Core: c})
}

// A request split over two servers on real sockets has the same text as without a split, and no block
// stays held.
func TestServedSplitIsExact(t *testing.T) {
	noLeaks(t)
	p := fastServer(t, core.Config{})
	d := fastServer(t, core.Config{})
	whole := fastServer(t, core.Config{})
	for i, n := range []int{1, 15, 16, 17, 100, 1000, 3000} {
		ids := prompt(uint64(i+1), n)
		_, want := post(t, whole, "/v1/completions", completionBody(ids, 20, "null"))
		params := prefillLeg(t, p, ids)
		status, got := post(t, d, "/v1/completions", completionBody(ids, 20, params))
		if status != 200 || got.text() != want.text() || got.text() == "" {
			t.Errorf("%d tokens: %d %q, want %q", n, status, got.text(), want.text())
		}
		if got.Usage != want.Usage {
			t.Errorf("%d tokens: usage %+v, want %+v", n, got.Usage, want.Usage)
		}
	}
	eventually(t, "all blocks free", func() bool { return p.HeldBlocks() == 0 && d.HeldBlocks() == 0 })
	if n := d.Stats()[0].NixlTransfers; n != 7 {
		t.Errorf("%d transfers, want 7", n)
	}
}

// A chat is split the same way: leg 1 is a completion of its ids, leg 2 the chat with these ids in its
// params.
func TestChatSplitReusesIDs(t *testing.T) {
	noLeaks(t)
	p, d := fastServer(t, core.Config{}), fastServer(t, core.Config{})
	const turns = `"messages":[{"role":"system","content":"You answer briefly."},{"role":"user",` +
		`"content":[{"type":"text","text":"Where do the blocks go?"}]}]`
	_, want := post(t, p, "/v1/chat/completions",
		`{"model":"sim","max_tokens":12,"return_token_ids":true,`+turns+`}`)
	ids := want.PromptIDs
	_, tok := post(t, p, "/tokenize", `{"model":"sim",`+turns+`}`)
	_ = tok
	_, rendered := post2[struct {
		IDs []uint32 `json:"token_ids"`
	}](t, p, "/v1/chat/completions/render", `{"model":"sim",`+turns+`}`)
	if fmt.Sprint(rendered.IDs) != fmt.Sprint(ids) || len(ids) < 10 {
		t.Fatalf("render returned %v, the answer has %v", rendered.IDs, ids)
	}
	params := strings.TrimSuffix(prefillLeg(t, p, ids), "}") + `,"prompt_token_ids":` +
		string(rawjson.AppendIDs(nil, ids)) + `}`
	// Other messages with the same ids: the engine uses the ids.
	status, got := post(t, d, "/v1/chat/completions", `{"model":"sim","max_tokens":12,`+
		`"messages":[{"role":"user","content":"something else"}],"kv_transfer_params":`+params+`}`)
	if status != 200 || got.text() != want.text() || got.Usage.Prompt != len(ids) {
		t.Errorf("%d %q of %d tokens, want %q of %d", status, got.text(), got.Usage.Prompt, want.text(), len(ids))
	}
	for _, bad := range []string{`[]`, `[-1]`, `["x"]`, `[99999999]`, `7`} {
		status, got := post(t, d, "/v1/chat/completions",
			`{"model":"sim","messages":[],"kv_transfer_params":{"prompt_token_ids":`+bad+`}}`)
		if status != 400 {
			t.Errorf("prompt_token_ids %s: %d %+v, want 400", bad, status, got)
		}
	}
}

func post2[T any](t *testing.T, s *Server, path, body string) (int, T) {
	t.Helper()
	status, _, raw := postRaw(t, s, path, body, nil)
	var v T
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		t.Fatalf("%s: %v in %q", path, err, raw)
	}
	return status, v
}

// Params are used twice, after P has reused the blocks. The answer has status 200 with a wrong text, and
// it poisons D's cache for the plain prompt.
func TestParamsUsedTwicePoisonDecode(t *testing.T) {
	noLeaks(t)
	p := fastServer(t, core.Config{Blocks: 40})
	d := fastServer(t, core.Config{})
	d2 := fastServer(t, core.Config{})
	ids := prompt(1, 200)
	params := prefillLeg(t, p, ids)
	_, want := post(t, d, "/v1/completions", completionBody(ids, 8, params))
	for i := range 6 {
		post(t, p, "/v1/completions", completionBody(prompt(uint64(10+i), 300), 2, "null"))
	}
	status, stale := post(t, d2, "/v1/completions", completionBody(ids, 8, params))
	if status != 200 || stale.text() == want.text() {
		t.Errorf("second use: %d %q, want 200 and a text other than the right one, %q",
			status, stale.text(), want.text())
	}
	if _, plain := post(t, d2, "/v1/completions", completionBody(ids, 8, "null")); plain.text() == want.text() {
		t.Error("the plain prompt got the right answer: D's cache should be poisoned")
	}
	post(t, p, "/v1/completions", completionBody(prompt(9, 4), 1, "null"))
	if p.Stats()[0].NixlNotifiedLate == 0 {
		t.Error("P did not notice a read after the end of the lease")
	}
}

// Two prompts of different lengths with the same params object crash the decode engine.
func TestBatchWithOneParamsObjectKillsDecode(t *testing.T) {
	noLeaks(t)
	p, d := fastServer(t, core.Config{}), fastServer(t, core.Config{})
	batch := fmt.Sprintf("[%s,%s]", rawjson.AppendIDs(nil, prompt(1, 40)), rawjson.AppendIDs(nil, prompt(2, 90)))
	body := `{"model":"sim","prompt":` + batch + `,"max_tokens":1,"kv_transfer_params":`
	_, a := post(t, p, "/v1/completions", body+askPrefill+"}")
	if len(a.Choices) != 2 || !strings.Contains(string(a.Params), `"remote_num_tokens":40`) {
		t.Fatalf("leg 1: %d choices, %s; want the first prompt's params", len(a.Choices), a.Params)
	}
	status, dead := post(t, d, "/v1/completions", body+string(a.Params)+"}")
	if status != 500 || !strings.HasPrefix(dead.Error.Message, "EngineCore encountered an issue") {
		t.Errorf("leg 2: %d %+v, want the death of EngineCore", status, dead.Error)
	}
	if _, err := http.Get(d.URL() + "/health"); err == nil || d.Dead() == nil {
		t.Error("the server still answers")
	}
}

// With equal lengths nothing crashes: status 200, and the second text is wrong, because it is based on the
// first prompt's KV cache. Later prompts with the same prefix are wrong too.
func TestBatchOfEqualLengthsIsWrong(t *testing.T) {
	noLeaks(t)
	p := fastServer(t, core.Config{})
	d := fastServer(t, core.Config{})
	whole := fastServer(t, core.Config{})
	batch := fmt.Sprintf("[%s,%s]", rawjson.AppendIDs(nil, prompt(1, 90)), rawjson.AppendIDs(nil, prompt(2, 90)))
	body := `{"model":"sim","prompt":` + batch + `,"max_tokens":8,"temperature":0,"kv_transfer_params":`
	_, first := post(t, p, "/v1/completions",
		strings.Replace(body, `"max_tokens":8`, `"max_tokens":1`, 1)+askPrefill+"}")
	_, want := post(t, whole, "/v1/completions", body+"null}")
	status, got := post(t, d, "/v1/completions", body+string(first.Params)+"}")
	if status != 200 || len(got.Choices) != 2 || got.Choices[0].Text != want.Choices[0].Text ||
		got.Choices[1].Text == want.Choices[1].Text {
		t.Errorf("leg 2: %d %+v, want the first text of %+v, and a second text that differs",
			status, got.Choices, want.Choices)
	}
	if _, plain := post(t, d, "/v1/completions",
		completionBody(prompt(2, 90), 8, "null")); plain.text() == want.Choices[1].Text {
		t.Error("the second prompt alone got the right answer: D's cache should be poisoned")
	}
}

// An abort, with either form of the id, does not end a lease: the lease expires.
func TestAbortKeepsLease(t *testing.T) {
	noLeaks(t)
	p := fastServer(t, core.Config{Lease: 200 * time.Millisecond})
	params := prefillLeg(t, p, prompt(1, 100))
	var told struct {
		ID string `json:"remote_request_id"`
	}
	if err := json.Unmarshal([]byte(params), &told); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{told.ID, told.ID[:strings.LastIndexByte(told.ID, '-')]} {
		if status, _, _ := postRaw(t, p, "/inference/v1/abort_requests", `{"request_ids":["`+id+`"]}`,
			nil); status != 200 || p.HeldBlocks() != 7 {
			t.Errorf("abort of %s: status %d, P holds %d blocks, want 7", id, status, p.HeldBlocks())
		}
	}
	eventually(t, "lease over", func() bool { return p.HeldBlocks() == 0 })
}

// Params without an address hang the request for ever. When the client disconnects, the engine dies.
func TestParamsWithoutAddressHang(t *testing.T) {
	noLeaks(t)
	d := fastServer(t, core.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	body := completionBody(prompt(1, 100), 4, `{"do_remote_prefill":true,"remote_block_ids":[[1,2,3,4,5,6,7]],`+
		`"remote_engine_id":"x","remote_request_id":"y","remote_host":"z"}`)
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, d.URL()+"/v1/completions",
		strings.NewReader(body))
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		t.Fatalf("answered with %d", resp.StatusCode)
	}
	eventually(t, "the engine is dead", func() bool { return d.Dead() != nil })
}

// With a peer that never answered, a load fails after the handshake time-out. With a peer that answered
// before and is gone, it fails at once. D survives both.
func TestPeerIsGone(t *testing.T) {
	noLeaks(t)
	p := fastServer(t, core.Config{})
	d := startServer(t, Options{ZeroLatency: true, HandshakeTimeout: 100 * time.Millisecond})
	ids := prompt(1, 100)
	unknown := strings.Replace(prefillLeg(t, p, ids), `"remote_engine_id":"`, `"remote_engine_id":"not-`, 1)
	began := time.Now()
	status, a := post(t, d, "/v1/completions", completionBody(ids, 4, unknown))
	if took := time.Since(began); status != 500 || took < 100*time.Millisecond ||
		a.Error.Message != "Internal server error" {
		t.Errorf("unknown engine: %d %+v after %v", status, a.Error, took)
	}
	post(t, d, "/v1/completions", completionBody(ids, 4, prefillLeg(t, p, ids)))
	last := prefillLeg(t, p, prompt(2, 100))
	p.Close()
	began = time.Now()
	status, _, raw := postRaw(t, d, "/v1/completions",
		strings.Replace(completionBody(prompt(2, 100), 4, last), "{", `{"stream":true,`, 1), nil)
	const want = "data: {\"error\": {\"message\": \"Internal server error\", \"type\": " +
		"\"InternalServerError\", \"param\": null, \"code\": 500}}\n\ndata: [DONE]\n\n"
	if took := time.Since(began); status != 200 || raw != want || took > 90*time.Millisecond {
		t.Errorf("dead peer: %d %q after %v", status, raw, took)
	}
	if status, a := post(t, d, "/v1/completions", completionBody(ids, 4, "null")); status != 200 {
		t.Errorf("afterwards: %d %+v", status, a)
	}
}

// A lease that will not be used is given back by sending its params to D in a request that D's API layer
// refuses.
func TestRefusedRequestGivesLeaseBack(t *testing.T) {
	noLeaks(t)
	p, d := fastServer(t, core.Config{}), fastServer(t, core.Config{})
	for _, refused := range []string{
		`{"model":"no-such-model","prompt":[1],"max_tokens":1,"kv_transfer_params":%s}`,
		`{"model":"sim","prompt":[1],"max_tokens":0,"kv_transfer_params":%s}`,
	} {
		params := prefillLeg(t, p, prompt(1, 100))
		if p.HeldBlocks() != 7 {
			t.Fatalf("P holds %d blocks, want 7", p.HeldBlocks())
		}
		status, _ := post(t, d, "/v1/completions", fmt.Sprintf(refused, params))
		if status != 404 && status != 400 {
			t.Errorf("status %d", status)
		}
		eventually(t, "P free", func() bool { return p.HeldBlocks() == 0 })
	}
}

// An unused lease expires by itself.
func TestLeaseEnds(t *testing.T) {
	noLeaks(t)
	p := fastServer(t, core.Config{Lease: 50 * time.Millisecond})
	prefillLeg(t, p, prompt(1, 100))
	if p.HeldBlocks() != 7 {
		t.Fatalf("P holds %d blocks, want 7", p.HeldBlocks())
	}
	eventually(t, "lease over", func() bool { return p.HeldBlocks() == 0 })
	if n := p.Stats()[0].NixlExpired; n != 1 {
		t.Errorf("%d expired, want 1", n)
	}
}

// Many concurrent splits; a third of the clients disconnect at some time. The texts are right, nothing
// crashes, and no block is held after the leases have ended.
func TestManySplitsSomeAbandoned(t *testing.T) {
	noLeaks(t)
	cost := core.Cost{T0: 0.001, D0: 0.0005}
	start := func(c core.Config) *Server {
		c.Blocks, c.Lease = 600, splitLease
		return startServer(t, Options{Core: c, TransferLatency: time.Millisecond})
	}
	p := start(core.Config{Cost: cost})
	d := start(core.Config{Cost: cost})
	whole := startServer(t, Options{ZeroLatency: true})
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 12 {
				ids := prompt(uint64(1+worker*100+i%5), 50+worker*7+i)
				ctx, cancel := context.WithCancel(t.Context())
				if i%3 == 0 {
					time.AfterFunc(time.Duration(worker+i)*500*time.Microsecond, cancel)
				}
				if err := splitOnce(ctx, p, d, whole, ids); err != nil && ctx.Err() == nil {
					t.Errorf("worker %d, request %d: %v", worker, i, err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	eventually(t, "all blocks free", func() bool { return p.HeldBlocks() == 0 && d.HeldBlocks() == 0 })
	if p.Dead() != nil || d.Dead() != nil || p.OpenRequests()+d.OpenRequests() != 0 {
		t.Errorf("dead: %v, %v; open: %d, %d", p.Dead(), d.Dead(), p.OpenRequests(), d.OpenRequests())
	}
}

// splitLease is the lease of TestManySplitsSomeAbandoned. A busy machine can make a split take longer.
const splitLease = 500 * time.Millisecond

// splitOnce runs both legs and compares the text with the un-split answer, unless the lease may have ended.
func splitOnce(ctx context.Context, p, d, whole *Server, ids []uint32) error {
	leg := func(s *Server, maxTokens int, params string) (a answer, err error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL()+"/v1/completions",
			strings.NewReader(completionBody(ids, maxTokens, params)))
		if err != nil {
			return a, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return a, err
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&a); err != nil || resp.StatusCode != 200 {
			return a, fmt.Errorf("status %d: %+v %w", resp.StatusCode, a.Error, err)
		}
		return a, nil
	}
	want, err := leg(whole, 6, "null")
	if err != nil {
		return err
	}
	began := time.Now()
	first, err := leg(p, 1, askPrefill)
	if err != nil {
		return err
	}
	got, err := leg(d, 6, string(first.Params))
	if time.Since(began) > splitLease {
		return err // the lease may have ended; then the text may be wrong, as with vLLM
	}
	if err == nil && got.text() != want.text() {
		err = fmt.Errorf("%q, want %q", got.text(), want.text())
	}
	return err
}
