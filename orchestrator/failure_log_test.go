package orchestrator

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// The log says of each failed attempt, and of a request that failed, why it did: also where the engine itself
// said so, in an answer or in an event. It says so without the engine's words, which may hold parts of a
// prompt.
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
					w.t.Errorf("the request went well: %s", got.raw)
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
				t.Errorf("told of %v:\n%s", reported, log.String())
			}
		})
	}
}
