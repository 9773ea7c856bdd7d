package orchestrator

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// The log and the record give the reason why a failure was not retried.
func TestWhyNothingWasTriedAgainIsSaid(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		decode     int
		config     func(*config.Config)
	}{
		{"one attempt is allowed", retryAttempts, 3, func(c *config.Config) { c.Retry.Attempts = 1 }},
		{"no budget is left", noBudget, 3, func(c *config.Config) { c.Retry.Min, c.Retry.Share = 0, 0 }},
		{"nobody else is there", retryNobody, 1, func(*config.Config) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			s := setup{prefill: 1, decode: tt.decode, options: logsTo(&log), config: func(c *config.Config) {
				c.Local = config.LocalAlways
				tt.config(c)
			}}
			in(t, s, func(w *world) {
				for _, d := range w.d {
					fault(enginesim.Fault{Kind: "fail", Count: -1, Status: 500})(w, d)
				}
				if got := w.ask(chat(true)); got.status == http.StatusOK {
					t.Fatalf("the request succeeded: %s", got.raw)
				}
				if r := w.o.ring.Newest(1)[0]; r.NotRetried != tt.want {
					t.Errorf("the record says %q, want %q", r.NotRetried, tt.want)
				}
			})
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, "request failed") && strings.Contains(line, "not_retried="+tt.want) {
					return
				}
			}
			t.Errorf("no line with not_retried=%s in\n%s", tt.want, log.String())
		})
	}
}
