package orchestrator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// post is a request with this body.
func post(path, body string) prompt { return prompt{path: path, body: body} }

// Each event of a stream reaches the client when the engine sends it, not later and not together with
// others.
func TestStreamsFlow(t *testing.T) {
	in(t, setup{}, func(w *world) {
		got := w.ask(chat(true))
		w.exact(chat(true), got)
		want := []time.Duration{prefillStep + transfer + decodeStep} // the role arrives with the first token
		for i := range 12 {
			want = append(want, prefillStep+transfer+time.Duration(i+1)*decodeStep)
		}
		want = append(want, normal, normal) // usage and end mark
		if !slices.Equal(got.when, want) {
			t.Errorf("events at %v\nwant      %v", got.when, want)
		}
	})
}

// The decode engine gets the client's body as it was written: number formats, escapes, spaces, order and
// unknown fields.
func TestBodiesArePreserved(t *testing.T) {
	const odd = ` {  "temperature" : 0.0e0, "x":[1E2, 1.50 ,"\u00e9\/"], "max_tokens":4,"seed":12345678901 ,` +
		`"model":"sim","x":{"y":null}, `
	in(t, setup{}, func(w *world) {
		got := w.ask(post("/v1/chat/completions",
			odd+`"messages":[{"role":"user", "content":"kv_transfer_params \ud83d\ude00"}]} `))
		if got.status != 200 {
			t.Fatalf("%d %s", got.status, got.raw)
		}
		if leg := w.posts(false)[1]; !strings.HasPrefix(leg.body,
			odd+`"messages":[{"role":"user", "content":"kv_transfer_params \ud83d\ude00"}`) {
			t.Errorf("the decode leg has %s", leg.body)
		}
		w.wire.forget()
		if got := w.ask(post("/v1/completions", odd+`"prompt":[11,12,13]}`)); got.status != 200 {
			t.Fatalf("%d %s", got.status, got.raw)
		}
		if leg := w.posts(false)[1]; !strings.HasPrefix(leg.body, odd+`"prompt":[11,12,13]`) {
			t.Errorf("the decode leg has %s", leg.body)
		}
		for _, p := range []prompt{
			post("/v1/completions", odd+`"prompt":"a","echo":true}`),
			post("/v1/responses", odd+`"background":false,"input":[{"type":"input_image"}]}`),
			post("/v1/messages", odd+`"messages":[{"role":"user","content":[{"type":"document"}]}]}`),
		} {
			w.wire.forget()
			w.ask(p)
			if legs := w.posts(false); len(legs) != 1 || legs[0].body != p.body {
				t.Errorf("%s: engines got %+v", p.path, legs)
			}
		}
	})
}

// hostile are transfer params that crash an engine or make it read another prompt's blocks.
const hostile = `{"do_remote_prefill":true,"remote_host":"hostile"}`

// spellings are the ways to write a member that an engine would read as transfer params.
var spellings = []string{
	`"kv_transfer_params":` + hostile,
	`"kv_transfer\u005fparams":` + hostile,
	`"\u006bv_transfer_params" : ` + hostile,
	`"kv_transfer_params":null,"kv_transfer_params":` + hostile,
	`"ec_transfer_params":` + hostile,
	`"vllm_xargs":{"kv_transfer_params":` + hostile + `}`,
	`"vllm_xargs":{"a":1,"kv_transfer_param\u0073":` + hostile + `,"b":2}`,
	`"extra_args":{"kv_transfer_params":` + hostile + `}`,
	`"extra_body":{"kv_transfer_params":` + hostile + `}`,
	`"sampling_params":{"extra_args":{"kv_transfer_params":` + hostile + `}}`,
}

func TestClientsTransferParamsGoToNoEngine(t *testing.T) {
	bodies := map[string]string{
		"/v1/completions": `"prompt":"a b c"`, "/v1/chat/completions": `"messages":[{"role":"user","content":"a"}]`,
		"/v1/responses": `"input":"a"`, "/v1/messages": `"messages":[{"role":"user","content":"a"}]`,
		"/inference/v1/generate": `"token_ids":[1,2,3]`, "/tokenize": `"prompt":"a"`,
		"/v1/chat/completions/render": `"messages":[{"role":"user","content":"a"}]`,
		"/v1/embeddings":              `"input":"a"`,
		"/v1/chat/completions/batch":  `"messages":[[{"role":"user","content":"a"}]]`,
	}
	in(t, setup{}, func(w *world) {
		for path, prompt := range bodies {
			for i, spelling := range spellings {
				for _, more := range []string{"", `,"echo":true`, `,"stream":true`} {
					got := w.ask(post(path, `{"model":"sim","max_tokens":2,`+spelling+`,`+prompt+more+`}`))
					if got.err != nil || got.status >= 500 {
						t.Errorf("%s, spelling %d: %d %v %s", path, i, got.status, got.err, got.raw)
					}
					w.silent(got)
				}
			}
		}
		w.asked += w.count("tandem_requests_total", "/tokenize") // /tokenize is not below /v1/
		w.asked += w.count("tandem_requests_total", "/inference/v1/generate")
		for _, leg := range w.posts(true) {
			if strings.Contains(leg.body, "hostile") {
				t.Errorf("%s got %s %s", leg.engine, leg.path, leg.body)
			}
		}
	})
}

func TestFormsWithTransferParamsAreRefused(t *testing.T) {
	in(t, setup{}, func(w *world) {
		p := post("/v1/audio/transcriptions",
			"--x\r\nContent-Disposition: form-data; name=\"kv_transfer_params\"\r\n\r\n"+hostile+"\r\n--x--\r\n")
		p.header = http.Header{"Content-Type": {"multipart/form-data; boundary=x"}}
		if got := w.ask(p); got.status != 400 || len(w.posts(true)) != 0 {
			t.Errorf("%d %s", got.status, got.raw)
		}
	})
}

// A recording in a form may hold any bytes, even some that would be an escape in JSON. That is no reason
// to refuse the form: no engine reads a file's content as JSON. Everything that some reader could take for
// another field is checked.
func TestRecordingsAreAnyBytes(t *testing.T) {
	const recording = "Content-Disposition: form-data; name=\"file\"; filename=\"a b.mp3\"\r\n" +
		"Content-Type: audio/mpeg\r\n\r\n"
	named := func(name string) string { return strings.Replace(recording, `name="file"`, name, 1) }
	const escaped = "\xff\xfb\\u00\x00\r\n"
	for name, c := range map[string]struct {
		parts  []string
		status int
	}{
		"a recording":          {[]string{recording + escaped}, 404}, // 404 from an engine without audio support
		"between fields":       {[]string{field("model", "sim"), recording + escaped, field("prompt", "a")}, 404},
		"a field":              {[]string{recording + "x", field("vllm_xargs", `{"\u006bv":1}`)}, 400},
		"the names themselves": {[]string{recording + "kv_transfer_params"}, 400},
		"another name":         {[]string{named(`name="vllm_xargs"`) + escaped}, 400},
		"two names":            {[]string{named(`name="file"; name="x"`) + escaped}, 400},
		"two heads":            {[]string{field("x", "")[:len(field("x", ""))-2] + recording + escaped}, 400},
		"a bare end of line":   {[]string{recording + "x\n--x\n" + field("vllm_xargs", escaped)}, 400},
		"before all parts":     {[]string{"", recording}, 404},
	} {
		in(t, setup{}, func(w *world) {
			body := "--x\r\n" + strings.Join(c.parts, "\r\n--x\r\n") + "\r\n--x--\r\n"
			p := post("/v1/audio/transcriptions", body)
			p.header = http.Header{"Content-Type": {"multipart/form-data; boundary=x"}}
			if got := w.ask(p); got.status != c.status {
				t.Errorf("%s: %d %s", name, got.status, got.raw)
			}
		})
	}
}

// field returns a part of a form.
func field(name, value string) string {
	return "Content-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value
}

// The router removes the charset of a form, so that engines read it as UTF-8, in which the disguised names
// mean nothing.
func TestFormsLoseTheirCharset(t *testing.T) {
	for _, charset := range []string{"; charset=utf-7", "; CHARSET=\"utf-16\"", "; charset*=utf-8''utf-7", ""} {
		in(t, setup{}, func(w *world) {
			p := post("/v1/audio/transcriptions", "--a b\r\nContent-Disposition: form-data; name=\"vllm_xargs\"\r\n"+
				"\r\n{\"kv+AF8-transfer+AF8-params\":\"x\"}\r\n--a b--\r\n")
			p.header = http.Header{"Content-Type": {"multipart/form-data" + charset + "; boundary=\"a b\""}}
			w.ask(p)
			legs := w.posts(true)
			if len(legs) != 1 || legs[0].header.Get("Content-Type") != `multipart/form-data; boundary="a b"` ||
				legs[0].body != p.body {
				t.Errorf("%s: engines got %+v", charset, legs)
			}
		})
	}
}

// choices collects the texts of a batch's answer by index.
func choices(t *testing.T, h *heard) (texts map[int]string, usages int) {
	texts = map[int]string{}
	for _, data := range append(h.events, h.raw) {
		var p piece
		if len(h.events) > 0 && data == h.raw || json.Unmarshal([]byte(data), &p) != nil {
			continue
		}
		for _, c := range p.Choices {
			texts[c.Index] += c.Text
		}
		if p.Usage != nil {
			usages++
		}
	}
	return texts, usages
}

// Each prompt of a batch is split into two legs. To the client the answer looks like that of one engine.
func TestBatchesAreMerged(t *testing.T) {
	for _, prompts := range []string{
		`["alpha ` + words(40) + `","beta ` + words(90) + `","hello"]`,
		`[[11,12,13,14],[21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38],[5]]`, `["only"]`,
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%.12s/stream=%v", prompts, stream), func(t *testing.T) {
				in(t, setup{}, func(w *world) {
					p := post("/v1/completions",
						`{"model":"sim","max_tokens":6,"temperature":0,`+streaming(stream)+`"prompt":`+prompts+`}`)
					got, want := w.ask(p), w.right(p)
					gotTexts, gotUsages := choices(w.t, got)
					wantTexts, wantUsages := choices(w.t, want)
					if got.status != 200 || fmt.Sprint(gotTexts) != fmt.Sprint(wantTexts) || gotUsages != wantUsages ||
						got.dones != want.dones {
						t.Errorf("%d %v, %d usages, %d end marks\nwant    %v, %d, %d",
							got.status, gotTexts, gotUsages, got.dones, wantTexts, wantUsages, want.dones)
					}
					if got.usage != want.usage {
						t.Errorf("usage %+v, want %+v", got.usage, want.usage)
					}
					if legs := w.posts(false); len(legs) != 2*len(wantTexts) {
						t.Errorf("%d legs for %d prompts", len(legs), len(wantTexts))
					}
					if ids := slices.Compact(regexp.MustCompile(`"id":"[^"]*"`).FindAllString(got.raw, -1)); len(ids) != 1 {
						t.Errorf("the answer has ids %v", ids)
					}
					w.silent(got)
				})
			})
		}
	}
}

// If one prompt of a batch fails finally, the whole batch fails with one clear error, and no leg keeps
// running.
func TestBatchFailsAsOne(t *testing.T) {
	for _, stream := range []bool{false, true} {
		in(t, setup{}, func(w *world) {
			w.at("prefill", func(at string) {
				w.at("prefill", nil)
				fail(400)(w, w.by(at))
			})
			got := w.ask(post("/v1/completions",
				`{"model":"sim","max_tokens":6,`+streaming(stream)+`"prompt":["`+words(40)+`","a","b"]}`))
			if got.status != 400 || got.fail.Code != 400 {
				t.Errorf("%d %s", got.status, got.raw)
			}
			w.silent(got)
		})
	}
}

// A request that cannot be split goes unchanged to one decode replica, even with local: never.
func TestUnsplittableGoesWhole(t *testing.T) {
	for _, field := range []string{
		`"n":2,"temperature":1,"seed":7`, `"echo":true`, `"prompt_logprobs":1`,
		`"best_of":2,"n":2,"seed":3,"temperature":1`,
	} {
		in(t, setup{}, func(w *world) {
			p := post("/v1/completions", `{"model":"sim","max_tokens":5,`+field+`,"prompt":"a b c d"}`)
			got, want := w.ask(p), w.right(p)
			legs := w.posts(false)
			if len(legs) != 1 || legs[0].body != p.body || legs[0].engine[0] != 'd' {
				t.Errorf("%s: engines got %+v", field, legs)
			}
			if masked(got.raw) != masked(want.raw) {
				t.Errorf("%s: got %s\nwant %s", field, got.raw, want.raw)
			}
		})
	}
}

var volatile = regexp.MustCompile(
	`"(id|item_id|response_id|request_id)": ?"[^"]*"|"(created|created_at|completed_at)": ?[0-9.]+`,
)

// masked removes the parts in which two correct answers may differ.
func masked(raw string) string { return volatile.ReplaceAllString(raw, "") }

func TestWholePathsPassUnchanged(t *testing.T) {
	in(t, setup{}, func(w *world) {
		for _, stream := range []string{"", `"stream":true,`} {
			for _, p := range []prompt{
				post("/v1/responses",
					`{"model":"sim",`+stream+`"input":"Where do the blocks go?","max_output_tokens":9,"temperature":0}`),
				post("/v1/messages", `{"model":"sim",`+stream+
					`"max_tokens":9,"temperature":0,"messages":[{"role":"user","content":"Where do the blocks go?"}]}`),
			} {
				got, want := w.ask(p), w.right(p)
				if got.status != 200 || masked(got.raw) != masked(want.raw) {
					t.Errorf("%s: %d %s\nwant %s", p.path, got.status, got.raw, want.raw)
				}
				w.silent(got)
			}
		}
		if got, want := w.ask(prompt{method: "GET", path: "/v1/models"}), w.send(w.t.Context(), w.whole.addr,
			prompt{method: "GET", path: "/v1/models"}); masked(got.raw) != masked(want.raw) {
			t.Errorf("models: %s\nwant %s", got.raw, want.raw)
		}
	})
}

// The client's usage reports the tokens that the prefill engine had cached, even if the decode engine
// counts transferred tokens as cached.
func TestUsageTellsThePrefillsCache(t *testing.T) {
	for _, version := range []string{"0.32.0", "0.20.0"} {
		for _, p := range []prompt{chat(true), chat(false), completion(true), completion(false)} {
			in(t, setup{prefill: 1, decode: 1, engine: func(_ string, o *enginesim.Options) { o.Version = version }},
				func(w *world) {
					first, second := w.ask(p), w.ask(p)
					w.exact(p, second)
					whole := (second.usage.Prompt - 1) / 16 * 16
					if a, b := first.usage.Details.Cached, second.usage.Details.Cached; first.status != 200 || a != 0 ||
						b != whole {
						t.Errorf("%s %s: cached tokens %d, then %d, want 0 and %d", version, p.path, a, b, whole)
					}
				})
		}
	}
}

// An engine that cannot take token ids for a chat gets the client's own body on both legs.
func TestChatOnEnginesWithoutIDReuse(t *testing.T) {
	for _, version := range []string{"0.32.0", "0.20.0"} {
		for _, stream := range []bool{false, true} {
			in(t, setup{engine: func(_ string, o *enginesim.Options) { o.Version = version }}, func(w *world) {
				w.exact(chat(stream), w.ask(chat(stream)))
				legs := w.posts(false)
				want := []string{"/v1/completions", "/v1/chat/completions"}
				if version == "0.20.0" {
					want[0] = "/v1/chat/completions"
				}
				if len(legs) != 2 || legs[0].path != want[0] || legs[1].path != want[1] {
					t.Fatalf("%s: legs %+v, want %v", version, legs, want)
				}
				if reuse := strings.Contains(legs[1].body, `"prompt_token_ids"`); reuse != (version != "0.20.0") {
					t.Errorf("%s: the decode leg is %s", version, legs[1].body)
				}
				w.exact(completion(stream), w.ask(completion(stream)))
			})
		}
	}
}

// If /tokenize may see another prompt than the engine does, the chat goes with the client's own body.
func TestChatWhoseTokensAreAHint(t *testing.T) {
	noRender := func(_ string, o *enginesim.Options) { o.ScaleOut, o.ToolParser = false, true }
	in(t, setup{engine: noRender}, func(w *world) {
		p := chat(false)
		p.body = strings.Replace(p.body, `"model"`, `"tools":[{"type":"function","function":{"name":"f"}}],"model"`,
			1)
		w.exact(p, w.ask(p))
		if legs := w.posts(false); len(legs) != 2 || legs[0].path != "/v1/chat/completions" ||
			strings.Contains(legs[1].body, `"prompt_token_ids"`) {
			t.Errorf("legs %+v", legs)
		}
	})
}

func TestAdminPathsDoNotExist(t *testing.T) {
	spell := []func(string) string{
		func(p string) string { return p },
		func(p string) string { return p + "/" },
		func(p string) string { return "/" + p },
		func(p string) string { return "/v1/.." + p },
		func(p string) string { return "/v1/%2e%2e" + p },
		func(p string) string { return "/v1/models/..%2f.." + p },
		func(p string) string { return "/v1/completions/..;/.." + p },
		func(p string) string { return "/." + p },
		func(p string) string { return "/%2f" + p[1:] },
		func(p string) string { return fmt.Sprintf("/%%%02x%s", p[1], p[2:]) },
		func(p string) string { return strings.ToUpper(p) },
		func(p string) string { return p + "%00" },
		func(p string) string { return p + "?a=/v1/completions" },
		func(p string) string { return "/v1/responses/.." + "%2f..%2f" + p[1:] + "/cancel" },
	}
	admin := []string{
		"/reset_prefix_cache", "/sleep", "/collective_rpc", "/server_info", "/update_weights", "/abort_requests",
		"/inference/v1/abort_requests",
		"/invocations", "/metrics", "/openapi.json", "/docs", "/version", "/load", "/-/reload", "/debug/pprof/",
		"/kv_event_sources",
	}
	in(t, setup{}, func(w *world) {
		for _, path := range admin {
			for i, spelled := range spell {
				for _, method := range []string{"GET", "POST"} {
					got := w.send(w.t.Context(), "front:80", prompt{method: method, path: spelled(path), body: "{}"})
					if got.err != nil || got.status != 404 && got.status != 405 && got.status != 400 {
						t.Errorf("%s %s (%d): %d %s", method, spelled(path), i, got.status, got.raw)
					}
				}
			}
		}
		// The handlers of /v1/models/… and /v1/responses/… refuse odd spellings.
		w.asked = w.count("tandem_requests_total", "")
		for _, e := range w.all() {
			if calls := e.AdminCalls(); len(calls) > 0 {
				t.Errorf("%s was called at %v", e.name, calls)
			}
		}
	})
}

// vLLM also reads token ids written as 1.0 or 1e1. The answer is the same with and without a split.
func TestIDsWithAPoint(t *testing.T) {
	for name, local := range map[string]string{"split": config.LocalNever, "local": config.LocalAlways} {
		t.Run(name, func(t *testing.T) {
			in(t, setup{config: func(c *config.Config) { c.Local = local }}, func(w *world) {
				ids := strings.Repeat("[1.0,20.0,3e1,4],", 40)
				ids = "[" + strings.NewReplacer("[", "", "]", "").Replace(ids) + "5]"
				p := prompt{path: "/v1/completions", body: `{"model":"sim","max_tokens":5,"temperature":0,"prompt":` +
					ids + `}`}
				w.exact(p, w.ask(p))
			})
		})
	}
}

func TestAPIKeys(t *testing.T) {
	keyed := setup{config: func(c *config.Config) {
		c.APIKeys = []config.Secret{{Value: "first-key"}, {Value: "second-key"}}
	}}
	in(t, keyed, func(w *world) {
		for _, row := range []struct {
			key, value string
			want       int
		}{
			{"", "", 401},
			{"Authorization", "Bearer wrong", 401},
			{"Authorization", "first-key", 401},
			{"Authorization", "Bearer first-key ", 200},
			{"Authorization", "Bearer first-key", 200},
			{"Authorization", "Bearer second-key", 200},
			{"Authorization", "bearer second-key", 200},
			{"Authorization", "BEARER second-key", 200},
			{"Authorization", "BearerX second-key", 401},
			{"X-Api-Key", "second-key", 200},
			{"X-Api-Key", "", 401},
			{"Authorization", "Bearer ", 401},
			{"Authorization", "Bearer first-keysecond-key", 401},
		} {
			p := chat(false)
			p.header = http.Header{row.key: {row.value}}
			if row.key == "" {
				p.header = nil
			}
			if got := w.ask(p); got.status != row.want {
				t.Errorf("%s: %q: %d, want %d", row.key, row.value, got.status, row.want)
			}
		}
		for _, leg := range w.posts(true) {
			if leg.header.Get("Authorization")+leg.header.Get("X-Api-Key") != "" {
				t.Errorf("the client's key reached %s", leg.engine)
			}
		}
		if got := w.get("front", "/healthz"); got.status != 200 {
			t.Errorf("/healthz without a key: status %d", got.status)
		}
	})
}

// Engines get only those headers of the client that they need.
func TestClientsHeadersStayHere(t *testing.T) {
	in(t, setup{}, func(w *world) {
		p := chat(false)
		p.header = http.Header{
			"Cookie": {"a=b"}, "X-Data-Parallel-Rank": {"7"}, "X-Request-Id": {"mine"}, "X-Session-Id": {"s1"},
			"X-Forwarded-For": {"1.2.3.4"},
		}
		w.exact(chat(false), w.ask(p))
		for _, leg := range w.posts(false) {
			h := leg.header
			if h.Get("Cookie")+h.Get("X-Data-Parallel-Rank")+h.Get("X-Forwarded-For") != "" ||
				h.Get("X-Request-Id") == "mine" || h.Get("X-Session-Id") != "s1" {
				t.Errorf("%s got %v", leg.engine, h)
			}
		}
	})
}

// A priority, in the header or in the body, goes to engines only where the client's key may choose among
// classes, and where the router has no keys.
func TestPriorityNeedsAKeyWithClasses(t *testing.T) {
	whole := prompt{
		path: "/inference/v1/generate", header: http.Header{},
		body: `{"model":"sim","token_ids":[1,2],"sampling_params":{"max_tokens":3}}`,
	}
	allow := func(c *config.Config) {
		teams(c)
		c.Classes = []config.Class{{Name: "chat"}, {Name: "bulk"}}
		c.Keys[0].Classes = []string{"chat", "bulk"}
	}
	for _, row := range []struct {
		config func(*config.Config)
		secret string
		passes bool
	}{{allow, "hush-a", true}, {allow, "hush-b", false}, {func(*config.Config) {}, "", true}} {
		in(t, setup{config: row.config}, func(w *world) {
			for _, p := range []prompt{chat(false), completion(true), whole} {
				p = p.shows(row.secret)
				p.header.Set("X-Vllm-Priority", "-3")
				p.body = strings.Replace(p.body, "{", `{"priority":-4,`, 1)
				w.wire.forget()
				if got := w.ask(p); got.status != http.StatusOK {
					t.Errorf("%s: status %d: %s", p.path, got.status, got.raw)
				}
				sent := w.posts(false)
				if len(sent) == 0 {
					t.Errorf("%s: no engine was asked", p.path)
				}
				for _, leg := range sent {
					header, body := leg.header.Get("X-Vllm-Priority") == "-3", strings.Contains(leg.body, `"priority":-4`)
					if header != row.passes || body != row.passes {
						t.Errorf("%s with key %q: the engine got the header: %v, the body's: %v; want %v",
							p.path, row.secret, header, body, row.passes)
					}
				}
			}
			w.asked += w.count("tandem_requests_total", "/inference/v1/generate")
		})
	}
}

// A client's X-Vllm-Priority goes to every leg, because an engine prefers it to the body's priority. An
// invalid value, which an engine would ignore or fail on, goes to none.
func TestPriorityGoesWithEveryLeg(t *testing.T) {
	whole := chat(false)
	whole.body = strings.Replace(whole.body, "{", `{"n":2,`, 1)
	for value, want := range map[string]string{
		"-3": "-3", "0": "0", "+7": "+7", " 5 ": "5", "9223372036854775807": "9223372036854775807",
		"9223372036854775808": "", "1e3": "", "urgent": "", "1.0": "", "": "",
	} {
		in(t, setup{}, func(w *world) {
			for legs, p := range map[int]prompt{1: whole, 2: chat(false), 3: completion(true)} {
				p.header = http.Header{"X-Vllm-Priority": {value}}
				w.wire.forget()
				w.ask(p)
				sent := w.posts(false)
				if len(sent) != min(legs, 2) {
					t.Fatalf("%d legs of %s, want %d", len(sent), p.path, min(legs, 2))
				}
				for _, leg := range sent {
					if got := leg.header.Get("X-Vllm-Priority"); got != want {
						t.Errorf("%s %s got priority %q for %q, want %q", leg.engine, leg.path, got, value, want)
					}
				}
			}
		})
	}
}

func TestLimitsOfBodies(t *testing.T) {
	small := setup{config: func(c *config.Config) {
		c.Limits.BodyBytes = 4000
		c.Limits.BatchPrompts = 3
		c.Limits.MaxPromptTokens = 100
	}}
	in(t, small, func(w *world) {
		for name, row := range map[string]struct {
			p    prompt
			want int
		}{
			"within": {post("/v1/completions", `{"model":"sim","prompt":"a","max_tokens":1}`), 200},
			"too long": {
				post("/v1/completions", `{"model":"sim","prompt":"`+strings.Repeat("a", 4000)+`"}`), 413,
			},
			"too long, passed": {
				post("/v1/responses", `{"model":"sim","input":"`+strings.Repeat("a", 4000)+`"}`), 413,
			},
			// Not split: goes to one replica unchanged.
			"many prompts": {post("/v1/completions", `{"model":"sim","prompt":["a","b","c","d"]}`), 200},
			"too many ids": {
				post("/v1/completions", `{"model":"sim","prompt":[1`+strings.Repeat(",1", 100)+`]}`), 400,
			},
			"no JSON":   {post("/v1/completions", `{"model":`), 400},
			"no object": {post("/v1/chat/completions", `[]`), 400},
			"too deep": {post("/v1/chat/completions",
				`{"model":"sim","messages":`+strings.Repeat("[", 1900)+strings.Repeat("]", 1900)+`}`), 400},
			"unknown model": {post("/v1/completions", `{"model":"other","prompt":"a"}`), 404},
			"unknown model, too": {
				post("/v1/messages", `{"model":"other","max_tokens":1,"messages":[{"role":"user","content":"a"}]}`), 404,
			},
			"no prompt":    {post("/v1/completions", `{"model":"sim"}`), 400},
			"wrong method": {prompt{method: "GET", path: "/v1/completions"}, 405},
		} {
			got := w.ask(row.p)
			if row.want == 413 && got.err != nil {
				continue // the answer came while the client was still writing: net/http's client may report either
			}
			if got.status != row.want || row.want >= 400 && row.want != 405 && got.fail.Message == "" {
				t.Errorf("%s: %d %s, want %d", name, got.status, got.raw, row.want)
			}
			w.silent(got)
		}
		if n := w.count("tandem_refused_total", "body_too_large"); n != 2 {
			t.Errorf("counted %d bodies as too large, want 2", n)
		}
	})
}

func TestHeadersOnlyWhereConfigured(t *testing.T) {
	for _, on := range []bool{false, true} {
		in(t, setup{config: func(c *config.Config) { c.Response.Headers = on }}, func(w *world) {
			for _, p := range []prompt{chat(true), chat(false)} {
				got := w.ask(p)
				n := 0
				for key := range got.header {
					if strings.HasPrefix(key, "X-Tandem") {
						n++
					}
				}
				if n > 0 != on {
					t.Errorf("headers configured: %v; got %v", on, got.header)
				}
				if id := got.header.Get("X-Request-Id"); w.o.Record(id) == nil {
					t.Errorf("no record of request %q", id)
				}
				w.silent(got)
			}
		})
	}
}

// Each leg counts at its replica, and each event that the client got counts, as docs/metrics.md says.
func TestLegsAndEventsAreCounted(t *testing.T) {
	in(t, setup{}, func(w *world) {
		got := w.ask(chat(true))
		w.exact(chat(true), got)
		for _, pool := range []string{"prefill", "decode"} {
			if n := w.count("tandem_leg_seconds_count", pool); n != 1 {
				t.Errorf("counted %d legs in the %s pool, want 1", n, pool)
			}
		}
		rec := httptest.NewRecorder()
		w.o.Admin().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		want := fmt.Sprintf("\ntandem_stream_events_total %d\n", strings.Count(got.raw, "\n\n"))
		if !strings.Contains(rec.Body.String(), want) {
			t.Errorf("the client got %d events, /metrics does not say%s", strings.Count(got.raw, "\n\n"), want)
		}
	})
}
