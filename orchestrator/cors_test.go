package orchestrator

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
)

// from adds the origin of a web page to a request.
func (p prompt) from(origin string) prompt {
	if p.header = p.header.Clone(); p.header == nil {
		p.header = http.Header{}
	}
	p.header.Set("Origin", origin)
	return p
}

// Web pages of the listed origins may ask and read; pages of other origins may not. A preflight needs no key,
// but the request behind it does. An answer from the cache names the origin of the page that asks now, and
// not of the page that asked first.
func TestPagesOfListedOriginsMayAsk(t *testing.T) {
	const (
		ours  = "https://chat.example.com"
		below = "https://a.example.org:8443"
		other = "https://example.com"
	)
	in(t, remembering(teams, func(c *config.Config) {
		c.CORS.Origins = []string{ours, "https://*.example.org:8443"}
		c.Keys[0].Requests = 100
	}), func(w *world) {
		ask := prompt{method: http.MethodOptions, path: "/v1/chat/completions", header: http.Header{
			"Access-Control-Request-Method":  {"POST"},
			"Access-Control-Request-Headers": {"authorization,content-type,x-stainless-os"},
		}}
		for origin, want := range map[string]string{ours: ours, below: below, other: "", "null": ""} {
			got := w.send(w.t.Context(), "front:80", ask.from(origin))
			if got.status != http.StatusNoContent || got.header.Get("Access-Control-Allow-Origin") != want ||
				(got.header.Get("Access-Control-Allow-Headers") == "") != (want == "") {
				t.Errorf("preflight from %s: status %d, %v", origin, got.status, got.header)
			}
			p := chat(false).shows("hush-a")
			right := w.ask(p.from(origin))
			w.exact(p, right)
			shown := right.header.Get("Access-Control-Expose-Headers")
			if right.header.Get("Access-Control-Allow-Origin") != want || strings.Contains(
				shown, "X-Ratelimit-Remaining-Tokens") != (want != "") || right.header.Get("Vary") != "Origin" {
				t.Errorf("from %s: %v", origin, right.header)
			}
			refused := w.ask(chat(false).from(origin))
			if refused.status != http.StatusUnauthorized ||
				refused.header.Get("Access-Control-Allow-Origin") != want {
				t.Errorf("from %s without a key: status %d, %v", origin, refused.status, refused.header)
			}
		}
		if got := w.send(w.t.Context(), "admin:80", ask.from(ours)); got.header.Get(
			"Access-Control-Allow-Origin") != "" {
			t.Errorf("the admin listener lets a page ask: %v", got.header)
		}
	})
}

// Without origins there is no CORS: a preflight is an unknown method.
func TestNoPageMayAskByDefault(t *testing.T) {
	in(t, setup{}, func(w *world) {
		got := w.ask(prompt{method: http.MethodOptions, path: "/v1/chat/completions", header: http.Header{
			"Access-Control-Request-Method": {"POST"}, "Origin": {"https://chat.example.com"},
		}})
		if got.status != http.StatusMethodNotAllowed || got.header.Get("Vary") != "" ||
			got.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("status %d, %v", got.status, got.header)
		}
	})
}
