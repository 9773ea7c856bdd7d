package orchestrator

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
)

// teams is a configuration with the keys of two teams.
func teams(c *config.Config) {
	c.Log.Access = true
	c.Keys = []config.Key{
		{Name: "team-a", Secret: config.Secret{Value: "hush-a"}},
		{Name: "team-b", Secret: config.Secret{Value: "hush-b"}, Tenant: "b"},
	}
}

// shows adds a secret to a request.
func (p prompt) shows(secret string) prompt {
	p.header = http.Header{"Authorization": {"Bearer " + secret}}
	return p
}

// metrics is the page of metrics.
func (w *world) metrics() string {
	w.t.Helper()
	return w.get("admin", "/metrics").raw
}

// The name of a key stands wherever a request is told of, and its secret nowhere.
func TestNameOfAKeyIsShown(t *testing.T) {
	var log bytes.Buffer
	logs := func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) }
	in(t, setup{config: func(c *config.Config) { longAnswers(c); teams(c) }, options: logs}, func(w *world) {
		p := chat(true).shows("hush-a")
		w.exact(p, w.ask(p))
		long := longPrompt(1500).shows("hush-b")
		running := w.begin(long)
		time.Sleep(time.Second)
		raw, rows := w.inFlight()
		if len(rows) != 1 || rows[0].Key != "team-b" {
			t.Errorf("in flight is %s", raw)
		}
		running.end()
		w.ask(chat(false).shows("hush-c"))

		var records []struct{ Key string }
		decisions := w.get("admin", "/debug/decisions").raw
		if err := json.Unmarshal([]byte(decisions), &records); err != nil || len(records) != 2 ||
			records[0].Key != "team-b" || records[1].Key != "team-a" {
			t.Errorf("%v, records %s", err, decisions)
		}
		metrics := w.metrics()
		for _, want := range []string{
			`tandem_key_requests_total{key="team-a",outcome="ok"} 1`,
			`tandem_key_requests_total{key="team-b",outcome=`,
		} {
			if !strings.Contains(metrics, want) {
				t.Errorf("metrics do not have %s", want)
			}
		}
		if n := strings.Count(metrics, "\ntandem_key_requests_total"); n != 2 {
			t.Errorf("%d series by key", n)
		}
		for _, want := range []string{"key=team-a", "key=team-b", "outcome=unauthorised"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not have %s: %s", want, &log)
			}
		}
		if all := metrics + log.String() + decisions + raw; strings.Contains(all, "hush") {
			t.Error("a secret is shown")
		}
	})
}

// A key that is removed is refused at once, and its series goes; the others keep theirs.
func TestARemovedKeyIsForgotten(t *testing.T) {
	in(t, setup{config: teams}, func(w *world) {
		for _, secret := range []string{"hush-a", "hush-b"} {
			p := chat(false).shows(secret)
			w.exact(p, w.ask(p))
		}
		next := *w.cfg
		next.Keys = next.Keys[1:]
		if err := w.o.Apply(&next); err != nil {
			w.t.Fatal(err)
		}
		if got := w.ask(chat(false).shows("hush-a")); got.status != http.StatusUnauthorized {
			t.Errorf("status %d with a key that was removed", got.status)
		}
		metrics := w.metrics()
		if strings.Contains(metrics, "team-a") || !strings.Contains(metrics, `{key="team-b",outcome="ok"} 1`) {
			t.Error("the series of team-a is there, or that of team-b is not")
		}
	})
}

// Keys of one tenant share stored answers; other keys do not.
func TestATenantSharesAnswers(t *testing.T) {
	in(t, remembering(teams, func(c *config.Config) {
		c.Keys = append(c.Keys, config.Key{Name: "team-b2", Secret: config.Secret{Value: "hush-b2"}, Tenant: "b"})
	}), func(w *world) {
		w.fromCache(chat(false).shows("hush-b"), "MISS")
		w.fromCache(chat(false).shows("hush-b2"), "HIT")
		w.fromCache(chat(false).shows("hush-a"), "MISS")
	})
}

// FuzzAuthorization finds no header that is let in without a secret of a key.
func FuzzAuthorization(f *testing.F) {
	cfg := config.Default()
	teams(cfg)
	snap := &snapshot{cfg: cfg, keys: keyTable(cfg)}
	f.Add("Bearer hush-a", "hush-b")
	f.Add("bearer  hush-a", "")
	f.Add("Bearer "+strings.Repeat("hush-a", 200_000), "\x00")
	f.Fuzz(func(t *testing.T, authorization, apiKey string) {
		r := httptest.NewRequest(http.MethodPost, "/v1/completions", nil)
		r.Header["Authorization"], r.Header["X-Api-Key"] = []string{authorization}, []string{apiKey}
		q := &request{snapshot: snap, origin: origin{r: r}}
		scheme, token, _ := strings.Cut(authorization, " ")
		if !strings.EqualFold(scheme, "bearer") || !strings.Contains(authorization, " ") {
			token = apiKey
		}
		want := map[string]string{"hush-a": "team-a", "hush-b": "team-b"}[token]
		if let := q.authorised(); let != (want != "") || q.keyName() != want {
			t.Errorf("%q, %q: let in %v as %q, want %q", authorization, apiKey, let, q.keyName(), want)
		}
	})
}
