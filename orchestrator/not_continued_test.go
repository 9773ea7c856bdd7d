package orchestrator

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/openai"
)

// If a broken stream is not continued, the record and the log line give the reason.
func TestWhyAStreamWasNotContinued(t *testing.T) {
	cut := enginesim.Fault{Kind: "cut_stream", After: 5}
	sampled := func(p prompt) prompt {
		p.body = strings.Replace(p.body, `"temperature":0`, `"temperature":0.7`, 1)
		return p
	}
	chat := greedy("/v1/chat/completions", 12, "")
	for _, c := range []struct {
		name   string
		config func(*config.Config)
		p      prompt
		faults []enginesim.Fault
		want   string
	}{
		{"sampled", nil, sampled(chat), []enginesim.Fault{cut}, "sampled"},
		{
			"off", func(c *config.Config) { c.Retry.Continue = config.ContinueOff }, chat,
			[]enginesim.Fault{cut},
			"off",
		},
		{
			"tools", nil,
			greedy(chat.path, 12, `"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none",`),
			[]enginesim.Fault{cut},
			"request",
		},
		{"a field of tomorrow", nil, greedy(chat.path, 12, `"tomorrow":1,`), []enginesim.Fault{cut}, "request"},
		{"an API", nil, greedy("/v1/messages", 12, ""), []enginesim.Fault{cut}, "api"},
		{
			"passed on as it came", nil, greedy("/v1/messages", 12, `"mcp_servers":[{"name":"x"}],`),
			[]enginesim.Fault{cut},
			"whole",
		},
		{
			"an error event", nil, sampled(chat),
			[]enginesim.Fault{{Kind: "fail_stream", After: 5, Status: 500}},
			"sampled",
		},
		{
			"no budget", func(c *config.Config) { c.Retry.Share, c.Retry.Min = 0, 0 }, chat,
			[]enginesim.Fault{cut},
			"no_budget",
		},
		{"too often", nil, greedy(chat.path, 60, ""), []enginesim.Fault{cut, cut, cut, cut}, "too_often"},
		{"it goes on", nil, chat, []enginesim.Fault{cut}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := &logged{}
			logs := func(o *Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) }
			in(t, unejected(setup{decode: 5, config: c.config, options: logs}), func(w *world) {
				w.dies(c.faults...)
				got := w.ask(c.p)
				w.at("decode", nil)
				w.settled()
				rec := w.o.Record(got.header.Get("X-Request-Id"))
				if rec == nil || rec.NotContinued != c.want {
					t.Errorf("the record is %+v, want %q; the client got %q", rec, c.want, got.raw)
					return
				}
				if (c.want == "") != (rec.Outcome == "ok") {
					t.Errorf("the request ended as %s", rec.Outcome)
				}
				log.notContinued(t, c.want)
			})
		})
	}
}

// The same for reasons that come from the engine's own events.
func TestWhyAStreamWasNotContinuedByItsEvents(t *testing.T) {
	said := func(text, ids string) string {
		return strings.Replace(roleEvent, `"content":""},`, `"content":"`+text+`"},"token_ids":`+ids+`,`, 1)
	}
	named := strings.Replace(roleEvent, `"choices"`, `"prompt_token_ids":[1,2],"choices"`, 1)
	thought := strings.Replace(said("", "[8]"), `"content":""`, `"reasoning_content":"x"`, 1)
	for want, events := range map[string][]string{
		engineRefused:  {named, said("a", "[8]"), errorOf(openai.Chat, 429)},
		nothingLeft:    {named, said("a", "[8]"), said("b", "[9]")},
		openai.NoIDs:   {roleEvent, said("a", "[8]")},
		openai.NotText: {named, thought},
		continueGreedy: {named, said("a", "[8]"), errorOf(openai.Chat, 500)},
		"":             {named, said("a", "[8]"), errorOf(openai.Chat, 400)},
	} {
		t.Run(want, func(t *testing.T) {
			log := &logged{}
			logs := func(o *Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) }
			in(t, unejected(setup{options: logs}), func(w *world) {
				w.at("decode", func(at string) {
					w.at("decode", nil)
					w.wire.scripted(w.by(at).addr, streamOf(events...))
				})
				p := greedy("/v1/chat/completions", 2, "")
				if want == continueGreedy {
					p.body = strings.Replace(p.body, `"temperature":0`, `"temperature":0.7`, 1)
				}
				got := w.ask(p)
				w.settled()
				rec := w.o.Record(got.header.Get("X-Request-Id"))
				if rec == nil || rec.NotContinued != want || rec.Outcome == "ok" {
					t.Fatalf("the record is %+v; the client got %q", rec, got.raw)
				}
				if want != "" && want != engineRefused { // a status below 500 is not logged
					log.notContinued(t, want)
				}
			})
		})
	}
}

// notContinued checks that the log lines of broken streams have this reason, and other lines have none.
func (l *logged) notContinued(t *testing.T, want string) {
	t.Helper()
	said := false
	for _, line := range l.of("stream broke off") {
		_, reason, has := strings.Cut(strings.TrimSpace(line)+" ", " not_continued=")
		reason, _, _ = strings.Cut(reason, " ")
		said = said || has
		if has && reason != want {
			t.Errorf("%s: want %q", line, want)
		}
		if has != (want != "") && strings.Contains(line, "level=WARN") {
			t.Errorf("%s: want %q", line, want)
		}
	}
	if said != (want != "") {
		t.Errorf("no line has the reason %q: %v", want, l.of("stream broke off"))
	}
}

// A stream that its client or the router ends has no reason: it did not have to be continued.
func TestAStreamThatIsEndedWasNotToBeContinued(t *testing.T) {
	in(t, setup{}, func(w *world) {
		w.ask(greedy("/v1/completions", 12, ""), func(event int) {
			if event == 2 {
				leave(w, nil)
			}
		})
		w.settled()
		if rec := w.o.ring.Newest(1); len(rec) != 1 || rec[0].NotContinued != "" || rec[0].Outcome != goneName {
			t.Errorf("%+v", rec)
		}
	})
}
