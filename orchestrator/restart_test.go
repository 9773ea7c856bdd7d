package orchestrator

import (
	"strings"
	"testing"

	"tandem/internal/config"
)

// A reload of what takes a restart says so, as long as the process runs with another value: in its answer, in
// /readyz and beside the values. Going back to the value of the start takes none.
func TestAReloadSaysWhatNeedsARestart(t *testing.T) {
	var next *config.Config
	var w *world
	opt := func(o *Options) { o.Reload = func() error { return w.o.Apply(next) } }
	in(t, setup{options: opt}, func(made *world) {
		w = made
		for _, tt := range []struct{ format, want string }{
			{"json", "log.format"}, {"json", "log.format"}, {"text", ""},
		} {
			c := *w.cfg
			c.Log.Format = tt.format
			c.Scoring.Gamma++
			next = &c
			answer := w.send(w.t.Context(), "admin:80", prompt{path: "/-/reload", method: "POST"}).raw
			for what, said := range map[string]string{
				"reload": answer, "/readyz": w.get("admin", "/readyz").raw, "/-/config": w.get("admin", "/-/config").raw,
			} {
				named := strings.Contains(said, `"needs_restart": [`) && strings.Contains(said, `"log.format"`) ||
					what == "/-/config" && strings.Contains(said, "at the start: log.format")
				if named != (tt.want != "") {
					t.Errorf("with %s %s says %s", tt.format, what, said)
				}
			}
			if !strings.Contains(answer, `"status": "applied"`) {
				t.Errorf("the answer is %s", answer)
			}
		}
	})
}
