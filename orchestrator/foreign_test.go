package orchestrator

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// The prefill engines use a connector that pushes blocks. The router refuses their answers by that name,
// and sends nothing of them to a decode engine, which could only hang or crash.
func TestPushIsNotTakenForPull(t *testing.T) {
	s := setup{engine: func(name string, o *enginesim.Options) {
		if strings.HasPrefix(name, "p") {
			o.Core.Push = true
		}
	}}
	in(t, s, func(w *world) {
		w.failed(completion(false), w.ask(completion(false)), 502)
		for _, sent := range w.posts(false) {
			if strings.HasPrefix(sent.engine, "d") {
				t.Errorf("%s got %s", sent.engine, sent.body)
			}
		}
		if n := w.count("tandem_transfer_params_refused_total", "foreign"); n == 0 {
			t.Error("the refusal is not counted as foreign")
		}
	})
}

// A decode engine with the MoRIIO connector answers from blocks that were never filled. The router sends
// it no request, and shows the reason.
func TestMoRIIONeverJoins(t *testing.T) {
	s := setup{decode: 1, config: func(c *config.Config) { c.Local = config.LocalAuto }}
	in(t, s, func(w *world) {
		s.engine = func(_ string, o *enginesim.Options) {
			o.Core.MoRIIO, o.Core.Role = core.MoRIIORead, core.Consumer
			o.Version = "0.33.0"
		}
		foreign := w.engine(s, "moriio")
		w.d = append(w.d, foreign)
		cfg := *w.cfg
		cfg.Pools.Decode.Replicas = append(cfg.Pools.Decode.Replicas, config.Replica{URL: foreign.URL()})
		if err := w.o.Apply(&cfg); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		for range 8 {
			w.exact(chat(true), w.ask(chat(true)))
		}
		for _, sent := range w.posts(false) {
			if sent.engine == "moriio" && !strings.Contains(sent.body, "prompt_token_ids") {
				t.Errorf("the MoRIIO engine got %s %s", sent.path, sent.body)
			}
		}
		if status := w.get("admin", "/debug/replicas"); !strings.Contains(status.raw, "MoRIIO") {
			t.Errorf("the status lacks the reason: %s", status.raw)
		}
	})
}
