package orchestrator

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
)

// canaryOf is an alias for a split between the two models, in parts of a hundred.
func canaryOf(sim, other int, fallback string) config.Alias {
	return config.Alias{
		Name: "chat", Fallback: fallback,
		To: []config.Target{{Model: "sim", Weight: sim}, {Model: "other", Weight: other}},
	}
}

func withAliases(all ...config.Alias) func(c *config.Config) {
	return func(c *config.Config) { c.Aliases = all }
}

// byEither checks that an answer is right for the model that served it, and returns the model.
func (w *world) byEither(own *simulated, p prompt, got *heard) (model string) {
	w.t.Helper()
	r := w.o.ring.Newest(1)[0]
	known := r.Alias == "chat" && (r.Model == "sim" || r.Model == "other")
	if !known || ofOther(nameOf(w, r.Decode)) != (r.Model == "other") {
		w.t.Fatalf("record: alias %q, model %q, served by %s; %d %s", r.Alias, r.Model, nameOf(w, r.Decode),
			got.status, got.raw)
	}
	if q := adaptedFrom(p, "chat", r.Model); r.Model == "sim" {
		w.exact(q, got)
	} else {
		w.exactOther(own, q, got)
	}
	return r.Model
}

func inSession(p prompt, id string) prompt {
	p.header = http.Header{"X-Session-Id": {id}}
	return p
}

// Engines get the name of the model in the place of the alias, and every other byte as the client sent it.
// The model behind the alias answers, on every path.
func TestAnAliasLeadsToItsModel(t *testing.T) {
	toOther := withAliases(config.Alias{Name: "chat", To: []config.Target{{Model: "other", Weight: 1}}})
	inTwo(t, setup{config: toOther}, func(w *world, own *simulated) {
		for _, p := range []prompt{completion(false), completion(true), chat(false), chat(true)} {
			q := adapted(p, "chat")
			if w.byEither(own, q, w.ask(q)) != "other" {
				t.Errorf("%s went to sim", p.path)
			}
		}
		for _, s := range w.posts(true) {
			if strings.Contains(s.body, `"chat"`) || !ofOther(s.engine) {
				t.Errorf("%s got %s %s", s.engine, s.path, s.body)
			}
		}
		w.wire.forget()
		odd := post("/v1/completions", "{ \"x\" :1e5,\n\"\\u006dodel\" : \"ch\\u0061t\" , \"max_tokens\":6,"+
			"\"temperature\":0,\"model\":\"chat\",\"prompt\":\"a b c\" }")
		want := strings.NewReplacer(`"ch\u0061t"`, `"other"`, `"chat"`, `"other"`).Replace(odd.body)
		if got := w.ask(odd); got.status != 200 {
			t.Errorf("%d %s", got.status, got.raw)
		}
		if r := w.o.ring.Newest(1)[0]; r.Alias != "chat" || r.Model != "other" {
			t.Errorf("record: %q, %q", r.Alias, r.Model)
		}
		for _, p := range []prompt{
			post("/tokenize", `{"model":"chat","prompt":"a b c"}`),
			post("/v1/responses", `{"model":"chat","max_output_tokens":6,"temperature":0,"input":"a b c"}`),
		} {
			q, got := adaptedFrom(p, "chat", "other"), w.ask(p)
			if right := w.send(w.t.Context(), own.addr, q); got.status != 200 || got.text != right.text {
				t.Errorf("%s: %d %s, want %s", p.path, got.status, got.raw, right.raw)
			}
		}
		w.asked++ // /tokenize is not below /v1/
		if w.wire.forget(); w.ask(post("/tokenize", want)).status != 200 {
			t.Error("the simulated engine does not take the odd body at all")
		}
		w.asked++
		form := post("/v1/audio/transcriptions", "--x\r\n"+field("model", "chat")+"\r\n--x--\r\n")
		form.header = http.Header{"Content-Type": {"multipart/form-data; boundary=x"}}
		for range 8 {
			w.wire.forget()
			got := w.ask(form)
			if posts := w.posts(true); len(posts) != 1 || !ofOther(posts[0].engine) ||
				posts[0].body != strings.Replace(form.body, "chat", "other", 1) {
				t.Errorf("a form with an alias: %d %s, sent %v", got.status, got.raw, posts)
			}
		}
		form.body = strings.Replace(form.body, "--x--", "--x--\nrest", 1)
		if got := w.ask(form); got.status != 400 || !strings.Contains(got.raw, "`other`") {
			t.Errorf("an unusual form with an alias: %d %s", got.status, got.raw)
		}
	})
}

// A form gets another model, and keeps every other byte. A form in which readers may find another model is
// refused.
func TestAFormWithAnotherModel(t *testing.T) {
	file := "Content-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n" +
		"Content-Type: audio/wav\r\n\r\nmodel\r\n\r\nchat\x00\xff"
	form := func(parts ...string) string {
		return "--x\r\n" + strings.Join(parts, "\r\n--x\r\n") + "\r\n--x--\r\n"
	}
	length := "Content-Disposition: form-data; name=model\r\nContent-Length: 4\r\n\r\nchat"
	for _, tt := range []struct{ form, want, model string }{
		{form(field("model", "chat"), file), form(field("model", "m"), file), "m"},
		{
			form(file, field("language", "chat"), field("model", "chat")),
			form(file, field("language", "chat"), field("model", "a longer one")), "a longer one",
		},
		{form(file), "", "m"},
		{form(field("model", "chat"), field("model", "chat")), "", "m"},
		{form(field("model", "chat"), length), "", "m"},
		{form(length), "", "m"},
		{form(field("model", "chat")), "", "a--x"},
		{form(field("model", "chat")), "", "a\r\nb"},
		{strings.ReplaceAll(form(field("model", "chat")), "\r", ""), "", "m"},
		{"", "", "m"},
	} {
		got, ok := formFor([]byte(tt.form), "x", tt.model)
		if ok != (tt.want != "") || ok && string(got) != tt.want {
			t.Errorf("%q as %q: %q, %v", tt.form, tt.model, got, ok)
		}
	}
}

// A key of api_keys keeps its model when the keys before it in the list come and go.
func TestAKeyKeepsItsModel(t *testing.T) {
	secrets := make([]config.Secret, 12)
	for i := range secrets {
		secrets[i].Value = fmt.Sprint("secret-", i)
	}
	keys := func(c *config.Config) {
		withAliases(canaryOf(50, 50, ""))(c)
		c.APIKeys = secrets
	}
	inTwo(t, setup{config: keys}, func(w *world, own *simulated) {
		asked := func(secret config.Secret) string {
			p := adapted(completion(false), "chat")
			p.header = http.Header{"Authorization": {"Bearer " + secret.Value}}
			return w.byEither(own, p, w.ask(p))
		}
		before := map[string]string{}
		for _, s := range secrets {
			before[s.Value] = asked(s)
		}
		changed := *w.cfg
		changed.APIKeys = secrets[1:]
		w.apply(&changed)
		for _, s := range secrets[1:] {
			if model := asked(s); model != before[s.Value] {
				t.Errorf("%s moved from %s to %s", s.Value, before[s.Value], model)
			}
		}
	})
}

// A canary of 90 to 10 gets its share. A session stays with one model. A changed weight moves only the
// sessions that must move.
func TestACanaryHasItsShare(t *testing.T) {
	inTwo(t, setup{config: withAliases(canaryOf(90, 10, ""))}, func(w *world, own *simulated) {
		const sessions = 200
		p, of := adapted(completion(false), "chat"), map[string]string{}
		other := 0
		for range 2 {
			for i := range sessions {
				id := fmt.Sprint("session-", i)
				q := inSession(p, id)
				model := w.byEither(own, q, w.ask(q))
				if was := of[id]; was != "" && was != model {
					t.Errorf("%s went to %s and then to %s", id, was, model)
				}
				if of[id] = model; model == "other" {
					other++
				}
			}
		}
		if share := float64(other) / 2 / sessions; math.Abs(share-0.1) > 0.06 {
			t.Errorf("other got %.3f of the sessions, want 0.1", share)
		}
		if n := w.count("tandem_alias_requests_total", "other"); n != other {
			t.Errorf("the metric says %d requests of other, want %d", n, other)
		}
		changed := *w.cfg
		changed.Aliases = []config.Alias{canaryOf(70, 30, "")}
		w.apply(&changed)
		for i := range sessions {
			id := fmt.Sprint("session-", i)
			q := inSession(p, id)
			if model := w.byEither(own, q, w.ask(q)); of[id] == "other" && model != "other" {
				t.Errorf("%s left other, whose weight has grown", id)
			}
		}
	})
}

// Requests without a session or a key are drawn one by one, by the weights.
func TestChosenModelsFollowTheWeights(t *testing.T) {
	a := config.Alias{Name: "chat", To: []config.Target{
		{Model: "a", Weight: 60}, {Model: "b", Weight: 30}, {Model: "c", Weight: 10}, {Model: "d"},
	}}
	const draws = 100_000
	got := map[string]int{}
	for range draws {
		got[chosen(&a, newID())]++
	}
	for _, target := range a.To {
		want := float64(target.Weight) / 100
		if share := float64(got[target.Model]) / draws; math.Abs(share-want) > 0.01 {
			t.Errorf("%s got %.4f, want %.4f", target.Model, share, want)
		}
	}
	before := map[int]string{}
	for i := range draws {
		before[i] = chosen(&a, fmt.Sprint(i))
	}
	a.To[1].Weight = 0 // b's requests alone move
	moved := 0
	for i := range draws {
		if after := chosen(&a, fmt.Sprint(i)); after != before[i] {
			if moved++; before[i] != "b" {
				t.Fatalf("key %d moved from %s to %s, which nobody asked for", i, before[i], after)
			}
		}
	}
	if share := float64(moved) / draws; math.Abs(share-0.3) > 0.01 {
		t.Errorf("%.4f of the keys moved, want 0.3", share)
	}
}

// The model behind an alias is gone. Without a fallback the request gets 503, and never an answer of the
// other target. With a fallback, the model of the fallback answers.
func TestAnAliasWhoseModelIsDown(t *testing.T) {
	for _, fallback := range []string{"", "sim"} {
		inTwo(t, setup{config: withAliases(canaryOf(0, 1, fallback))}, func(w *world, own *simulated) {
			p := adapted(chat(false), "chat")
			if w.byEither(own, p, w.ask(p)) != "other" {
				t.Error("the request went to sim")
			}
			for _, e := range slices.Concat(w.p[2:], w.d[2:]) {
				w.net.Refuse(e.addr, true)
			}
			time.Sleep(30 * time.Second)
			got := w.ask(p)
			if fallback == "" {
				if got.status != 503 {
					t.Errorf("status %d, want 503: %s", got.status, got.raw)
				}
			} else if w.byEither(own, p, got) != "sim" {
				t.Error("the request did not go to the fallback")
			}
			list := w.ask(prompt{path: "/v1/models", method: "GET"})
			if strings.Contains(list.raw, `"id":"chat"`) != (fallback != "") {
				t.Errorf("fallback %q: the list is %s", fallback, list.raw)
			}
			for _, e := range slices.Concat(w.p[2:], w.d[2:]) {
				w.net.Refuse(e.addr, false)
			}
			time.Sleep(30 * time.Second)
		})
	}
}

// A model that the operator names behind an alias exists, even before its engines have come.
func TestAnAliasForAModelThatHasNotCome(t *testing.T) {
	soon := withAliases(config.Alias{Name: "chat", To: []config.Target{{Model: "soon", Weight: 1}}})
	inTwo(t, setup{config: soon}, func(w *world, _ *simulated) {
		if got := w.ask(adapted(chat(false), "chat")); got.status != 503 {
			t.Errorf("status %d, want 503: %s", got.status, got.raw)
		}
		if got := w.ask(adapted(chat(false), "soon")); got.status != 404 {
			t.Errorf("without the alias: status %d, want 404: %s", got.status, got.raw)
		}
	})
}

// The list of models has the aliases. A key's models hold for what the client asks for: the alias, and not
// the models behind it.
func TestAliasesAreListedAndAllowed(t *testing.T) {
	keyed := func(c *config.Config) {
		late := config.Alias{Name: "late", To: []config.Target{{Model: "none", Weight: 1}}}
		c.Aliases = []config.Alias{canaryOf(50, 50, ""), late}
		c.Keys = []config.Key{
			{Name: "alias-only", Secret: config.Secret{Value: "one"}, Models: []string{"chat"}},
			{Name: "model-only", Secret: config.Secret{Value: "two"}, Models: []string{"sim"}},
			{Name: "all", Secret: config.Secret{Value: "three"}},
		}
	}
	inTwo(t, setup{config: keyed}, func(w *world, own *simulated) {
		as := func(p prompt, secret string) prompt {
			p.header = http.Header{"Authorization": {"Bearer " + secret}}
			return p
		}
		list := prompt{path: "/v1/models", method: "GET"}
		for secret, want := range map[string][]string{
			"one": {"chat"}, "two": {"sim"}, "three": {"other", "sim", "chat"},
		} {
			var said struct {
				Data []struct {
					ID  string
					Max int `json:"max_model_len"`
				}
			}
			got := w.ask(as(list, secret))
			if err := json.Unmarshal([]byte(got.raw), &said); err != nil {
				t.Fatal(err, got.raw)
			}
			var ids []string
			for _, m := range said.Data {
				if ids = append(ids, m.ID); m.Max == 0 {
					t.Errorf("%s has no max_model_len", m.ID)
				}
			}
			slices.Sort(ids)
			slices.Sort(want)
			if !slices.Equal(ids, want) {
				t.Errorf("the key %q sees %v, want %v", secret, ids, want)
			}
			for _, name := range []string{"chat", "sim", "other", "late"} {
				one := w.ask(as(prompt{path: "/v1/models/" + name, method: "GET"}, secret))
				if (one.status == 200) != slices.Contains(want, name) {
					t.Errorf("the key %q asks for the model %s: %d %s", secret, name, one.status, one.raw)
				}
			}
		}
		p := adapted(completion(false), "chat")
		first := w.byEither(own, p, w.ask(as(p, "one")))
		for range 4 { // a key is as good as a session
			if again := w.byEither(own, p, w.ask(as(p, "one"))); again != first {
				t.Errorf("the key went to %s and to %s", first, again)
			}
		}
		for model, secret := range map[string]string{"sim": "one", "chat": "two"} {
			if got := w.ask(as(adapted(completion(false), model), secret)); got.status != 404 {
				t.Errorf("%s is allowed to the key %q: %d %s", model, secret, got.status, got.raw)
			}
		}
	})
}

// Engines that sleep, or that an operator drains, cannot be used: the alias goes to its fallback, and the
// model is not listed.
func TestAnAliasWhoseModelSleepsOrDrains(t *testing.T) {
	for _, drains := range []bool{false, true} {
		fallback := setup{engine: version33, config: withAliases(canaryOf(0, 1, "sim"))}
		inTwo(t, fallback, func(w *world, own *simulated) {
			p, list := adapted(chat(false), "chat"), prompt{path: "/v1/models", method: "GET"}
			if w.byEither(own, p, w.ask(p)) != "other" {
				t.Error("the request went to sim")
			}
			drained := *w.cfg
			drained.Pools.Decode.Replicas = slices.Clone(w.cfg.Pools.Decode.Replicas)
			for i, e := range w.d[2:] {
				if drained.Pools.Decode.Replicas[2+i].Drain = true; !drains {
					e.Sleep(1)
				}
			}
			if drains {
				w.apply(&drained)
			}
			time.Sleep(20 * time.Second)
			if w.byEither(own, p, w.ask(p)) != "sim" {
				t.Error("the request did not go to the fallback")
			}
			if got := w.ask(list); strings.Contains(got.raw, `"id":"other"`) {
				t.Errorf("the list is %s", got.raw)
			}
			for _, e := range w.d[2:] {
				if !drains {
					e.Wake()
				}
			}
			w.apply(w.cfg)
			time.Sleep(20 * time.Second)
			if w.byEither(own, p, w.ask(p)) != "other" {
				t.Error("the requests did not come back")
			}
		})
	}
}

// Only one engine keeps a response. A request that goes on with the response names this engine's model, also
// when the alias leads elsewhere by now.
func TestAStoredResponseBehindAChangedAlias(t *testing.T) {
	const answer = `{"id":"resp_2","object":"response","status":"completed","model":"other","output":[],` +
		`"usage":{"input_tokens":40,"output_tokens":7,"total_tokens":47}}`
	const asked = `{"model":"chat","input":"a","previous_response_id":"resp_1"}`
	for _, now := range []config.Alias{canaryOf(1, 0, ""), canaryOf(1, 0, "other")} {
		inTwo(t, setup{config: withAliases(canaryOf(0, 1, ""))}, func(w *world, _ *simulated) {
			changed := *w.cfg
			changed.Aliases = []config.Alias{now}
			w.apply(&changed)
			keeper := w.d[2]
			w.wire.forget()
			for range 2 { // the question for the stored response, and the request
				w.wire.scripted(keeper.addr, answerOf(200, "application/json", "", answer))
			}
			if got := w.ask(post("/v1/responses", asked)); got.status != 200 {
				t.Fatalf("%d %s", got.status, got.raw)
			}
			posts, want := w.posts(false), strings.Replace(asked, "chat", "other", 1)
			if len(posts) != 1 || posts[0].engine != keeper.name || posts[0].body != want {
				t.Errorf("sent %+v, want %s at %s", posts, want, keeper.name)
			}
			if r := w.o.ring.Newest(1)[0]; r.Alias != "chat" || r.Model != "other" {
				t.Errorf("the record has alias %q and model %q", r.Alias, r.Model)
			}
			w.wire.scripted(keeper.addr, answerOf(200, "application/json", "", answer))
			g := &gateway{say: []any{errGateway}}
			w.pick(post("/v1/responses", asked), g, 0)
			if g.to == nil || nameOf(w, g.to.Decode) != keeper.name || string(g.to.Body) != want {
				t.Errorf("the gateway was sent as %+v, want %s at %s", g.to, want, keeper.name)
			}
		})
	}
}

// A gateway is sent to an engine of the model behind the alias, with the model's name in the body.
func TestAPickOfAnAlias(t *testing.T) {
	toOther := withAliases(config.Alias{Name: "chat", To: []config.Target{{Model: "other", Weight: 1}}})
	inTwo(t, setup{config: toOther}, func(w *world, _ *simulated) {
		generate := post("/inference/v1/generate", `{"model":"sim","token_ids":[1,2,3]}`)
		for _, p := range []prompt{chat(false), generate} {
			g := &gateway{say: []any{errGateway}}
			w.pick(adapted(p, "chat"), g, 0)
			if g.to == nil || !ofOther(nameOf(w, g.to.Decode)) || string(g.to.Body) != adapted(p, "other").body {
				t.Errorf("%s: sent as %+v", p.path, g.to)
			}
		}
	})
}
