package orchestrator

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// ofOther reports whether a simulated engine serves the second model of these tests. p0, p1, d0 and d1 serve
// "sim", and p2, p3, d2 and d3 serve "other".
func ofOther(name string) bool { return strings.ContainsAny(name, "23") || name == "wholeother" }

// twoModels is two models with two pools each. The same prompt has another answer by each model.
func twoModels(s setup) setup {
	engine := s.engine
	s.prefill, s.decode = 4, 4
	s.engine = func(name string, o *enginesim.Options) {
		if ofOther(name) {
			o.Model, o.Core.Weights = "other", "other"
		}
		if engine != nil {
			engine(name, o)
		}
	}
	return s
}

// inTwo runs story in a world of two models. own is in no pool, and gives the right answers of "other".
func inTwo(t *testing.T, s setup, story func(w *world, own *simulated)) {
	t.Helper()
	s = twoModels(s)
	in(t, s, func(w *world) {
		own := w.engine(s, "wholeother")
		defer own.Close()
		story(w, own)
	})
}

// exactOther checks that an answer is the right answer of "other", and not the answer of "sim".
func (w *world) exactOther(own *simulated, p prompt, got *heard) {
	w.t.Helper()
	want, wrong := w.send(w.t.Context(), own.addr, p), w.right(adaptedFrom(p, "other", "sim"))
	if want.text == "" || want.text == wrong.text {
		w.t.Fatalf("the models answer %q and %q: the test would see no mistake", want.text, wrong.text)
	}
	if got.status != 200 || got.text != want.text || got.finish != want.finish {
		w.t.Errorf("got %d %q, want %q (and %q is the answer of sim): %s", got.status, got.text, want.text,
			wrong.text, got.raw)
	}
}

func adaptedFrom(p prompt, from, to string) prompt {
	p.body = strings.Replace(p.body, `"`+from+`"`, `"`+to+`"`, 1)
	return p
}

// servedBy returns the engines of the newest request, and its mode.
func (w *world) servedBy() (prefill, decode, mode string) {
	r := w.o.ring.Newest(1)[0]
	return nameOf(w, r.Prefill), nameOf(w, r.Decode), r.Mode
}

func nameOf(w *world, addr string) string {
	if e := w.by(addr); e != nil {
		return e.name
	}
	return ""
}

// The same prompts go to two models in turn. Each answer is by the model that was asked for, both legs and
// all questions for token ids stay with its engines, and no prompt matches blocks of the other model.
func TestTwoModelsStayApart(t *testing.T) {
	approximate := func(c *config.Config) {
		c.Pools.Prefill.Index, c.Pools.Decode.Index = config.IndexApproximate, config.IndexApproximate
	}
	inTwo(t, setup{config: approximate}, func(w *world, own *simulated) {
		for _, p := range []prompt{completion(false), completion(true), chat(false), chat(true)} {
			w.exact(p, w.ask(p))
			if pre, dec, mode := w.servedBy(); ofOther(pre) || ofOther(dec) || mode != "split" {
				t.Errorf("sim was served by %s and %s, %s", pre, dec, mode)
			}
			before := len(w.posts(true))
			q := adapted(p, "other")
			w.exactOther(own, q, w.ask(q))
			pre, dec, mode := w.servedBy()
			if !ofOther(pre) || !ofOther(dec) || mode != "split" {
				t.Errorf("other was served by %s and %s, %s", pre, dec, mode)
			}
			for _, s := range w.posts(true)[before:] {
				if !ofOther(s.engine) {
					t.Errorf("%s got %s of a request for the other model", s.engine, s.path)
				}
			}
		}
		fresh := completion(false)
		fresh.body = strings.Replace(fresh.body, "word0", "fresh", 1)
		matched := 0
		for range 8 { // in the end both prefill replicas of sim have the prompt
			w.exact(fresh, w.ask(fresh))
			matched += w.o.ring.Newest(1)[0].Decision.Matched
		}
		if matched == 0 {
			t.Error("a prompt of sim that sim has seen matches nothing: the test would see no mistake")
		}
		q := adapted(fresh, "other")
		w.exactOther(own, q, w.ask(q))
		if d := w.o.ring.Newest(1)[0].Decision; d.Matched > 0 || d.Held > 0 {
			t.Errorf("a prompt that only the other model has seen matches %d and %d tokens", d.Matched, d.Held)
		}
	})
}

// The engines of the second model have blocks of another size. Prompts of both models match what was sent to
// their engines, and the answers are right.
func TestModelsWithBlocksOfTwoSizes(t *testing.T) {
	blocks := func(name string, o *enginesim.Options) {
		if ofOther(name) {
			o.Core.BlockSize = 48
		}
	}
	approximate := func(c *config.Config) {
		c.Pools.Prefill.Index, c.Pools.Decode.Index = config.IndexApproximate, config.IndexApproximate
	}
	inTwo(t, setup{engine: blocks, config: approximate}, func(w *world, own *simulated) {
		p := completion(false)
		q := adapted(p, "other")
		matched := map[string]int{}
		for range 8 {
			w.exact(p, w.ask(p))
			matched["sim"] += w.o.ring.Newest(1)[0].Decision.Matched
			w.exactOther(own, q, w.ask(q))
			d := w.o.ring.Newest(1)[0].Decision
			if matched["other"] += d.Matched; d.Matched%48 != 0 || d.Held%48 != 0 {
				t.Errorf("%d and %d tokens are no whole blocks of 48", d.Matched, d.Held)
			}
		}
		if matched["sim"] == 0 || matched["other"] == 0 {
			t.Errorf("the models matched %v tokens", matched)
		}
	})
}

// All engines of one model are gone. Requests for this model get 503 and never the other model's answer. The
// other model goes on. The list of models has the usable models.
func TestOneModelIsDown(t *testing.T) {
	list := prompt{path: "/v1/models", method: "GET"}
	inTwo(t, setup{}, func(w *world, own *simulated) {
		if got := w.ask(list); !strings.Contains(got.raw, `"id":"sim"`) ||
			!strings.Contains(got.raw, `"id":"other"`) {
			t.Errorf("the list is %d %s", got.status, got.raw)
		}
		for _, e := range slices.Concat(w.p[:2], w.d[:2]) {
			w.net.Refuse(e.addr, true)
		}
		time.Sleep(30 * time.Second)
		for _, p := range []prompt{completion(false), chat(true)} {
			if got := w.ask(p); got.status != 503 || !strings.Contains(got.fail.Message, "sim") {
				t.Errorf("status %d, want 503: %s", got.status, got.raw)
			}
			q := adapted(p, "other")
			w.exactOther(own, q, w.ask(q))
		}
		if got := w.ask(list); strings.Contains(got.raw, `"id":"sim"`) ||
			!strings.Contains(got.raw, `"id":"other"`) {
			t.Errorf("the list without sim's engines is %d %s", got.status, got.raw)
		}
		if got := w.get("front", "/v1/models/sim"); got.status != 404 {
			t.Errorf("/v1/models/sim is %d %s", got.status, got.raw)
		}
		w.asked += 1
		for _, e := range slices.Concat(w.p[:2], w.d[:2]) {
			w.net.Refuse(e.addr, false)
		}
		time.Sleep(30 * time.Second)
	})
}

// The prefill replicas of one model are gone. Where decode replicas may not prefill, the model cannot be used
// and is not listed. Where decode replicas may prefill, the model is listed.
func TestOneModelWithoutPrefill(t *testing.T) {
	list := prompt{path: "/v1/models", method: "GET"}
	for _, local := range []string{config.LocalNever, config.LocalAuto} {
		mode := func(c *config.Config) { c.Local = local }
		inTwo(t, setup{config: mode}, func(w *world, own *simulated) {
			for _, e := range w.p[2:] {
				w.net.Refuse(e.addr, true)
			}
			time.Sleep(30 * time.Second)
			q, usable := adapted(completion(false), "other"), local == config.LocalAuto
			got := w.ask(q)
			if usable {
				w.exactOther(own, q, got)
			} else if got.status != 503 {
				t.Errorf("status %d, want 503: sim's prefill replicas are none of other: %s", got.status, got.raw)
			}
			if all := w.ask(list); strings.Contains(all.raw, `"id":"other"`) != usable {
				t.Errorf("local %s: the list is %s", local, all.raw)
			}
			w.exact(completion(false), w.ask(completion(false)))
			for _, e := range w.p[2:] {
				w.net.Refuse(e.addr, false)
			}
			time.Sleep(30 * time.Second)
		})
	}
}

// A stream breaks off in its middle. The stream goes on at the last replica of its model. Without such a
// replica the stream ends with an error: no replica of the other model continues the stream.
func TestAStreamGoesOnWithItsModelOnly(t *testing.T) {
	inTwo(t, setup{}, func(w *world, own *simulated) {
		p := adapted(completion(true), "other")
		broken := ""
		w.at("decode", func(replica string) {
			if e := w.by(replica); broken == "" && e != nil {
				broken = e.name
				cutStream(w, e)
			}
		})
		w.exactOther(own, p, w.ask(p))
		r := w.o.ring.Newest(1)[0]
		if len(r.Continued) != 1 || !ofOther(nameOf(w, r.Decode)) || !ofOther(broken) {
			t.Errorf("%s broke off; continued %v, at %s", broken, r.Continued, nameOf(w, r.Decode))
		}
		w.at("decode", nil)
		got := w.ask(p, func(event int) {
			if event == 3 {
				vanish(w, w.d[2])
				vanish(w, w.d[3])
			}
		})
		right := w.send(w.t.Context(), own.addr, p).text
		if got.fail.Code != 502 || !strings.HasPrefix(right, got.text) {
			t.Errorf("a stream whose model is gone: %q, %+v; the whole is %q", got.text, got.fail, right)
		}
		for _, s := range w.posts(false) {
			if !ofOther(s.engine) {
				t.Errorf("%s got %s of a stream by the other model", s.engine, s.path)
			}
		}
		time.Sleep(30 * time.Second)
	})
}

// Unused blocks of one model's prefill are not given back through an engine of the other model.
func TestBlocksAreGivenBackByTheirModel(t *testing.T) {
	inTwo(t, setup{}, func(w *world, _ *simulated) {
		p := adapted(completion(false), "other")
		w.at("handoff", func(string) {
			for _, e := range w.d[2:] {
				w.net.Refuse(e.addr, true)
			}
		})
		w.wire.forget()
		if got := w.ask(p); got.status < 500 {
			t.Errorf("status %d: %s", got.status, got.raw)
		}
		time.Sleep(time.Second)
		for _, s := range w.posts(false) {
			if !ofOther(s.engine) {
				t.Errorf("%s got %s %s of the other model", s.engine, s.path, s.body)
			}
		}
		for _, e := range w.d[2:] {
			w.net.Refuse(e.addr, false)
		}
		time.Sleep(fleet.ModelsInterval + 30*time.Second)
	})
}

// A form goes to an engine of the model that the form names. A form without a model is refused.
func TestAFormGoesToItsModel(t *testing.T) {
	inTwo(t, setup{}, func(w *world, _ *simulated) {
		for _, name := range []string{"sim", "other", "none", ""} {
			p := post("/v1/audio/transcriptions", "--x\r\n"+field("model", name)+"\r\n--x--\r\n")
			p.header = http.Header{"Content-Type": {"multipart/form-data; boundary=x"}}
			for range 8 {
				w.wire.forget()
				got := w.ask(p)
				switch posts := w.posts(true); {
				case name == "" || name == "none":
					if want := map[string]int{"": 400, "none": 404}[name]; got.status != want || len(posts) > 0 {
						t.Errorf("a form of the model %q: status %d, sent %v", name, got.status, posts)
					}
				case len(posts) != 1 || ofOther(posts[0].engine) != (name == "other"):
					t.Errorf("a form of %s was sent as %v", name, posts)
				}
			}
		}
	})
}

// A stored answer of one model is never given for the other model. An alias shares the stored answers of its
// model.
func TestStoredAnswersAreByModel(t *testing.T) {
	stored := func(c *config.Config) {
		c.AnswerCache.MemoryBytes = 1 << 20
		c.Aliases = []config.Alias{{Name: "chat", To: []config.Target{{Model: "other", Weight: 1}}}}
	}
	inTwo(t, setup{config: stored}, func(w *world, own *simulated) {
		for _, p := range []prompt{completion(false), chat(true)} {
			w.exact(p, w.ask(p))
			w.fromCache(p, "HIT")
			q := adapted(p, "other")
			w.exactOther(own, q, w.fromCache(q, "MISS"))
			w.exactOther(own, q, w.fromCache(q, "HIT"))
			w.exactOther(own, q, w.fromCache(adapted(p, "chat"), "HIT"))
			w.fromCache(p, "HIT")
		}
	})
}

// A canary handoff of the router's own goes between replicas of one model, whichever replica is tried.
func TestTrialsStayWithTheirModel(t *testing.T) {
	inTwo(t, setup{}, func(w *world, _ *simulated) {
		w.wire.forget()
		for _, e := range slices.Concat(w.p, w.d) {
			leg := outlier.Decode
			if e.name[0] == 'p' {
				leg = outlier.Prefill
			}
			for range 3 {
				a := w.o.planner.Outliers().Begin(replica.ID(e.addr), leg, time.Now())
				w.o.trials.Announce(a.Bad(outlier.Failure{Kind: outlier.ServerError}, time.Now()))
				a.End()
			}
		}
		time.Sleep(time.Minute)
		legs := w.posts(false)
		for _, s := range legs {
			if wants := `"model":"sim"`; strings.Contains(s.body, wants) == ofOther(s.engine) {
				t.Errorf("%s got a canary %s", s.engine, s.body)
			}
		}
		if len(legs) == 0 {
			t.Error("there was no trial")
		}
	})
}

// The page says which replica has which model, also of a replica that is down.
func TestThePageShowsModels(t *testing.T) {
	inTwo(t, setup{}, func(w *world, _ *simulated) {
		w.net.Refuse(w.d[2].addr, true)
		time.Sleep(30 * time.Second)
		for _, r := range w.o.admin.Live().Replicas {
			if want := map[bool]string{false: "sim", true: "other"}[ofOther(nameOf(w, r.Name))]; r.Model != want {
				t.Errorf("%s shows the model %q, want %q", r.Name, r.Model, want)
			}
		}
		w.net.Refuse(w.d[2].addr, false)
		time.Sleep(30 * time.Second)
	})
}
