package orchestrator

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// adapted returns p for another model.
func adapted(p prompt, model string) prompt {
	p.body = strings.Replace(p.body, `"sim"`, `"`+model+`"`, 1)
	return p
}

// adapter loads an adapter on the engines, or unloads it.
func (w *world) adapter(change string, on ...*simulated) {
	w.t.Helper()
	for _, e := range on {
		p := prompt{
			path: "/v1/" + change + "_lora_adapter", body: `{"lora_name":"late","lora_path":"/adapters/late"}`,
		}
		if got := w.send(w.t.Context(), e.addr, p); got.status != 200 {
			w.t.Fatalf("%s of the adapter on %s: %d %s", change, e.name, got.status, got.raw)
		}
	}
}

func loading(_ string, o *enginesim.Options) { o.LoadAdapters = true }

// An adapter is loaded while the engines run. It is unknown at first; then only replicas that have it
// serve it.
func TestAnAdapterIsLoaded(t *testing.T) {
	in(t, setup{engine: loading}, func(w *world) {
		p := adapted(completion(false), "late")
		w.failed(p, w.ask(p), 404)
		w.adapter("load", w.whole, w.p[1], w.d[0])
		time.Sleep(3 * fleet.ModelsInterval)
		for i := range 6 {
			q := p
			q.body = strings.Replace(p.body, "word0", fmt.Sprint("word", i), 1)
			w.exact(q, w.ask(q))
			if r := w.o.ring.Newest(1)[0]; r.Prefill != w.p[1].addr || r.Decode != w.d[0].addr {
				t.Errorf("request went to %s and %s, but only %s and %s have the adapter",
					r.Prefill, r.Decode, w.p[1].name, w.d[0].name)
			}
		}
		w.adapter("unload", w.p[1])
		time.Sleep(3 * fleet.ModelsInterval)
		if got := w.ask(p); got.status != 503 {
			t.Errorf("status %d, want 503: no prefill replica has the adapter any more: %s", got.status, got.raw)
		}
	})
}

// An adapter is unloaded from one replica, and the router does not know it yet. Another replica serves the
// request, and the first one gets no further requests for the adapter.
func TestAnAdapterIsGone(t *testing.T) {
	const poll = time.Minute // so long that only a request can show the change
	seldom := func(c *config.Config) { c.Pools.Prefill.PollInterval, c.Pools.Decode.PollInterval = poll, poll }
	in(t, setup{engine: loading, config: seldom}, func(w *world) {
		w.adapter("load", w.all()...)
		time.Sleep(2 * poll)
		p := adapted(completion(false), "late")
		w.exact(p, w.ask(p))
		gone := w.by(w.o.ring.Newest(1)[0].Prefill)
		w.adapter("unload", gone)
		w.exact(p, w.ask(p))
		if r := w.o.ring.Newest(1)[0]; r.Attempts != 2 || r.Prefill == gone.addr {
			t.Errorf("%d attempts, the last at %s; want 2, at the other replica", r.Attempts, r.Prefill)
		}
		time.Sleep(2 * fleet.LeastModelsInterval)
		for i := range 6 {
			q := p
			q.body = strings.Replace(p.body, "word0", fmt.Sprint("word", i), 1)
			w.exact(q, w.ask(q))
			if r := w.o.ring.Newest(1)[0]; r.Attempts != 1 {
				t.Errorf("%d attempts: %s got another request for the adapter that it lacks", r.Attempts, gone.name)
			}
		}
		for _, e := range w.p {
			if e != gone {
				w.adapter("unload", e)
			}
		}
		if got := w.ask(p); got.status != 404 || !strings.Contains(got.raw, "does not exist") {
			t.Errorf("no replica has the adapter: %d %s", got.status, got.raw)
		}
	})
}

// Only a decode replica has the adapter. It serves the request and prefills for itself.
func TestAnAdapterWithoutPrefill(t *testing.T) {
	in(t, setup{engine: loading, config: func(c *config.Config) { c.Local = config.LocalAuto }}, func(w *world) {
		w.adapter("load", w.whole, w.d[1])
		time.Sleep(3 * fleet.ModelsInterval)
		p := adapted(chat(true), "late")
		w.exact(p, w.ask(p))
		if r := w.o.ring.Newest(1)[0]; r.Mode != "local" || r.Decode != w.d[1].addr {
			t.Errorf("%s at %s, want local at %s", r.Mode, r.Decode, w.d[1].addr)
		}
	})
}

// unnamed are requests without a model, or with null or "" as the model, which vLLM accepts too.
var unnamed = []prompt{
	post("/v1/completions", `{"max_tokens":6,"temperature":0,"prompt":"`+words(60)+`"}`),
	post("/v1/completions",
		`{"model":null,"max_tokens":6,"temperature":0,"stream":true,"prompt":"`+words(60)+`"}`),
	post("/v1/chat/completions",
		`{"model":"","max_tokens":6,"temperature":0,"messages":[{"role":"user","content":"`+words(60)+`"}]}`),
	post("/v1/responses", `{"max_output_tokens":6,"temperature":0,"input":"a b c"}`),
	post("/v1/responses", `{"max_output_tokens":6,"temperature":0,"input":"a b c","truncation":"auto"}`),
	post("/inference/v1/generate", `{"token_ids":[1,2,3],"sampling_params":{"max_tokens":3,"temperature":0}}`),
	post("/tokenize", `{"prompt":"a b c"}`),
}

// A request without a model is answered for the only model there is, as an engine does. It is split like
// others.
func TestNoModelIsTheOnlyOne(t *testing.T) {
	in(t, setup{}, func(w *world) {
		for _, p := range unnamed {
			got, want := w.ask(p), w.right(p)
			if got.status != want.status || masked(got.raw) != masked(want.raw) && got.text != want.text {
				t.Errorf("%s %.40s: %d %s\nwant %d %s", p.path, p.body, got.status, got.raw, want.status, want.raw)
			}
		}
		w.asked = w.count("tandem_requests_total", "")
		if n := w.count("tandem_requests_total", "split"); n != 4 {
			t.Errorf("%d requests were split, want 4", n)
		}
	})
}

// With several models, a request without a model is refused instead of guessed.
func TestNoModelOfSeveral(t *testing.T) {
	two := func(name string, o *enginesim.Options) {
		if name == "d1" || name == "p1" {
			o.Model = "other"
		}
	}
	in(t, setup{engine: two}, func(w *world) {
		for _, p := range unnamed {
			if got := w.ask(p); got.status != 400 || !strings.Contains(got.fail.Message, "model") {
				t.Errorf("%s: %d %s", p.path, got.status, got.raw)
			}
		}
		w.exact(completion(false), w.ask(completion(false)))
		w.asked = w.count("tandem_requests_total", "")
	})
}

// A model's name in the answer is valid JSON, whatever characters it has.
func TestAModelsNameIsWrittenAsJSON(t *testing.T) {
	names := []string{"a\x7fb", "x\U000e0001y", "a\"b", "\u2028"}
	named := setup{engine: func(_ string, o *enginesim.Options) { o.Aliases = names }}
	in(t, named, func(w *world) {
		for _, name := range names {
			got := w.get("front", "/v1/models/"+url.PathEscape(name))
			var said struct{ ID string }
			if err := json.Unmarshal([]byte(got.raw), &said); err != nil || said.ID != name {
				t.Errorf("%q: %d %s: %v", name, got.status, got.raw, err)
			}
		}
		w.asked = w.count("tandem_requests_total", "")
	})
}

// The list of models has all models of the decode replicas, whichever engine answers. A model that only
// prefill replicas have is left out. If all decode replicas have the same models, the list is an engine's
// own answer.
func TestModelsAreThoseOfAllDecodeReplicas(t *testing.T) {
	in(t, setup{engine: loading}, func(w *world) {
		list := prompt{path: "/v1/models", method: "GET"}
		own := w.send(w.t.Context(), w.d[0].addr, list)
		entry, _, _ := strings.Cut(own.raw, `"modelperm-`) // a modelperm id differs in every answer
		if got := w.ask(list); got.status != 200 || !strings.HasPrefix(got.raw, entry) ||
			len(got.raw) != len(own.raw) {
			t.Errorf("the list is %d %s, want the engine's %s", got.status, got.raw, own.raw)
		}
		w.adapter("load", w.p[0], w.d[1])
		time.Sleep(3 * fleet.ModelsInterval)
		for range 4 {
			got := w.ask(list)
			if n := strings.Count(got.raw, `"id":"late"`); got.status != 200 || n != 1 {
				t.Errorf("the list has the adapter of one replica %d times, want once: %s", n, got.raw)
			}
		}
		w.adapter("unload", w.d[1])
		time.Sleep(3 * fleet.ModelsInterval)
		if got := w.ask(list); strings.Contains(got.raw, "late") {
			t.Errorf("the list has a model that no decode replica serves: %s", got.raw)
		}
	})
}

// If decode replicas fail to list their models, the router tries as many as retry.attempts allows, and
// then uses the list of any engine.
func TestModelsWhereDecodeReplicasDoNotTell(t *testing.T) {
	in(t, setup{decode: 6}, func(w *world) {
		for _, e := range w.d {
			fault(enginesim.Fault{Kind: "fail", Path: "/v1/models", Status: 500, Count: -1})(w, e)
		}
		calls := func() (n int) {
			for _, e := range w.d {
				n += e.Calls()["/v1/models"]
			}
			return n
		}
		before := calls()
		if got := w.ask(prompt{path: "/v1/models", method: "GET"}); got.status != 200 {
			t.Errorf("status %d: %s", got.status, got.raw)
		}
		if n := calls() - before; n > w.cfg.Retry.Attempts {
			t.Errorf("%d failed requests for the list, want at most %d", n, w.cfg.Retry.Attempts)
		}
	})
}

// Most model names contain a slash. Clients may send it plain or escaped.
func TestAModelIsFoundByItsName(t *testing.T) {
	named := setup{engine: func(_ string, o *enginesim.Options) {
		o.Model, o.Aliases = "org/name-8B", []string{"50% off", "a//b"}
	}}
	in(t, named, func(w *world) {
		for path, want := range map[string]string{
			"org/name-8B": "org/name-8B", "org%2Fname-8B": "org/name-8B", "50%25%20off": "50% off", "a//b": "a//b",
			"org": "", "name-8B": "", "org/name-8B/": "", "": "", "../models/org/name-8B": "",
		} {
			got := w.get("front", "/v1/models/"+path)
			status := map[bool]int{true: 200, false: 404}[want != ""]
			if got.status != status || want != "" && !strings.Contains(got.raw, `"id":"`+want+`"`) {
				t.Errorf("%q: %d %s", path, got.status, got.raw)
			}
		}
		w.asked = w.count("tandem_requests_total", "")
	})
}
