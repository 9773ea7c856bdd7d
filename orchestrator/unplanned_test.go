package orchestrator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// A request without a plan still has its number of prompt tokens in its record and in the access log.
func TestPromptOfARequestWithoutAPlan(t *testing.T) {
	const short = `{"model":"sim","max_tokens":5,`
	for _, c := range []struct {
		name   string
		p      prompt
		tokens int
	}{
		{"the client's ids", post("/v1/completions", short+`"prompt":[1,2,3]}`), 3},
		{"an engine's", post("/v1/completions", short+`"prompt":"`+words(120)+`"}`), 270},
		{
			"estimated", post("/v1/completions", `{"model":"other","prompt":"`+strings.Repeat("word", 20)+`"}`), 20,
		},
		{"refused by the tokenizer", greedy("/v1/chat/completions", 5, `"tools":[{"type":"function"}],`), 194},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := &logged{}
			in(t, setup{
				config: func(c *config.Config) { // no plan can meet this limit
					c.Log.Access, c.Limits.FirstToken = true, time.Microsecond
				},
				options: func(o *Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) },
			}, func(w *world) {
				got := w.ask(c.p)
				w.settled()
				rec := w.o.Record(got.header.Get("X-Request-Id"))
				if rec == nil || rec.Decision != nil || rec.Outcome == "ok" {
					t.Fatalf("the request has a plan or no record: %+v, %s", rec, got.raw)
				}
				text, err := json.Marshal(rec)
				if err != nil {
					t.Fatal(err)
				}
				_, line, _ := strings.Cut(log.buf.String(), " msg=request ")
				line, _, _ = strings.Cut(line, "\n")
				if line == "" {
					t.Fatalf("no line in the access log: %s", log.buf.String())
				}
				for said, want := range map[string]string{
					string(text): fmt.Sprintf(`"prompt_tokens":%d,`, c.tokens),
					line:         fmt.Sprintf(" prompt_tokens=%d ", c.tokens),
				} {
					if !strings.Contains(said, want) {
						t.Errorf("%s\nwant %s", said, want)
					}
				}
			})
		})
	}
}

// If the prompt tokens were not counted, the number is left out instead of 0.
func TestPromptThatNobodyCounted(t *testing.T) {
	var log bytes.Buffer
	in(t, setup{options: logsTo(&log)}, func(w *world) {
		q := &request{
			env: &w.o.env, snapshot: w.o.snap.Load(), w: &client{},
			origin: origin{r: httptest.NewRequest(http.MethodPost, "/", http.NoBody)},
		}
		q.outcome.rec = observe.NewRecord("x", "/", time.Now(), nil)
		logAccess(q)
		text, err := json.Marshal(q.outcome.rec)
		if err != nil {
			t.Fatal(err)
		}
		for _, said := range []string{string(text), log.String()} {
			if !strings.Contains(said, "output_tokens") || strings.Contains(said, "prompt_tokens") {
				t.Errorf("%s", said)
			}
		}
	})
}
