package orchestrator

import (
	"strings"
	"testing"
)

// An alert on an increase must see the first event. So these counters exist with 0 before anything has
// happened.
func TestCountersBeginAtZero(t *testing.T) {
	in(t, setup{}, func(w *world) {
		page := w.get("admin", "/metrics").raw
		for _, series := range []string{
			`tandem_transfer_params_refused_total{reason="expired"} 0`,
			`tandem_transfer_params_refused_total{reason="bad_params"} 0`,
			`tandem_decode_distrusted_total{pool="decode",replica="` + w.d[0].addr + `"} 0`,
			`tandem_engine_restarts_total{pool="prefill",replica="` + w.p[0].addr + `"} 0`,
			`tandem_ejections_total{leg="decode",pool="decode",replica="` + w.d[1].addr + `"} 0`,
			`tandem_refused_total{reason="queue_full"} 0`, `tandem_retries_total{phase="decode"} 0`,
			`tandem_continued_total{outcome="failed"} 0`,
			`tandem_config_reloads_total{result="rejected"} 0`, `tandem_decisions_unwritten_total{reason="failed"} 0`,
		} {
			if !strings.Contains(page, "\n"+series+"\n") {
				t.Errorf("the metrics lack %s", series)
			}
		}
	})
}

// The time to first token is measured only for streams: in other answers the first token cannot be seen.
func TestFirstTokensAreOfStreams(t *testing.T) {
	in(t, setup{}, func(w *world) {
		w.ask(chat(false))
		if n := w.count("tandem_phase_seconds_count",
			"first") + w.count("tandem_time_to_first_token_seconds_count", ""); n != 0 {
			t.Errorf("counted %d first tokens of an answer without a stream, want 0", n)
		}
		w.ask(chat(true))
		if n := w.count("tandem_phase_seconds_count", "first"); n != 1 {
			t.Errorf("counted %d first tokens of a stream, want 1", n)
		}
		if n := w.count("tandem_time_to_first_token_seconds_count", "sim"); n != 1 {
			t.Errorf("counted %d first tokens of the model, want 1", n)
		}
		if n := w.count("tandem_time_per_output_token_seconds_count", "sim"); n != 1 {
			t.Errorf("counted %d TPOTs of the model, want 1", n)
		}
		w.ask(prompt{
			path: "/v1/chat/completions", body: `{"model":"made-up","messages":[{"role":"user","content":"a"}]}`,
		})
		if n := w.count("tandem_requests_total", "made-up"); n != 0 {
			t.Error("a model that no replica serves became a label")
		}
	})
}
