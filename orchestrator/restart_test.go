package orchestrator

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
)

// A reload that changes a field which needs a restart says so in its answer, in /readyz and in /-/config,
// as long as the process runs with another value. Going back to the value of the start needs no restart.
func TestAReloadSaysWhatNeedsARestart(t *testing.T) {
	var next *config.Config
	var w *world
	var log strings.Builder
	opt := func(o *Options) {
		o.Reload = func() error { return w.o.Apply(next) }
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
	}
	in(t, setup{options: opt}, func(made *world) {
		w = made
		for _, tt := range []struct{ format, want string }{
			{"json", "log.format"}, {"json", "log.format"}, {"text", ""},
		} {
			c := *w.cfg
			c.Log.Format = tt.format
			c.Scoring.Gamma++
			next = &c
			for _, change := range w.o.Changes(next) {
				if change.Field == "log.format" && (change.Effect == config.NeedsRestart) != (tt.want != "") {
					t.Errorf("to %s: %v", tt.format, change)
				}
			}
			answer := w.send(w.t.Context(), "admin:80", prompt{path: "/-/reload", method: "POST"}).raw
			for what, said := range map[string]string{
				"reload": answer, "/readyz": w.get("admin", "/readyz").raw, "/-/config": w.get("admin", "/-/config").raw,
			} {
				named := strings.Contains(said, `"needs_restart": [`) && strings.Contains(said, `"log.format"`) ||
					what == "/-/config" && strings.Contains(said, "at the start: log.format")
				if named != (tt.want != "") {
					t.Errorf("with format %s, %s says %s", tt.format, what, said)
				}
			}
			if !strings.Contains(answer, `"status": "applied"`) {
				t.Errorf("the answer is %s", answer)
			}
		}
		for _, want := range []string{
			"field=log.format old=text new=json effect=\"needs restart\"",
			"field=log.format old=json new=text effect=\"in force since the start\"",
		} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %q", want)
			}
		}
	})
}
