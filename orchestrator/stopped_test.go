package orchestrator

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// When the end of the drain time cuts a request, the log names its replica, and no engine is blamed.
func TestWhereARequestWasThatTheDrainCutOff(t *testing.T) {
	stall, silent := enginesim.Fault{Kind: "stall"}, enginesim.Fault{Kind: "stall_stream", After: 3}
	passed := `{"model":"sim","max_tokens":6,"mcp_servers":[{"name":"x"}],"messages":[` +
		`{"role":"user","content":"a b c"}]}`
	batch := post("/v1/completions", `{"model":"sim","max_tokens":6,"temperature":0,"stream":true,`+
		`"prompt":["a b c","d e"]}`)
	for _, c := range []struct {
		name  string
		p     prompt
		leg   string
		fault enginesim.Fault
		line  string
	}{
		{"prefill", chat(true), "prefill", stall, "request failed"},
		{"decode", chat(true), "decode", stall, "request failed"},
		{"decode, not streamed", completion(false), "decode", stall, "request failed"},
		{"stream", chat(true), "decode", silent, "stream broke off"},
		{"batch", batch, "decode", silent, "stream broke off"},
		{"passed on, not streamed", post("/v1/messages", passed), "decode", stall, "request failed"},
		{
			"passed on, stream", greedy("/v1/messages", 12, `"mcp_servers":[{"name":"x"}],`), "decode", silent,
			"stream broke off",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := &logged{}
			s := setup{
				prefill: 1, decode: 1,
				config:  func(c *config.Config) { c.Timeouts.Drain = time.Second },
				options: func(o *Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) },
			}
			in(t, s, func(w *world) {
				of := w.p
				if c.leg == "decode" {
					of = w.d
				}
				c.fault.Count = -1
				fault(c.fault)(w, of[0])
				running := w.begin(c.p)
				time.Sleep(500 * time.Millisecond)
				w.stop()
				got := running.end()
				w.settled()
				lines := log.of(c.line)
				if len(lines) != 1 || !strings.Contains(lines[0], " replica="+of[0].addr+" kind=stopped ") {
					t.Errorf("the log has %q, want the replica %s; the client got %d %q",
						lines, of[0].addr, got.status, got.raw)
				}
				if n := w.count("tandem_attempt_failures_total", ""); n != 0 {
					t.Errorf("%d failures count against replicas, want 0", n)
				}
			})
		})
	}
}
