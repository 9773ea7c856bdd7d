package orchestrator

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// For each failed attempt and each failed request, the log tells the cause, also if the engine reported
// the failure. The log does not quote the engine's message, which may contain parts of a prompt.
func TestTheLogTellsWhyAnAttemptFailed(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault enginesim.Fault
		leg   string
		want  string
	}{
		{
			"prefill answers 500",
			enginesim.Fault{Kind: "fail", Count: -1, Status: 500},
			"prefill",
			"the engine answered with status 500",
		},
		{
			"decode answers 503",
			enginesim.Fault{Kind: "fail", Count: -1, Status: 503},
			"decode",
			"the engine answered with status 503",
		},
		{
			"decode streams an error",
			enginesim.Fault{Kind: "fail_stream", Count: -1, Status: 500},
			"decode",
			"the engine's stream told of an error with status 500",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			in(t, setup{prefill: 2, decode: 2, options: logsTo(&log)}, func(w *world) {
				engines := w.p
				if tt.leg == "decode" {
					engines = w.d
				}
				for _, e := range engines {
					fault(tt.fault)(w, e)
				}
				if got := w.ask(chat(true)); got.status == http.StatusOK {
					w.t.Errorf("the request succeeded: %s", got.raw)
				}
			})
			reported := map[string]int{}
			for line := range strings.Lines(log.String()) {
				for _, kind := range []string{"trying again elsewhere", "request failed"} {
					if !strings.Contains(line, kind) {
						continue
					}
					reported[kind]++
					if !strings.Contains(line, tt.want) || strings.Contains(line, "injected") ||
						!strings.Contains(line, "replica="+tt.leg[:1]) {
						t.Errorf("%s\nwant %q, and the replica", line, tt.want)
					}
				}
			}
			if reported["trying again elsewhere"] == 0 || reported["request failed"] != 1 {
				t.Errorf("counted log lines %v, want some retries and 1 failure:\n%s", reported, log.String())
			}
		})
	}
}
