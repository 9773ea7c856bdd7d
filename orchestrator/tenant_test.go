package orchestrator

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
)

// The router reads a client's hints, and the decode engine gets them unchanged. The prefill leg's body is
// made by the router.
func TestHintsAreReadAndPassedOn(t *testing.T) {
	const hints = `"nvext":{"agent_hints":{"osl":5,"priority":3,"speculative_prefill":true}},"service_tier":"flex"`
	in(t, setup{config: func(c *config.Config) { c.Local = config.LocalNever }}, func(w *world) {
		p := chat(false)
		p.body = strings.Replace(p.body, `{`, `{`+hints+`,`, 1)
		w.exact(p, w.ask(p))
		answers := 0
		for _, sent := range w.posts(false) {
			if strings.HasPrefix(sent.engine, "p") {
				continue
			}
			answers++
			if !strings.Contains(sent.body, hints) {
				t.Errorf("%s got %s", sent.engine, sent.body)
			}
		}
		if answers != 1 {
			t.Errorf("%d engines got a decode leg, want 1", answers)
		}
		answer := httptest.NewRecorder()
		w.o.Admin().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/debug/decisions?n=1", nil))
		var shown []struct {
			Decision struct {
				Output int `json:"expected_output_tokens"`
			} `json:"decision"`
		}
		if err := json.Unmarshal(answer.Body.Bytes(), &shown); err != nil || len(shown) != 1 {
			t.Fatal(err, answer.Body)
		}
		if got := shown[0].Decision.Output; got < 4 || got > 6 {
			t.Errorf("expected output is %d tokens, want about the client's 5", got)
		}
	})
}

// Different keys are different tenants; without a key the tenant is 0.
func TestTenantsOfKeys(t *testing.T) {
	a, b := tenantOf("of-a"), tenantOf("of-b")
	if a == b || a == 0 || b == 0 || a != tenantOf("of-a") {
		t.Errorf("tenants %d and %d", a, b)
	}
	if got := tenantOf(""); got != 0 {
		t.Errorf("the tenant without a key is %d, want 0", got)
	}
}
