package orchestrator

import (
	"bufio"
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// called returns p with the client's own request id.
func called(p prompt, id string) prompt {
	p.header = http.Header{"X-Request-Id": {id}}
	return p
}

// A client's own request id is in its answer and finds its record. Engines get only ids of the router,
// also if two requests have the same client id.
func TestAClientsOwnID(t *testing.T) {
	in(t, setup{}, func(w *world) {
		for range 2 {
			if got := w.ask(called(chat(true), "order-17:a")); got.header.Get("X-Request-Id") != "order-17:a" ||
				got.status != http.StatusOK {
				t.Errorf("status %d under %q", got.status, got.header.Get("X-Request-Id"))
			}
		}
		kept := w.o.ring.Newest(2)
		if rec := w.o.Record("order-17:a"); rec != kept[0] || rec.ClientID != "order-17:a" || rec.ID == kept[1].ID {
			t.Errorf("found %+v, want the newest of %s and %s", rec, kept[0].ID, kept[1].ID)
		}
		seen := map[string]bool{}
		for _, s := range w.posts(false) {
			id := s.engine + " " + s.header.Get("X-Request-Id")
			if strings.Contains(id, "order") || seen[id] {
				t.Errorf("an engine got the client's id, or an id twice: %q", id)
			}
			seen[id] = true
		}
		if len(seen) != 4 {
			t.Errorf("two split requests have %d different legs, want 4", len(seen))
		}
	})
}

func TestWhichIDsOfClientsAreKept(t *testing.T) {
	for id, want := range map[string]bool{
		"0f1e-2d": true, "a.b:c_d+e=f@g": true, strings.Repeat("x", 128): true,
		"": false, strings.Repeat("x", 129): false, "a b": false, "a\tb": false, "a/b": false, "é": false,
		`a"b`: false, "a\nb": false,
	} {
		if got := clientID(http.Header{"X-Request-Id": {id}}); (got == id && id != "") != want ||
			!want && got != "" {
			t.Errorf("id %.20q: kept as %.20q", id, got)
		}
	}
	if got := clientID(http.Header{"X-Request-Id": {"a", "b"}}); got != "" {
		t.Errorf("a header with two ids: kept %q, want none", got)
	}
}

// The record of a retried request has each failed attempt with its replicas and its failure, and the
// configuration of the decision.
func TestAllAttemptsStandInTheRecord(t *testing.T) {
	in(t, setup{}, func(w *world) {
		for _, d := range w.d {
			fault(enginesim.Fault{Kind: "fail", Count: 1})(w, d)
		}
		w.ask(chat(true))
		rec := w.o.ring.Newest(1)[0]
		if rec.Attempts < 2 || len(rec.Failed) < 1 {
			t.Fatalf("%d attempts, and these failed: %+v", rec.Attempts, rec.Failed)
		}
		f := rec.Failed[0]
		if f.At != f.Decode || f.Prefill == "" || f.Phase != "decode" ||
			f.Status != http.StatusInternalServerError || f.Reason == "" || f.Took <= 0 || f.Mode != "split" {
			t.Errorf("first attempt: %+v", f)
		}
		if rec.Outcome == "ok" && len(rec.Failed) != rec.Attempts-1 {
			t.Errorf("%d attempts, and %d failed", rec.Attempts, len(rec.Failed))
		}
		was := rec.Config
		cfg := *w.cfg
		cfg.Scoring.Gamma = 3
		if err := w.o.Apply(&cfg); err != nil {
			t.Fatal(err)
		}
		w.ask(chat(false))
		if now := w.o.ring.Newest(1)[0].Config; now.Gamma != 3 || now.Revision == was.Revision || was.Gamma != 1 ||
			was.Alpha != "auto" {
			t.Errorf("decided with the configuration %+v, then %+v", was, now)
		}
		if n := w.count("tandem_config_info", w.o.ring.Newest(1)[0].Config.Revision); n != 1 {
			t.Errorf("the series of the current revision is %d, want 1", n)
		}
	})
}

// recordsIn returns the ids of the records in a file.
func recordsIn(t *testing.T, file string) (ids []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		var r observe.Record
		if err := json.Unmarshal(s.Bytes(), &struct {
			ID *string `json:"id"`
		}{&r.ID}); err != nil {
			t.Fatalf("%q: %v", s.Text(), err)
		}
		ids = append(ids, r.ID)
	}
	return ids
}

// Every record is in the file that was configured when its request ended, up to the last record before the
// router ends.
func TestDecisionsInAFile(t *testing.T) {
	folder := t.TempDir()
	first, second := filepath.Join(folder, "first.jsonl"), filepath.Join(folder, "second.jsonl")
	var want, then []string
	in(t, setup{config: func(c *config.Config) { c.Decisions.File = first }}, func(w *world) {
		for range 3 {
			w.ask(chat(true))
			want = append(want, w.o.ring.Newest(1)[0].ID)
		}
		time.Sleep(time.Second)
		cfg := *w.cfg
		cfg.Decisions.File = filepath.Join(folder, "missing", "third.jsonl")
		if err := w.o.Apply(&cfg); err == nil || !strings.Contains(err.Error(), "decisions.file") {
			t.Errorf("a file that cannot be created was accepted: %v", err)
		}
		w.ask(chat(true))
		want = append(want, w.o.ring.Newest(1)[0].ID)
		time.Sleep(time.Second)
		cfg.Decisions.File = second
		if err := w.o.Apply(&cfg); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.ask(chat(false))
		then = append(then, w.o.ring.Newest(1)[0].ID)
		if n := w.count("tandem_decisions_unwritten_total", ""); n != 0 {
			t.Errorf("%d records were not written, want 0", n)
		}
	})
	if got := recordsIn(t, first); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the first file has %v, want %v", got, want)
	}
	if got := recordsIn(t, second); strings.Join(got, " ") != strings.Join(then, " ") {
		t.Errorf("the second file has %v, want %v", got, then)
	}
}

// onFullDisk configures a file that accepts no data.
func onFullDisk(c *config.Config) { c.Decisions.File = "/dev/full" }

// A full disk loses records, which are counted, but no request.
func TestADiskThatTakesNothing(t *testing.T) {
	in(t, setup{config: onFullDisk}, func(w *world) {
		for range 3 {
			w.exact(chat(true), w.ask(chat(true)))
		}
		time.Sleep(time.Second)
		if n := w.count("tandem_decisions_unwritten_total", "failed"); n != 3 {
			t.Errorf("counted %d of 3 records as not written", n)
		}
	})
}

// The access log has one line for each ended request, and no prompt text.
func TestAccessLog(t *testing.T) {
	var text bytes.Buffer
	o := setup{
		config:  func(c *config.Config) { c.Log.Access = true },
		options: func(o *Options) { o.Log = slog.New(slog.NewJSONHandler(&text, nil)) },
	}
	in(t, o, func(w *world) {
		w.ask(called(chat(true), "mine"))
		w.ask(prompt{
			path: "/v1/chat/completions", body: `{"model":"nobody","messages":[{"role":"user","content":"word1"}]}`,
		})
	})
	var got []map[string]any
	for s := bufio.NewScanner(&text); s.Scan(); {
		line := map[string]any{}
		if err := json.Unmarshal(s.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if line["msg"] == "request" {
			got = append(got, line)
		}
		if strings.Contains(s.Text(), "word1") {
			t.Errorf("a prompt is in the log: %s", s.Text())
		}
	}
	if len(got) != 2 {
		t.Fatalf("%d lines of 2 requests: %v", len(got), got)
	}
	if a := got[0]; a["client_id"] != "mine" || a["status"] != 200. || a["outcome"] != "ok" ||
		a["mode"] != "split" || a["decode"] == "" || a["output_tokens"] != 12. {
		t.Errorf("line of the first request: %v", a)
	}
	if b := got[1]; b["status"] != 404. || b["outcome"] != "unknown_model" {
		t.Errorf("line of the second request: %v", b)
	}
}

// accessLines returns the lines of the access log as objects.
func accessLines(t *testing.T, text []byte) (all []map[string]any) {
	t.Helper()
	for line := range bytes.Lines(text) {
		m := map[string]any{}
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		if m["msg"] == "request" {
			all = append(all, m)
		}
	}
	return all
}

// withAccess is the setup of a world that writes its access log as JSON into text.
func withAccess(text *bytes.Buffer) setup {
	return setup{
		config: func(c *config.Config) {
			c.Log.Access = true
			c.Retry.Continue = config.ContinueOff
		},
		options: func(o *Options) { o.Log = slog.New(slog.NewJSONHandler(text, nil)) },
	}
}

// A broken stream has one outcome: the log, the access log, the record and the counters have the same
// status and kind, and the status that the client had received before.
func TestABrokenStreamHasOneStatus(t *testing.T) {
	var text bytes.Buffer
	in(t, withAccess(&text), func(w *world) {
		for _, d := range w.d {
			cutStream(w, d)
		}
		if got := w.ask(chat(true)); got.status != http.StatusOK || got.fail.Code != http.StatusBadGateway {
			t.Fatalf("status %d, event %d", got.status, got.fail.Code)
		}
		if r := w.o.ring.Newest(1)[0]; r.Status != http.StatusBadGateway || r.Outcome != "broken" {
			t.Errorf("the record has %d %s", r.Status, r.Outcome)
		}
		for _, name := range []string{"tandem_requests_total", "tandem_attempt_failures_total"} {
			if n := w.count(name, "broken"); n != 1 {
				t.Errorf("%s counts %d as broken, want 1", name, n)
			}
		}
	})
	lines := accessLines(t, text.Bytes())
	if len(lines) != 1 || lines[0]["status"] != 502. || lines[0]["sent"] != 200. ||
		lines[0]["outcome"] != "broken" {
		t.Errorf("the access log has %v", lines)
	}
	if !strings.Contains(text.String(), `"kind":"broken","status":502,`) ||
		!strings.Contains(text.String(), `"sent":200}`) {
		t.Errorf("the log has\n%s", text.String())
	}
}

// A request for an unknown path is logged and counted as any other, with a label that no client can
// choose.
func TestWhatDoesNotExistIsLoggedAndCounted(t *testing.T) {
	var text bytes.Buffer
	in(t, withAccess(&text), func(w *world) {
		long := "/" + strings.Repeat("x", 2*maxPath)
		for _, p := range []prompt{
			{method: "GET", path: "/nope?key=s3cret"},
			{method: "POST", path: "/reset_prefix_cache", body: "{}"},
			{method: "GET", path: long},
			{method: "GET", path: "/v1/chat/completions"},
		} {
			got := w.send(w.t.Context(), "front:80", called(p, "mine"))
			if want := map[bool]int{true: 405, false: 404}[p.path == "/v1/chat/completions"]; got.status != want ||
				got.raw != `{"detail":"`+http.StatusText(want)+`"}` || got.header.Get("X-Request-Id") != "mine" {
				t.Errorf("%s %.30s: %d %s %v", p.method, p.path, got.status, got.raw, got.header)
			}
		}
		if n := w.count("tandem_requests_total", "unknown_path"); n != 3 {
			t.Errorf("counted %d unknown paths, want 3", n)
		}
		if n := w.count("tandem_requests_total", "unknown_method"); n != 1 {
			t.Errorf("counted %d unknown methods, want 1", n)
		}
		if n := w.count("tandem_requests_total", otherPath); n != 4 {
			t.Errorf("counted %d requests with the label for other paths, want 4", n)
		}
		w.asked = 4
	})
	lines := accessLines(t, text.Bytes())
	if len(lines) != 4 || lines[0]["path"] != "/nope" || lines[0]["status"] != 404. ||
		lines[0]["client_id"] != "mine" || lines[1]["path"] != "/reset_prefix_cache" ||
		lines[3]["outcome"] != "unknown_method" || len(lines[2]["path"].(string)) != maxPath ||
		strings.Contains(text.String(), "s3cret") {
		t.Errorf("the access log has %v", lines)
	}
}

// Response headers name the replicas if response.replicas is set.
func TestReplicasInHeaders(t *testing.T) {
	in(t, setup{config: func(c *config.Config) { c.Response.Replicas = true }}, func(w *world) {
		got := w.ask(chat(true))
		rec := w.o.ring.Newest(1)[0]
		if h := got.header; h.Get("X-Tandem-Prefill") != rec.Prefill || h.Get("X-Tandem-Decode") != rec.Decode ||
			h.Get("X-Tandem-Mode") != "" {
			t.Errorf("headers %v of %s > %s", h, rec.Prefill, rec.Decode)
		}
	})
}
