package orchestrator

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/orchestrator/admin"
)

// Each administrative act leaves one line that says who did it, from where, what changed and how it ended.
// No line shows a secret.
func TestActsAreAudited(t *testing.T) {
	log := &logged{}
	var w *world
	next := func() *config.Config { return new(*w.o.Config()) }
	var reload func() error
	set := setup{options: func(o *Options) {
		log.into(o)
		o.Reload = func() error { return reload() }
	}}
	in(t, set, func(made *world) {
		w = made
		post := func(path, token string) int {
			p := prompt{path: path, method: http.MethodPost}
			if token != "" {
				p.header = http.Header{"Authorization": {"Bearer " + token}}
			}
			return w.send(w.t.Context(), "admin:80", p).status
		}
		for _, step := range []struct {
			do   func()
			want []string
		}{
			{func() {
				reload = func() error {
					c := next()
					c.Log.Level, c.Admin.Token = "debug", config.Secret{Value: "hush"}
					return w.o.Apply(c)
				}
				post("/-/reload", "")
			}, []string{"act=reload", "by=anybody", "client=", "result=done", `changed="[admin.token log.level]"`}},
			{func() {
				reload = func() error { return nil }
				post("/-/reload", "hush")
			}, []string{"act=reload", "by=admin.token", "client=", `result="nothing new"`}},
			{func() { post("/-/drain?replica=d1.internal:8000", "hush") }, []string{
				"act=drain", "by=admin.token", "client=", "result=done", "replica=d1.internal:8000",
			}},
			{func() { post("/-/undrain?replica=d1.internal:8000", "hush") }, []string{
				"act=undrain", "result=done", "replica=d1.internal:8000",
			}},
			{func() { post("/-/drain?replica=other", "hush") }, []string{"act=drain", "replica=other", "result=\"no"}},
			{func() {
				_ = w.o.Reload(admin.BySignal, func() error {
					err := errors.New("line 3")
					w.o.Rejected(err)
					return err
				})
			}, []string{"act=reload", "by=SIGHUP", `result="rejected: line 3"`}},
			{func() { _ = w.o.Reload(admin.ByFile, func() error { return w.o.Apply(next()) }) }, []string{
				"act=reload", "by=file", "result=done", `changed="[the content of named files]"`,
			}},
		} {
			before := len(log.of("administrative act"))
			step.do()
			lines := log.of("administrative act")[before:]
			if len(lines) != 1 {
				t.Errorf("%d lines, want one with %v: %q", len(lines), step.want, lines)
				continue
			}
			for _, want := range step.want {
				if !strings.Contains(lines[0], want) {
					t.Errorf("no %s in %s", want, lines[0])
				}
			}
		}
		if status := post("/-/drain?replica=d1.internal:8000", "wrong"); status != http.StatusUnauthorized {
			t.Errorf("status %d with a wrong token", status)
		}
		if strings.Contains(log.buf.String(), "hush") {
			t.Error("a secret is logged")
		}
	})
}

// Both listeners tell probes whether the process lives and is ready, under the usual names, without a token.
// A router that drains is alive, and neither healthy nor ready.
func TestProbesOfBothListeners(t *testing.T) {
	guarded := func(c *config.Config) { c.Admin.Token = config.Secret{Value: "hush"} }
	in(t, setup{config: guarded}, func(w *world) {
		all := func(want map[string]int) {
			w.t.Helper()
			for path, status := range want {
				for _, at := range []string{"front", "admin"} {
					if got := w.get(at, path); got.status != status {
						t.Errorf("%s of the %s: status %d, want %d", path, at, got.status, status)
					}
				}
			}
		}
		all(map[string]int{"/livez": 200, "/readyz": 200, "/health": 200, "/healthz": 200})
		w.o.Unready()
		all(map[string]int{"/livez": 200, "/readyz": 503, "/health": 200, "/healthz": 200})
		w.o.Drain()
		all(map[string]int{"/livez": 200, "/readyz": 503, "/health": 503, "/healthz": 503})
	})
}
