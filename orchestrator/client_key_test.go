package orchestrator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/keys"
)

// teams is a configuration with the keys of two teams.
func teams(c *config.Config) {
	c.Log.Access = true
	c.Keys = []config.Key{
		{Name: "team-a", Secret: config.Secret{Value: "hush-a"}},
		{Name: "team-b", Secret: config.Secret{Value: "hush-b"}, Tenant: "b"},
	}
}

// shows adds a secret to a request.
func (p prompt) shows(secret string) prompt {
	p.header = http.Header{"Authorization": {"Bearer " + secret}}
	return p
}

// metrics is the page of metrics.
func (w *world) metrics() string {
	w.t.Helper()
	return w.get("admin", "/metrics").raw
}

// The name of a key stands wherever a request is told of, and its secret nowhere.
func TestNameOfAKeyIsShown(t *testing.T) {
	var log bytes.Buffer
	logs := func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) }
	in(t, setup{config: func(c *config.Config) { longAnswers(c); teams(c) }, options: logs}, func(w *world) {
		p := chat(true).shows("hush-a")
		w.exact(p, w.ask(p))
		long := longPrompt(1500).shows("hush-b")
		running := w.begin(long)
		time.Sleep(time.Second)
		raw, rows := w.inFlight()
		if len(rows) != 1 || rows[0].Key != "team-b" {
			t.Errorf("in flight is %s", raw)
		}
		running.end()
		w.ask(chat(false).shows("hush-c"))

		var records []struct{ Key string }
		decisions := w.get("admin", "/debug/decisions").raw
		if err := json.Unmarshal([]byte(decisions), &records); err != nil || len(records) != 2 ||
			records[0].Key != "team-b" || records[1].Key != "team-a" {
			t.Errorf("%v, records %s", err, decisions)
		}
		metrics := w.metrics()
		for _, want := range []string{
			`tandem_key_requests_total{key="team-a",outcome="ok"} 1`,
			`tandem_key_requests_total{key="team-b",outcome=`,
		} {
			if !strings.Contains(metrics, want) {
				t.Errorf("metrics do not have %s", want)
			}
		}
		if n := strings.Count(metrics, "\ntandem_key_requests_total"); n != 2 {
			t.Errorf("%d series by key", n)
		}
		for _, want := range []string{"key=team-a", "key=team-b", "outcome=unauthorised"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not have %s: %s", want, &log)
			}
		}
		if all := metrics + log.String() + decisions + raw; strings.Contains(all, "hush") {
			t.Error("a secret is shown")
		}
	})
}

// A key that is removed is refused at once, and its series goes; the others keep theirs.
func TestARemovedKeyIsForgotten(t *testing.T) {
	in(t, setup{config: teams}, func(w *world) {
		for _, secret := range []string{"hush-a", "hush-b"} {
			p := chat(false).shows(secret)
			w.exact(p, w.ask(p))
		}
		next := *w.cfg
		next.Keys = next.Keys[1:]
		if err := w.o.Apply(&next); err != nil {
			w.t.Fatal(err)
		}
		if got := w.ask(chat(false).shows("hush-a")); got.status != http.StatusUnauthorized {
			t.Errorf("status %d with a key that was removed", got.status)
		}
		metrics := w.metrics()
		if strings.Contains(metrics, "team-a") || !strings.Contains(metrics, `{key="team-b",outcome="ok"} 1`) {
			t.Error("the series of team-a is there, or that of team-b is not")
		}
	})
}

// Keys of one tenant share stored answers; other keys do not.
func TestATenantSharesAnswers(t *testing.T) {
	in(t, remembering(teams, func(c *config.Config) {
		c.Keys = append(c.Keys, config.Key{Name: "team-b2", Secret: config.Secret{Value: "hush-b2"}, Tenant: "b"})
	}), func(w *world) {
		w.fromCache(chat(false).shows("hush-b"), "MISS")
		w.fromCache(chat(false).shows("hush-b2"), "HIT")
		w.fromCache(chat(false).shows("hush-a"), "MISS")
	})
}

// limited gives team-a limits, and one model that is not there.
func limited(c *config.Config) {
	teams(c)
	c.Keys[0].Requests, c.Keys[0].Tokens = 3, 1000
	c.Keys[0].AtOnce, c.Keys[0].KV = 1, 1000
	c.Keys[1].Models = []string{"other"}
	c.Keys = append(c.Keys, config.Key{
		Name: "team-c", Secret: config.Secret{Value: "hush-c"}, Models: []string{"sim", "other"},
	})
}

// A key uses its models only, whatever the path, and sees no others.
func TestModelsOfAKey(t *testing.T) {
	in(t, setup{config: limited}, func(w *world) {
		for _, p := range []prompt{
			chat(false), chat(true), post("/v1/embeddings", `{"model":"sim","input":"x"}`),
			post("/v1/completions", `{"model":"other","prompt":"x","model":"sim"}`),
			post("/v1/embeddings", `{"model":"other","input":"x","model":"sim"}`),
			post("/v1/completions", `{"prompt":"x"}`), post("/v1/responses", `{"model":"sim","input":"x"}`),
			post("/v1/messages", `{"model":"sim","messages":[]}`),
		} {
			got := w.ask(p.shows("hush-b"))
			if got.status != http.StatusNotFound || !strings.Contains(got.raw, "do not have access to it") {
				t.Errorf("%s: %d %s", p.path, got.status, got.raw)
			}
		}
		if sent := w.posts(false); len(sent) > 0 {
			t.Errorf("engines got %d requests", len(sent))
		}
		p := chat(false).shows("hush-c")
		w.exact(p, w.ask(p))
		for secret, want := range map[string]int{"hush-a": 1, "hush-b": 0, "hush-c": 1} {
			list, one := w.as(secret, "/v1/models"), w.as(secret, "/v1/models/sim")
			if got := strings.Count(list.raw, `"id":"sim"`); list.status != 200 || got != want {
				t.Errorf("%s sees %d models: %s", secret, got, list.raw)
			}
			if got := one.status; got != map[int]int{0: 404, 1: 200}[want] {
				t.Errorf("%s gets %d for the model", secret, got)
			}
		}
	})
}

// as asks for a page of the front with a key.
func (w *world) as(secret, path string) *heard {
	p := prompt{path: path, method: http.MethodGet}
	return w.ask(p.shows(secret))
}

// A key over its limits gets 429 until its minute is over, with the header fields that clients read. Another
// key does not notice.
func TestLimitsOfAKey(t *testing.T) {
	in(t, setup{config: limited}, func(w *world) {
		asks := func() *heard { return w.ask(chat(false).shows("hush-a")) }
		left := func(got *heard) int {
			n, _ := strconv.Atoi(got.header.Get("X-Ratelimit-Remaining-Tokens"))
			return n
		}
		first := asks()
		used := first.usage.Prompt + first.usage.Completion
		want := map[string]string{
			"X-Ratelimit-Limit-Requests": "3", "X-Ratelimit-Remaining-Requests": "2",
			"X-Ratelimit-Limit-Tokens": "1000",
		}
		for field, value := range want {
			if got := first.header.Get(field); got != value {
				t.Errorf("%s is %q, want %q", field, got, value)
			}
		}
		if first.status != 200 || used == 0 {
			t.Fatalf("%d, %d tokens", first.status, used)
		}
		// Each request reserves the same. The request before was charged what it used.
		second, third := left(asks()), left(asks())
		if second-third != used || second <= 0 || second > 1000-used {
			t.Errorf("%d and then %d tokens are left; each request used %d", second, third, used)
		}
		over := asks()
		after, _ := strconv.Atoi(over.header.Get("Retry-After"))
		if over.status != http.StatusTooManyRequests || after < 50 || after >= 60 ||
			!strings.Contains(over.raw, "requests per minute") ||
			over.header.Get("X-Ratelimit-Remaining-Requests") != "0" {
			t.Errorf("%d after %q: %s", over.status, over.header.Get("Retry-After"), over.raw)
		}
		if other := w.ask(chat(false).shows("hush-c")); other.status != 200 ||
			other.header.Get("X-Ratelimit-Limit-Requests") != "" {
			t.Errorf("the other key gets %d, %v", other.status, other.header)
		}
		refused := 0
		for last := over; last.status != 200; last = asks() {
			if refused++; refused > 2 { // OpenAI's clients try again twice
				t.Fatalf("%d after the waits that were told, the last %d s", last.status, after)
			}
			after, _ = strconv.Atoi(last.header.Get("Retry-After"))
			time.Sleep(time.Duration(after) * time.Second)
		}
		for range 100 { // strangers leave no trace
			w.ask(chat(false).shows("hush-" + strconv.Itoa(rand.Int())))
		}
		metrics := w.metrics()
		for _, want := range []string{
			fmt.Sprintf(`tandem_refused_total{reason="over_limit"} %d`, refused),
			fmt.Sprintf(`tandem_key_requests_total{key="team-a",outcome="over_limit"} %d`, refused),
			fmt.Sprintf(`{key="team-a",kind="generated",model="sim"} %d`, 4*first.usage.Completion),
			fmt.Sprintf(`{key="team-a",kind="prompt",model="sim"} %d`, 4*first.usage.Prompt),
		} {
			if !strings.Contains(metrics, want) {
				t.Errorf("metrics do not have %s", want)
			}
		}
		if strings.Count(metrics, "\ntandem_key_requests_total") != 3 {
			t.Error("strangers have series")
		}
	})
}

// A reload keeps what was counted; requests at once are counted out however a request ends.
func TestRequestsAtOnceOfAKey(t *testing.T) {
	in(t, setup{config: func(c *config.Config) {
		longAnswers(c)
		limited(c)
		c.Keys[0].Requests, c.Keys[0].Tokens = 100, 0
		c.Keys[0].KV = 0
	}}, func(w *world) {
		long := longPrompt(1500).shows("hush-a")
		running := w.begin(long)
		time.Sleep(time.Second)
		next := *w.cfg
		next.Keys = slices.Clone(next.Keys)
		next.Keys[1].Models = nil
		if err := w.o.Apply(&next); err != nil {
			w.t.Fatal(err)
		}
		if got := w.ask(chat(false).shows("hush-a")); got.status != http.StatusTooManyRequests ||
			got.header.Get("Retry-After") != "1" || !strings.Contains(got.raw, "requests at once") {
			t.Errorf("%d %s", got.status, got.raw)
		}
		running.leave()
		running.end()
		time.Sleep(time.Second)
		p := chat(false).shows("hush-a")
		w.exact(p, w.ask(p))
	})
}

// apart keeps tenants apart by salts.
func apart(c *config.Config) {
	teams(c)
	c.Isolation.Salt = config.Secret{Value: "pepper and salt!"}
	c.Keys = append(c.Keys, config.Key{Name: "team-b2", Secret: config.Secret{Value: "hush-b2"}, Tenant: "b"})
}

// Each leg of a request carries the salt of the tenant, and the same one. A client's own salt makes no other
// tenant's. Blocks of a tenant match its own prompts only, also those of its other keys.
func TestTenantsHaveSalts(t *testing.T) {
	in(t, setup{prefill: 1, decode: 1, config: apart}, func(w *world) {
		salts := map[string]string{}
		ask := func(name, secret, own string) int {
			p := longPrompt(5).shows(secret)
			if own != "" {
				raw, _ := json.Marshal(own)
				p.body = strings.Replace(p.body, "{", `{"cache_salt":`+string(raw)+",", 1)
			}
			before := len(w.posts(false))
			w.exact(p, w.ask(p))
			legs := w.posts(false)[before:]
			if len(legs) < 2 {
				t.Errorf("%s: %d legs", name, len(legs))
			}
			for _, leg := range legs {
				var body struct {
					Salt string `json:"cache_salt"`
				}
				if err := json.Unmarshal([]byte(leg.body), &body); err != nil || body.Salt == "" ||
					salts[name] != "" && salts[name] != body.Salt {
					t.Errorf("%s: %v, salt %q at %s, %q before", name, err, body.Salt, leg.engine, salts[name])
				}
				salts[name] = body.Salt
			}
			return w.o.ring.Newest(1)[0].Delivered
		}
		if n := ask("a", "hush-a", ""); n != 0 {
			t.Errorf("%d tokens were cached of the first prompt", n)
		}
		if n := ask("a", "hush-a", ""); n == 0 {
			t.Error("a tenant's own blocks do not match")
		}
		if n := ask("b", "hush-b", ""); n != 0 {
			t.Errorf("%d tokens of another tenant match", n)
		}
		if n := ask("b", "hush-b2", ""); n == 0 {
			t.Error("blocks of another key of the tenant do not match")
		}
		if n := ask("b as a", "hush-b", salts["a"]); n != 0 || salts["b as a"] == salts["a"] {
			t.Errorf("a client chose another tenant's salt: %d tokens", n)
		}
		if a := salts["a"]; a == salts["b"] || strings.Contains(a, "pepper") || strings.Contains(a, "team") {
			t.Errorf("salts are %q", salts)
		}
	})
}

// The file of usage has a line an hour for each key and model, and one more at the end. A stream that its
// client leaves is charged by what came, once. What could not be written is in the next line.
func TestUsageIsWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "later", "usage.jsonl")
	in(t, setup{config: func(c *config.Config) {
		longAnswers(c)
		teams(c)
		c.Usage.File = file
	}}, func(w *world) {
		lines := func() (lines []UsageLine) {
			text, _ := os.ReadFile(file)
			for line := range strings.FieldsSeq(string(text)) {
				lines = append(lines, UsageLine{})
				if err := json.Unmarshal([]byte(line), &lines[len(lines)-1]); err != nil {
					w.t.Fatal(err)
				}
			}
			return lines
		}
		p := chat(false).shows("hush-a")
		got := w.ask(p)
		w.exact(p, got)
		time.Sleep(time.Hour) // there is no folder yet
		if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil || len(lines()) > 0 {
			t.Fatal(err)
		}
		w.exact(p, w.ask(p))
		stream := longPrompt(1500).shows("hush-b")
		stream.body = strings.Replace(stream.body, "{", `{"stream":true,`, 1)
		w.ask(stream, func(n int) {
			if n == 10 {
				w.leave()
			}
		})
		time.Sleep(time.Hour)
		all := lines()
		if len(all) != 2 || all[0].Key != "team-a" || all[1].Key != "team-b" {
			t.Fatalf("lines are %+v", all)
		}
		a, b := all[0], all[1]
		if a.Requests != 2 || a.Generated != int64(2*got.usage.Completion) ||
			a.Prompt != int64(2*got.usage.Prompt) || a.Model != "sim" || a.To.Sub(a.From) < time.Hour {
			t.Errorf("%+v after two answers of %+v", a, got.usage)
		}
		if b.Requests != 1 || b.Prompt != 120 || b.Generated < 10 || b.Generated > 40 {
			t.Errorf("%+v after a stream that was left at its tenth event", b)
		}
	})
}

// used takes what keys have used.
func (w *world) used() []keys.Used { return w.o.m.Requests.Used.Take() }

// A key pays for the part of an answer that came through a gateway, also if the answer breaks off or another
// engine gives the answer. An answer of which nothing came costs nothing.
func TestAKeyPaysForPickedAnswers(t *testing.T) {
	elsewhere := okStream
	elsewhere.Elsewhere = "10.9.9.9:8000"
	generate := post("/inference/v1/generate", `{"model":"sim","token_ids":[400,401,402],"stream":true}`)
	for name, c := range map[string]struct {
		asked     prompt
		say       []any
		requests  int64
		generated int64
	}{
		"breaks off": {chat(true), []any{okStream, event(wordChunk), event(wordChunk), errGateway}, 1, 2},
		"ends": {
			chat(true), []any{okStream, event(wordChunk), event(usageChunk), last(event("[DONE]"))}, 1, 2,
		},
		"another engine": {
			chat(true), []any{elsewhere, event(wordChunk), event(usageChunk), last(event("[DONE]"))}, 1, 2,
		},
		"unread":  {generate, []any{okStream, event("a"), errGateway}, 1, 1},
		"nothing": {chat(true), []any{okStream, errGateway}, 0, 0},
	} {
		in(t, setup{config: teams}, func(w *world) {
			w.pick(c.asked.shows("hush-a"), &gateway{say: c.say}, 0)
			var sum keys.Used
			for _, u := range w.used() {
				sum.Requests += u.Requests
				sum.Prompt += u.Prompt
				sum.Generated += u.Generated
			}
			if sum.Requests != c.requests || sum.Generated != c.generated || (sum.Prompt > 0) != (c.requests > 0) {
				t.Errorf("%s: used %+v, want %d requests and %d tokens", name, sum, c.requests, c.generated)
			}
		})
	}
}

// A key pays for a response that continues a stored response.
func TestAKeyPaysForContinuedResponses(t *testing.T) {
	const answer = `{"id":"resp_2","object":"response","status":"completed","model":"sim","output":[],` +
		`"usage":{"input_tokens":40,"output_tokens":7,"total_tokens":47}}`
	in(t, setup{prefill: 1, decode: 1, config: teams}, func(w *world) {
		for range 2 { // the question for the stored response, and the request
			w.wire.scripted(w.d[0].addr, answerOf(200, "application/json", "", answer))
		}
		p := post("/v1/responses", `{"model":"sim","input":"a","previous_response_id":"resp_1"}`).shows("hush-a")
		if got := w.ask(p); got.status != 200 {
			t.Fatalf("%d %s", got.status, got.raw)
		}
		want := []keys.Used{{Key: "team-a", Model: "sim", Requests: 1, Prompt: 40, Generated: 7}}
		if got := w.used(); !slices.Equal(got, want) {
			t.Errorf("used %+v, want %+v", got, want)
		}
		r := w.newest()
		if r.Key != "team-a" || r.Decode != "d0.internal:8000" || r.Mode != "unsplit" || r.Output != 7 {
			t.Errorf("the record is %+v", r)
		}
	})
}

// FuzzAuthorization finds no header that is let in without a secret of a key.
func FuzzAuthorization(f *testing.F) {
	cfg := config.Default()
	teams(cfg)
	snap := &snapshot{cfg: cfg, keys: keyTable(cfg, new(keys.Accounts))}
	f.Add("Bearer hush-a", "hush-b")
	f.Add("bearer  hush-a", "")
	f.Add("Bearer "+strings.Repeat("hush-a", 200_000), "\x00")
	f.Fuzz(func(t *testing.T, authorization, apiKey string) {
		r := httptest.NewRequest(http.MethodPost, "/v1/completions", nil)
		r.Header["Authorization"], r.Header["X-Api-Key"] = []string{authorization}, []string{apiKey}
		q := &request{snapshot: snap, origin: origin{r: r}}
		scheme, token, _ := strings.Cut(authorization, " ")
		if !strings.EqualFold(scheme, "bearer") || !strings.Contains(authorization, " ") {
			token = apiKey
		}
		want := map[string]string{"hush-a": "team-a", "hush-b": "team-b"}[token]
		if let := q.authorised(); let != (want != "") || q.keyName() != want {
			t.Errorf("%q, %q: let in %v as %q, want %q", authorization, apiKey, let, q.keyName(), want)
		}
	})
}

// With a key file that has no key any more, nobody is let in: keys were meant.
func TestNoKeysLetNobodyIn(t *testing.T) {
	in(t, setup{config: teams}, func(w *world) {
		next := *w.cfg
		next.Keys, next.KeysFile = nil, "/etc/tandem/keys"
		if err := w.o.Apply(&next); err != nil {
			w.t.Fatal(err)
		}
		for _, p := range []prompt{chat(false), chat(false).shows("hush-a")} {
			if got := w.ask(p); got.status != http.StatusUnauthorized {
				t.Errorf("status %d without any key", got.status)
			}
		}
	})
}

// The limits of a key outlive a version of the configuration without the key.
func TestAKeyThatWasGoneForAMomentHasItsLimits(t *testing.T) {
	in(t, setup{config: limited}, func(w *world) {
		for range 3 {
			w.ask(chat(false).shows("hush-a"))
		}
		without := *w.cfg
		without.Keys = without.Keys[1:]
		for _, cfg := range []*config.Config{&without, w.cfg} {
			if err := w.o.Apply(cfg); err != nil {
				w.t.Fatal(err)
			}
		}
		if got := w.ask(chat(false).shows("hush-a")); got.status != http.StatusTooManyRequests {
			t.Errorf("status %d, the key is over its limit", got.status)
		}
	})
}

// The page and tandem top say what each key used lately, and which keys are limited now.
func TestUsageByKeyIsShown(t *testing.T) {
	limited := func(c *config.Config) {
		teams(c)
		c.Keys[1].Requests = 1
	}
	in(t, setup{config: limited}, func(w *world) {
		for range 2 {
			p := chat(false).shows("hush-a")
			w.exact(p, w.ask(p))
		}
		w.exact(chat(false), w.ask(chat(false).shows("hush-b")))
		if got := w.ask(chat(false).shows("hush-b")); got.status != http.StatusTooManyRequests {
			t.Errorf("status %d", got.status)
		}
		rows := w.o.admin.Live().Keys
		if len(rows) != 2 || rows[0].Name != "team-a" || rows[1].Name != "team-b" {
			t.Fatalf("%+v", rows)
		}
		a, b := rows[0], rows[1]
		if a.Minute != a.Hour || a.Hour.Requests != 2 || a.Hour.Prompt != 2*b.Hour.Prompt || b.Hour.Prompt == 0 ||
			a.Hour.Generated != 2*b.Hour.Generated || b.Hour.Generated == 0 || a.Limit() != "" || a.Hour.Refused != 0 {
			t.Errorf("team-a has %+v, team-b %+v", a, b)
		}
		if b.Limit() != "1 refused: requests per minute" || b.Hour.Refused != 1 {
			t.Errorf("team-b has %+v", b)
		}
		time.Sleep(2 * time.Minute)
		if b = w.o.admin.Live().Keys[1]; b.Limit() != "" || b.Hour.Refused != 1 || b.Minute.Requests != 0 {
			t.Errorf("two minutes later team-b has %+v", b)
		}
		time.Sleep(70 * time.Minute)
		if rows := w.o.admin.Live().Keys; len(rows) != 0 {
			t.Errorf("%d keys are shown that nobody uses", len(rows))
		}
	})
}

// Clients that show ten thousand wrong keys leave nothing behind: no series, no account and no memory. A
// secret of a megabyte gets an answer that says what is too large.
func TestWrongKeysLeaveNothingBehind(t *testing.T) {
	in(t, setup{config: limited}, func(w *world) {
		front := w.o.Front()
		wrong := func(n int) {
			for i := range n {
				r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(completion(false).body))
				r.Header.Set("X-Api-Key", fmt.Sprint("wrong-", n, "-", i, strings.Repeat("x", 400)))
				got := httptest.NewRecorder()
				if front.ServeHTTP(got, r); got.Code != http.StatusUnauthorized {
					w.t.Fatalf("status %d with a wrong key", got.Code)
				}
			}
			w.asked += n
		}
		wrong(2000)
		before := heapBytes()
		wrong(10_000)
		if more := heapBytes() - before; more > 2<<20 { // the wrong secrets have 4 MB
			t.Errorf("%d bytes are left", more)
		}
		if n := strings.Count(w.metrics(), "\ntandem_key_requests_total"); n != 0 {
			t.Errorf("wrong keys have %d series", n)
		}
		got := w.ask(chat(false).shows(strings.Repeat("x", 1<<20)))
		w.asked-- // the request is refused before it is counted
		if got.status != http.StatusRequestHeaderFieldsTooLarge || !strings.Contains(got.raw, "431") {
			t.Errorf("%d %.200s after a secret of a megabyte", got.status, got.raw)
		}
	})
}

// KV at once of a key is counted in tokens of the engine, not in bytes of bodies: the limit lets in as many
// requests as fit, with a text of few tokens in a long body, and with a text that has a token a byte.
func TestKVAtOnceOfAKey(t *testing.T) {
	const (
		fit    = 4 // requests under the limit
		asked  = 10
		answer = 400 // tokens
	)
	texts := map[string]string{
		"few tokens": strings.Repeat("the answer of the engine ", 20) +
			`","user":"` + strings.Repeat("padding ", 150),
		"a token a byte": strings.Repeat("\u8bf7\u89e3\u91ca\u8fd9\u4e2a\u95ee\u9898", 20),
	}
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			in(t, setup{config: func(c *config.Config) {
				longAnswers(c)
				limited(c)
				c.Keys[0] = config.Key{Name: "team-a", Secret: c.Keys[0].Secret, KV: 1 << 30}
			}}, func(w *world) {
				p := post("/v1/completions", fmt.Sprintf(
					`{"model":"sim","max_tokens":%d,"temperature":0,"ignore_eos":true,"prompt":"%s"}`, answer, text,
				)).shows("hush-a")
				first := w.ask(p)
				each := first.usage.Prompt + first.usage.Completion
				if first.status != 200 || first.usage.Completion != answer {
					t.Fatalf("%d %s", first.status, first.raw)
				}
				next := *w.cfg
				next.Keys = slices.Clone(next.Keys)
				next.Keys[0].KV = fit*each + each/2
				if err := w.o.Apply(&next); err != nil {
					t.Fatal(err)
				}
				var all []*pending
				for range asked {
					all = append(all, w.begin(p))
				}
				statuses := map[int]int{}
				for _, one := range all {
					statuses[one.end().status]++
				}
				if want := map[int]int{200: fit, 429: asked - fit}; !maps.Equal(statuses, want) {
					t.Errorf("answers have %v, want %v", statuses, want)
				}
			})
		})
	}
}
