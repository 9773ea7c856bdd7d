package orchestrator

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
)

// classed is a configuration with two classes, for the keys of two teams.
func classed(c *config.Config) {
	teams(c)
	c.Classes = []config.Class{
		{Name: "chat", TTFT: config.Goal(5 * time.Second)},
		{Name: "bulk", Match: config.Match{Keys: []string{"team-b"}}},
	}
	c.Keys[0].Class, c.Keys[0].Classes = "chat", []string{"bulk"}
}

// The class of a request stands wherever a request is told of. A class that is removed loses its series.
func TestClassOfARequestIsShown(t *testing.T) {
	var log bytes.Buffer
	in(t, setup{config: classed, options: logsTo(&log)}, func(w *world) {
		p := chat(true).shows("hush-a")
		w.exact(p, w.ask(p))
		asks := chat(false).shows("hush-a")
		asks.header.Set("X-Llm-D-Inference-Objective", "bulk")
		w.exact(asks, w.ask(asks))
		p = chat(false).shows("hush-b")
		w.exact(p, w.ask(p))

		decisions := w.get("admin", "/debug/decisions").raw
		metrics := w.metrics()
		for text, wants := range map[string][]string{
			decisions:    {`"class": "chat"`, `"class": "bulk"`},
			log.String(): {"class=chat", "class=bulk"},
			metrics: {
				`tandem_class_requests_total{class="chat",outcome="ok"} 1`,
				`tandem_class_requests_total{class="bulk",outcome="ok"} 2`,
				`tandem_class_time_to_first_token_seconds_count{class="chat"} 1`,
			},
		} {
			for _, want := range wants {
				if !strings.Contains(text, want) {
					t.Errorf("%s is not in %s", want, text)
				}
			}
		}
		next := *w.cfg
		next.Classes = next.Classes[:1]
		if err := w.o.Apply(&next); err != nil {
			t.Fatal(err)
		}
		metrics = w.metrics()
		if strings.Contains(metrics, `class="bulk"`) || !strings.Contains(metrics, `class="chat"`) {
			t.Error("the series of bulk are there, or those of chat are not")
		}
	})
}

// Without classes nothing shows the word.
func TestNothingShowsClassesWithout(t *testing.T) {
	var log bytes.Buffer
	in(t, setup{config: teams, options: logsTo(&log)}, func(w *world) {
		p := chat(true).shows("hush-a")
		w.exact(p, w.ask(p))
		var all strings.Builder
		all.WriteString(log.String() + w.get("admin", "/debug/decisions").raw)
		for line := range strings.SplitSeq(w.metrics(), "\n") {
			if strings.HasPrefix(line, "tandem_") {
				all.WriteString(line)
			}
		}
		if strings.Contains(all.String(), "class") {
			t.Errorf("a class is shown in %s", all.String())
		}
	})
}
