package orchestrator

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/classes"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/keys"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/page"
	"github.com/tandem-router/tandem/internal/waitline"
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

// refusing adds classes that refuse to a narrow configuration: chat after 90 ms, bulk never.
func refusing(c *config.Config) {
	classed(c)
	c.Classes[0].TTFT = config.Goal(30 * time.Millisecond)
	c.Classes[1].Refuse = config.Never
}

// The live page counts by class which requests wait, run, were refused, and kept their goals.
func TestClassesAreCounted(t *testing.T) {
	in(t, narrow(refusing), func(w *world) {
		of := func(name string) page.Class {
			for _, c := range w.o.admin.Live().Classes {
				if c.Name == name {
					return c
				}
			}
			return page.Class{}
		}
		first := w.begin(chat(true).shows("hush-b"))
		time.Sleep(time.Millisecond)
		urgent := w.begin(chat(true).shows("hush-a"))
		time.Sleep(time.Millisecond)
		if got, want := of("bulk"), (page.Class{Name: "bulk", Running: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if got, want := of("chat"), (page.Class{Name: "chat", Waiting: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if got := urgent.end(); got.status != http.StatusTooManyRequests {
			t.Errorf("%d %s", got.status, got.raw)
		}
		w.exact(chat(true), first.end())
		p := chat(true).shows("hush-a")
		w.exact(p, w.ask(p))
		got, want := of("chat"), page.Class{Name: "chat", Requests: 2, Refused: 1, Judged: 1, Kept: 1}
		if late := w.o.ring.Newest(1)[0]; late.Phases.First > 30 {
			want.Kept = 0
		}
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if got, want := of("bulk"), (page.Class{Name: "bulk", Requests: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// A request that waits for room is refused as soon as its first token is too late for its class. Requests of
// a class that refuses nothing wait on. A reload changes when a class refuses.
func TestAClassRefusesWhatIsTooLate(t *testing.T) {
	in(t, narrow(refusing), func(w *world) {
		first := w.begin(chat(true).shows("hush-b"))
		time.Sleep(time.Millisecond)
		second := w.begin(chat(true).shows("hush-b"))
		time.Sleep(time.Millisecond)
		urgent := chat(false).shows("hush-a")
		w.refused(urgent, w.ask(urgent), 90*time.Millisecond)

		next := *w.cfg
		next.Classes = slices.Clone(next.Classes)
		next.Classes[0].Refuse = config.Refusal(50 * time.Millisecond)
		if err := w.o.Apply(&next); err != nil {
			t.Fatal(err)
		}
		got := w.ask(urgent)
		w.refused(urgent, got, 50*time.Millisecond)
		if !strings.Contains(got.raw, "later than the 50ms that the router allows") {
			t.Errorf("the client reads %s", got.raw)
		}
		w.exact(chat(true), first.end())
		w.exact(chat(true), second.end())
		w.exact(urgent, w.ask(urgent))
		if n := w.count("tandem_refused_total", "too_late"); n != 2 {
			t.Errorf("counted %v refusals, want 2", n)
		}
		want := `tandem_class_requests_total{class="chat",outcome="too_late"} 2`
		if !strings.Contains(w.metrics(), want) {
			t.Errorf("%s is missing", want)
		}
	})
}

// The class alone refuses no request that a replica has failed: it waits for the next replica.
func TestAClassRefusesNoRetry(t *testing.T) {
	j := &job{origin: &origin{class: &classes.Class{}, goals: classes.Goals{TTFT: time.Second}}}
	j.snapshot = &snapshot{cfg: config.Default()}
	if by := j.firstTokenBy(); by != 3*time.Second {
		t.Errorf("too late after %v", by)
	}
	if j.attempts.tries = 2; j.firstTokenBy() != 0 {
		t.Errorf("a retry is too late after %v", j.firstTokenBy())
	}
	if j.cfg.Limits.FirstToken = time.Minute; j.firstTokenBy() != time.Minute {
		t.Errorf("with a limit, a retry is too late after %v", j.firstTokenBy())
	}
}

// A priority chooses among the classes that the key may use. The header comes before the body, and a value
// that is no integer does not count.
func TestPriorityChoosesAClass(t *testing.T) {
	c := config.Default()
	classed(c)
	table := keyTable(c, nil)
	for _, row := range []struct{ key, header, body, want string }{
		{"hush-a", "", `"priority":1`, "bulk"},
		{"hush-a", "", `"priority":-1`, "chat"},
		{"hush-a", "", `"nvext":{"agent_hints":{"priority":-3}}`, "bulk"},
		{"hush-a", "0", `"priority":1`, "chat"},
		{"hush-a", "7", `"priority":-1`, "bulk"},
		{"hush-a", "1.5", `"priority":1`, "bulk"},
		{"hush-a", "99999999999999999999", `"priority":0`, "chat"},
		{"hush-b", "-7", `"priority":-7`, "bulk"}, // may ask for nothing
	} {
		body, err := openai.Parse(openai.Completions, []byte(`{"prompt":"x",`+row.body+`}`), openai.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		r := &http.Request{Header: http.Header{priorityHeader: {row.header}}}
		q := &request{
			snapshot: &snapshot{classes: classTable(c)}, origin: origin{r: r, key: table.Find(row.key)},
		}
		if classify(q, "m", body); q.className() != row.want {
			t.Errorf("%+v: class %s", row, q.className())
		}
	}
}

// The flows that a client names divide the share of its tenant, and no client names flows whose key may not
// choose.
func TestFlowsOfATenant(t *testing.T) {
	c := config.Default()
	classed(c)
	table := keyTable(c, nil)
	now := time.Now()
	of := func(key, flow string) waitline.Order {
		return flowOf(table.Find(key), http.Header{flowHeader: {flow}}, now)
	}
	group := table.Find("hush-a").Group
	if o := of("hush-a", ""); o.Tenant != group || o.Weight != 1 {
		t.Errorf("without a flow: %+v", o)
	}
	a := of("hush-a", "user-a")
	if a.Tenant == group || a.Tenant != of("hush-a", "user-a").Tenant || a.Weight != 0.5 {
		t.Errorf("a flow beside others: %+v", a)
	}
	for i := range 1000 {
		if o := of("hush-a", strings.Repeat("x", i)); i > 500 && o.Weight > 0.1 {
			t.Fatalf("many flows: %+v", o)
		}
	}
	if o := of("hush-b", "user-a"); o.Tenant != table.Find("hush-b").Group || o.Weight != 1 {
		t.Errorf("a key that may not choose: %+v", o)
	}
	if o := flowOf(nil, nil, now); o != (waitline.Order{}) {
		t.Errorf("without keys: %+v", o)
	}
}

// What a key adds to each request takes little memory: nothing for hints that the client does not send, and
// eight pieces for the header fields of the limits.
func TestAKeyTakesLittleMemory(t *testing.T) {
	body, err := openai.Parse(openai.Chat, []byte(`{"messages":[]}`), openai.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	table := classes.NewTable([]classes.Class{{Name: "a", Goals: classes.Goals{TTFT: 1, TPOT: 1}}, {Name: "b"}})
	client, answer := http.Header{}, http.Header{}
	standing := keys.Standing{
		Limits: keys.Limits{Requests: 10, Tokens: 20_000}, Requests: 9, Tokens: 19_000,
		RequestsReset: time.Minute, TokensReset: time.Second,
	}
	for name, tt := range map[string]struct {
		most float64
		do   func()
	}{
		"a priority": {0, func() { priorityOf(client, body) }},
		"a class": {0, func() {
			table.Of(&classes.Request{
				Client: classes.Client{Known: true, Class: "a", May: []string{"b"}}, Header: client.Get,
			})
		}},
		"header fields": {8, func() { tellStanding(answer, standing) }},
	} {
		if n := testing.AllocsPerRun(100, tt.do); n > tt.most {
			t.Errorf("%s: %v allocations, want at most %v", name, n, tt.most)
		}
	}
}
