package orchestrator

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/orchestrator/picker"
)

// inSession adds header fields to a request.
func (p prompt) inSession(fields http.Header) prompt {
	p.header = fields
	return p
}

// Whatever a client calls its session, every leg of every path gets the id under one name. The id itself
// stands in nothing that people see, but the same part of its hash stands everywhere.
func TestASessionIsOneID(t *testing.T) {
	const label = "e8d206fee9217270" // printf 'tandem session %s' alice-7 | sha256sum | cut -c1-16
	var log bytes.Buffer
	set := setup{
		config:  func(c *config.Config) { c.Log.Access = true },
		options: logsTo(&log),
	}
	in(t, set, func(w *world) {
		requests := []prompt{
			chat(false), completion(true), {
				path: "/inference/v1/generate",
				body: `{"model":"sim","token_ids":[1,2],"sampling_params":{"max_tokens":3}}`,
			},
		}
		for i, name := range []string{
			"x-session-id", "x-dynamo-session-id", "x-claude-code-session-id", "session_id", "session-id",
			"thread-id", "x-session-affinity",
		} {
			w.wire.forget()
			fields := http.Header{}
			fields.Set(name, "alice-7")
			p := requests[i%len(requests)].inSession(fields)
			if got := w.ask(p); got.status != http.StatusOK {
				t.Fatalf("%s: status %d: %s", p.path, got.status, got.raw)
			}
			sent := w.posts(false)
			if len(sent) == 0 {
				t.Errorf("%s: no leg", p.path)
			}
			for _, leg := range sent {
				if got := leg.header["X-Session-Id"]; len(got) != 1 || got[0] != "alice-7" {
					t.Errorf("%s: %s %s got session %q", name, leg.engine, leg.path, got)
				}
			}
		}
		w.asked += w.count("tandem_requests_total", "/inference/v1/generate")
		decisions := w.get("admin", "/debug/decisions").raw
		var records []struct{ Session string }
		if err := json.Unmarshal([]byte(decisions), &records); err != nil || len(records) < 4 {
			t.Fatalf("%v: %d records", err, len(records))
		}
		for _, r := range records {
			if r.Session != label {
				t.Errorf("a record has session %q", r.Session)
			}
		}
		if n := strings.Count(log.String(), "session="+label); n != 7 {
			t.Errorf("%d lines of the access log name the session, want 7", n)
		}
		if shown := decisions + log.String() + w.metrics(); strings.Contains(shown, "alice") {
			t.Error("the id of a session is shown")
		}
		if strings.Contains(w.metrics(), label) {
			t.Error("metrics grow with sessions")
		}
	})
}

// A gateway's engines get the id, too.
func TestAPickedSessionIsPassedOn(t *testing.T) {
	in(t, setup{}, func(w *world) {
		g := &gateway{say: []any{picker.Part{Status: 200, ContentType: "application/json", End: true}}}
		p := chat(false).inSession(http.Header{"Thread-Id": {"s1"}})
		w.pick(p, g, time.Second)
		if g.to == nil || g.to.Session != "s1" {
			t.Errorf("the destination is %+v", g.to)
		}
	})
}

// The first name that holds a usable id counts. An unusable id is no id.
func TestSessionOf(t *testing.T) {
	long := strings.Repeat("a", longestSession)
	for _, row := range []struct {
		header http.Header
		want   string
	}{
		{nil, ""},
		{http.Header{"Thread-Id": {"t"}, "X-Session-Id": {"x"}, "X-Dynamo-Session-Id": {"d"}}, "x"},
		{http.Header{"Thread-Id": {"t"}, "X-Dynamo-Session-Id": {"d"}}, "d"},
		{http.Header{"Thread-Id": {"t"}, "X-Session-Id": {"a b"}}, "t"},
		{http.Header{"X-Session-Id": {"x", "y"}, "Session_id": {"s"}}, "s"},
		{http.Header{"X-Session-Id": {long}}, long},
		{http.Header{"X-Session-Id": {long + "a"}}, ""},
		{http.Header{"X-Session-Id": {""}}, ""},
		{http.Header{"X-Session-Id": {"ä"}}, ""},
		{http.Header{"X-Session-Id": {"a\tb"}}, ""},
		{http.Header{"X-Session-Token": {"bnMvcG9k"}}, ""},
	} {
		if got := sessionOf(row.header); got.id != row.want || (got.label == "") != (row.want == "") {
			t.Errorf("%v: %+v, want %q", row.header, got, row.want)
		}
	}
}

// Whatever a client sends as the id of its session, engines get a short word in visible ASCII, or nothing. A
// label tells two ids apart and does not hold them.
func FuzzSession(f *testing.F) {
	for _, seed := range []string{"", "s1", "a\r\nHost: b", "\x00", strings.Repeat("é", 200), " a", "a,b"} {
		f.Add(seed, "x", uint8(0))
	}
	f.Fuzz(func(t *testing.T, one, two string, at uint8) {
		h := http.Header{sessionHeaders[int(at)%len(sessionHeaders)]: {one}, "Thread-Id": {two}}
		s := sessionOf(h)
		switch {
		case s.id == "" && s.label != "", s.id != "" && len(s.label) != 16:
			t.Fatalf("session %+v", s)
		case len(s.id) > longestSession,
			strings.ContainsFunc(s.id, func(r rune) bool { return r <= ' ' || r > '~' }):
			t.Fatalf("engines would get %q", s.id)
		case s.id != "" && s.id != one && s.id != two:
			t.Fatalf("%q is no id that the client sent", s.id)
		}
		other := sessionOf(http.Header{"Thread-Id": {two}})
		if (s.id == other.id) != (s.label == other.label) {
			t.Fatalf("%+v and %+v", s, other)
		}
	})
}

// Engines get the hints of a client whose key allows hints, and of no other client. The answer is the same.
func TestHintsPassByKey(t *testing.T) {
	hinted := func(p prompt, secret string) prompt {
		p.body = strings.Replace(p.body, "{", `{"kv_hints":{"actions":[{"action_type":"pin"}]},`, 1)
		return p.shows(secret)
	}
	allow := func(c *config.Config) {
		teams(c)
		c.Keys[0].KVHints = true
	}
	whole := prompt{
		path: "/inference/v1/generate",
		body: `{"model":"sim","token_ids":[1,2],"sampling_params":{"max_tokens":3}}`,
	}
	for _, row := range []struct {
		config func(*config.Config)
		secret string
		passes bool
	}{{allow, "hush-a", true}, {allow, "hush-b", false}, {func(*config.Config) {}, "", false}} {
		in(t, setup{config: row.config}, func(w *world) {
			w.exact(chat(false), w.ask(hinted(chat(false), row.secret)))
			if got := w.ask(hinted(whole, row.secret)); got.status != http.StatusOK {
				t.Errorf("status %d: %s", got.status, got.raw)
			}
			w.asked += w.count("tandem_requests_total", "/inference/v1/generate")
			n := 0
			for _, leg := range w.posts(false) {
				n += strings.Count(leg.body, "kv_hints")
			}
			if (n == 2) != row.passes || n != 0 && n != 2 {
				t.Errorf("engines got %d hints with the key %q, passes %v", n, row.secret, row.passes)
			}
		})
	}
}
