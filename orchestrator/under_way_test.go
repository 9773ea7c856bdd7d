package orchestrator

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/orchestrator/observe"
)

// inFlight returns the answer of /debug/in_flight, raw and decoded.
func (w *world) inFlight() (raw string, rows []observe.InFlight) {
	w.t.Helper()
	raw = w.get("admin", "/debug/in_flight").raw
	if err := json.Unmarshal([]byte(raw), &rows); err != nil {
		w.t.Fatalf("%v in %s", err, raw)
	}
	return raw, rows
}

// An operator sees which requests run, who sent them, their sizes and their replicas, but no API keys and
// no prompts. Ended requests are not shown.
func TestRequestsUnderWayAreShown(t *testing.T) {
	const key = "alices-key"
	in(t, setup{config: longAnswers}, func(w *world) {
		if raw, _ := w.inFlight(); strings.TrimSpace(raw) != "[]" {
			t.Errorf("%s without a request, want []", raw)
		}
		first := longPrompt(1500)
		first.header = http.Header{"Authorization": {"Bearer " + key}, "X-Request-Id": {"alice-1"}}
		a := w.begin(first)
		time.Sleep(time.Second)
		words := "tell me of secrets"
		b := w.begin(post("/v1/completions",
			`{"model":"sim","max_tokens":1500,"ignore_eos":true,"prompt":["`+words+`","and of more"]}`))
		time.Sleep(time.Second)
		raw, rows := w.inFlight()
		if len(rows) != 2 {
			t.Fatalf("%d requests are shown, want 2: %s", len(rows), raw)
		}
		sum := sha256.Sum256([]byte("tandem tenant " + key))
		one, two := rows[0], rows[1]
		if one.ClientID != "alice-1" || one.Key != hex.EncodeToString(sum[:4]) || one.Client == "" ||
			one.ID == "" || one.Path != "/v1/completions" || one.Model != "sim" || one.Prompts != 1 ||
			one.Prompt != 120 || one.Decode == "" || one.Age < 2000 || one.Age > 2100 {
			t.Errorf("the first request is %+v", one)
		}
		if two.Key != "" || two.Prompts != 2 || two.Prompt < 2 || two.Decode == "" || two.Age > 1100 {
			t.Errorf("the batch is %+v", two)
		}
		if strings.Contains(raw, key) || strings.Contains(raw, words) {
			t.Errorf("the answer contains a key or a prompt: %s", raw)
		}
		for _, p := range []*pending{a, b} {
			if got := p.end(); got.status != 200 {
				t.Errorf("%d %s", got.status, got.raw)
			}
		}
		if raw, rows := w.inFlight(); len(rows) != 0 {
			t.Errorf("%s after all requests have ended", raw)
		}
	})
}

// A request that waits for room is shown without a replica.
func TestAWaitingRequestIsShownWithoutAPlace(t *testing.T) {
	in(t, narrow(nil), func(w *world) {
		first := w.begin(chat(true))
		time.Sleep(time.Millisecond)
		second := w.begin(chat(true))
		time.Sleep(time.Millisecond)
		raw, rows := w.inFlight()
		if len(rows) != 2 || rows[0].Decode == "" || rows[1].Decode != "" || rows[1].Prompt == 0 {
			t.Errorf("want two requests, the second without a replica: %s", raw)
		}
		w.exact(chat(true), first.end())
		w.exact(chat(true), second.end())
	})
}
