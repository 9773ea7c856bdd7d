package orchestrator

import (
	"net/http"
	"time"

	"github.com/rs/cors"

	"github.com/tandem-router/tandem/internal/config"
)

// preflightKept is how long a browser may remember the answer to a preflight.
const preflightKept = 10 * time.Minute

// newCORS returns the policy by which web pages may ask the front; nil if no page may.
func newCORS(cfg *config.CORS) *cors.Cors {
	if len(cfg.Origins) == 0 {
		return nil
	}
	return cors.New(cors.Options{
		AllowedOrigins: cfg.Origins, AllowedMethods: []string{http.MethodGet, http.MethodPost},
		// No header field gives a page more rights than its user has: the front uses no cookies.
		AllowedHeaders: []string{"*"},
		ExposedHeaders: []string{
			"Retry-After", "X-Cache", "X-Request-Id",
			"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests",
			"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens",
			"X-Tandem-Decision", "X-Tandem-Mode", "X-Tandem-Matched-Tokens", "X-Tandem-Prefill", "X-Tandem-Decode",
		},
		MaxAge: int(preflightKept / time.Second),
	})
}

// preflight answers a browser that asks whether a page may send a request, and reports whether r was such a
// question. A preflight needs no key, because browsers send none. preflight also adds the header fields to
// other answers that let the page read them.
func (s *snapshot) preflight(w http.ResponseWriter, r *http.Request) bool {
	if s.cors == nil {
		return false
	}
	s.cors.HandlerFunc(w, r)
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}
