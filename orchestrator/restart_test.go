package orchestrator

import (
	"errors"
	"log/slog"
	"net/http"
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
				"page and top": strings.Join(w.o.admin.Live().Hints, ""),
			} {
				named := what == "page and top" && strings.Contains(said, "at the start: log.format") ||
					strings.Contains(said, `"needs_restart": [`) && strings.Contains(said, `"log.format"`) ||
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
			"msg=\"configuration applied\" changes=2", "needs_restart=[log.format]", "needs_restart=[]",
			"field=log.format old=json new=text effect=\"in force since the start\"",
		} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %q", want)
			}
		}
	})
}

// What a reload could not put in force is no success, although the file was good: the answer says why.
func TestAReloadThatFailsLateIsRejected(t *testing.T) {
	var w *world
	opt := func(o *Options) {
		o.Reload = func() error { // as the watcher of the file does
			w.o.Rejected(errors.New("no such folder"))
			return nil
		}
	}
	in(t, setup{options: opt}, func(made *world) {
		w = made
		got := w.send(w.t.Context(), "admin:80", prompt{path: "/-/reload", method: "POST"})
		if got.status != http.StatusBadRequest || !strings.Contains(got.raw, "no such folder") {
			t.Errorf("status %d: %s", got.status, got.raw)
		}
	})
}
