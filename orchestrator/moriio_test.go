package orchestrator

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// reading is a setup whose engines have MoRI-IO in READ mode.
func reading(s setup) setup {
	return ofMoRIIO(s, core.MoRIIORead, func(c *config.Config) { c.Connector.Type = config.MoRIIO })
}

// ofMoRIIO is a setup whose engines have MoRI-IO in this mode, with the roles of their pools.
func ofMoRIIO(s setup, mode core.MoRIIO, choose func(*config.Config)) setup {
	change, edit := s.engine, s.config
	s.engine = func(name string, o *enginesim.Options) {
		if name != "whole" {
			o.Core.MoRIIO, o.Core.Role = mode, core.Consumer
			o.Core.Lease = 30 * time.Second // the harness waits no longer for leases
		}
		if strings.HasPrefix(name, "p") {
			o.Core.Role = core.Producer
		}
		if change != nil {
			change(name, o)
		}
	}
	s.config = func(c *config.Config) {
		if choose(c); edit != nil {
			edit(c)
		}
	}
	return s
}

// legsOnly wants decode engines to have got nothing but decode legs, and what generates no token.
func (w *world) legsOnly() (legs int) {
	w.t.Helper()
	for _, sent := range w.posts(false) {
		switch {
		case !strings.HasPrefix(sent.engine, "d"):
		case strings.Contains(sent.body, `"remote_notify_port"`):
			legs++
		default:
			w.t.Errorf("%s got %s %.200s", sent.engine, sent.path, sent.body)
		}
	}
	return legs
}

// Requests of every API are split and answered exactly. The legs of a pair have one transfer id, which no
// other pair has, and nothing can end the prefill before its one token.
func TestMoRIIOIsExact(t *testing.T) {
	in(t, reading(setup{}), func(w *world) {
		used := map[string]bool{}
		for _, p := range []prompt{
			completion(false), completion(true), chat(false), chat(true), messages(true), messages(false),
			responses(true), responses(false), nthChat(1, true),
		} {
			w.wire.forget()
			w.exact(p, w.ask(p))
			legs := w.posts(false)
			if len(legs) != 2 || w.legsOnly() != 1 || !strings.Contains(legs[0].body, `"ignore_eos":true`) {
				t.Fatalf("%s: legs %+v", p.path, legs)
			}
			_, id, _ := strings.Cut(legs[0].body, `"transfer_id":`)
			id, _, _ = strings.Cut(id, "}")
			if !strings.Contains(legs[1].body, `"transfer_id":`+id) || used[id] {
				t.Errorf("%s: id %s in %s, used before: %v", p.path, id, legs[1].body, used[id])
			}
			used[id] = true
		}
		read := uint64(0)
		for _, d := range w.d {
			read += d.Stats()[0].NixlTransfers
		}
		if read != uint64(len(used)) {
			t.Errorf("%d prompts were read, want %d", read, len(used))
		}
	})
}

// What cannot be split is refused, on every path and for every reason. No decode engine gets it.
func TestMoRIIORefusesWhatIsWhole(t *testing.T) {
	body := func(more string) string { return `{"model":"sim","max_tokens":4,"prompt":"one two",` + more + `}` }
	talk := func(more string) string {
		return `{"model":"sim","max_tokens":4,"messages":[{"role":"user","content":"hi"}],` + more + `}`
	}
	whole := []prompt{
		post("/v1/completions", body(`"echo":true`)), post("/v1/completions", body(`"prompt_logprobs":1`)),
		post("/v1/chat/completions", talk(`"prompt_logprobs":1`)),
		post("/v1/messages", talk(`"system":[{"type":"image"}]`)),
		post("/v1/responses", `{"model":"sim","input":"hi","background":true}`),
		post("/v1/responses", `{"model":"sim","input":"hi","previous_response_id":"resp_1"}`),
	}
	for _, path := range generatingPaths {
		whole = append(whole, post(path, body(`"messages":[]`)))
	}
	for _, path := range pooling {
		whole = append(whole, post(path, `{"model":"sim","input":"hi"}`))
	}
	in(t, reading(setup{}), func(w *world) {
		for _, p := range whole {
			if !strings.HasPrefix(p.path, "/v1/") {
				w.asked++
			}
			if got := w.ask(p); got.status != http.StatusNotImplemented ||
				!strings.Contains(got.raw, "only requests that can be split") {
				t.Errorf("%s %s: %d %s", p.path, p.body, got.status, got.raw)
			}
		}
		w.asked++
		if got := w.ask(post("/tokenize", `{"model":"sim","prompt":"one two"}`)); got.status != http.StatusOK {
			t.Errorf("a question: %d %s", got.status, got.raw)
		}
		w.legsOnly()
		if n := w.count("tandem_refused_total", "unsplit"); n != len(whole) {
			t.Errorf("%d refusals are counted, want %d", n, len(whole))
		}
	})
}

// A gateway is refused: its routing sidecar would send the request whole where a prefill fails.
func TestMoRIIORefusesGateways(t *testing.T) {
	in(t, reading(setup{}), func(w *world) {
		batch := post("/v1/chat/completions/batch", `{"model":"sim","messages":[]}`)
		for _, p := range []prompt{chat(true), batch} {
			if got := w.pick(p, new(gateway), 0); got.Code != http.StatusNotImplemented {
				t.Errorf("%s: %d %s", p.path, got.Code, got.Body)
			}
		}
	})
}

// The way to a decode engine is closed for all requests that are no decode legs, whichever code sends them.
func TestMoRIIOClosesTheWay(t *testing.T) {
	in(t, reading(setup{}), func(w *world) {
		for _, e := range w.o.fleet.Endpoints() {
			q := &engine.Request{
				Method: http.MethodPost, Path: "/v1/completions", ID: "x",
				Body: []byte(`{"model":"sim","prompt":"one two","max_tokens":1}`),
			}
			resp, err := e.Do(w.t.Context(), q)
			if err == nil {
				_, _ = resp.ReadAll(1 << 20)
				resp.Close()
			}
			if plain := e.Member.Role.String() == "decode"; plain != errors.Is(err, fleet.ErrPlain) {
				t.Errorf("%s: %v", e.Member.ID, err)
			}
		}
		w.legsOnly()
	})
}

// Whatever happens to a request, it is answered exactly or fails, and no decode engine gets a plain request.
// These are the stories of pull, without those of a peer that does not answer: with MoRI-IO such a peer lets
// the decode engine stand still.
func TestMoRIIOStories(t *testing.T) {
	for _, all := range []struct {
		stories []story
		config  func(*config.Config)
	}{{stories, nothingGoesOn}, {brokenStreams, nil}} {
		for _, s := range all.stories {
			if s.orders != nil && s.orders[0] != connector.Sequential || strings.Contains(s.name, "transfer") {
				continue
			}
			t.Run(s.name, func(t *testing.T) {
				in(t, reading(setup{config: all.config}), func(w *world) {
					s.tell(w, chat(len(s.stream) == 0 || s.stream[0]))
					w.legsOnly()
				})
			})
		}
	}
}

// An answer that begins after the end of transfer_timeout may rest on blocks that have not come. It is not
// used, and another pair answers.
func TestMoRIIODistrustsLateAnswers(t *testing.T) {
	slow := reading(setup{prefill: 1, config: func(c *config.Config) {
		c.Timeouts.DecodeFirst, c.Timeouts.Answer = 2*time.Minute, 3*time.Minute
		c.Pools.Prefill.PollInterval, c.Pools.Decode.PollInterval = 21*time.Second, 21*time.Second // patience
	}})
	change := slow.engine
	slow.engine = func(name string, o *enginesim.Options) {
		if change(name, o); name == "d0" {
			o.TransferLatency = 31 * time.Second
		}
	}
	in(t, slow, func(w *world) {
		for i := range 6 {
			p := nthChat(i, i%2 == 0)
			w.exact(p, w.ask(p))
		}
		w.legsOnly()
		time.Sleep(2 * time.Minute) // the slow reads end
		if w.count("tandem_retries_total", "") == 0 || w.count("tandem_late_answers_total", "") == 0 {
			t.Error("no late answer was tried again")
		}
	})
}

// An ejected decode replica returns by a canary that is handed over. The prefill replica says what one engine
// answers.
func TestMoRIIOTrials(t *testing.T) {
	in(t, reading(setup{}), func(w *world) {
		fault(enginesim.Fault{Kind: "fail", Status: 500, Count: -1})(w, w.d[0])
		for i := range 12 {
			p := nthChat(i, false)
			w.exact(p, w.ask(p))
		}
		if !w.o.planner.Outliers().Active(time.Now()) {
			t.Fatal("the replica was not ejected")
		}
		fault(enginesim.Fault{Kind: "clear"})(w, w.d[0])
		time.Sleep(2 * time.Minute)
		is := w.o.planner.Outliers().Look(replica.ID(w.d[0].addr), outlier.Decode, time.Now())
		if is.Out || w.count("tandem_trials_total", "passed") == 0 {
			t.Errorf("the replica has not returned: %+v", is)
		}
		w.legsOnly()
	})
}
