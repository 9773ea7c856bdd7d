package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// limitedClients is a real client that uses up the limits of its keys. It waits for a minute, so it runs
// beside the other clients.
type limitedClients struct {
	engine  *httptest.Server
	router  *router
	process *process
}

// startLimited starts a router with limited keys and the client. Limits need no pair of engines: the router
// has the reference alone, through a proxy that can refuse.
func (s *stage) startLimited(ctx context.Context) (*limitedClients, error) {
	to, err := url.Parse(s.reference().url())
	if err != nil {
		return nil, err
	}
	l := &limitedClients{engine: httptest.NewServer(overloaded(httputil.NewSingleHostReverseProxy(to)))}
	text := fmt.Sprintf(`pools: {decode: {replicas: [{name: ref, url: %q}], index: approximate}}
local: always
keys:
  - {name: few-requests, secret: {value: few-requests}, requests_per_minute: 3}
  - {name: few-tokens, secret: {value: few-tokens}, tokens_per_minute: 200}
  - {name: no-limits, secret: {value: no-limits}}
`, l.engine.URL)
	file := filepath.Join(s.work, "tandem-limits.yaml")
	if err = os.WriteFile(file, []byte(text), 0o644); err == nil {
		l.router, err = s.serve(ctx, file)
	}
	if err == nil {
		l.process, err = s.startScript("with_openai_limits.py", l.router)
	}
	if err != nil {
		l.engine.Close()
		return nil, err
	}
	return l, nil
}

// end waits for the client and returns its report. The router of the other clients does not matter.
func (l *limitedClients) end(ctx context.Context, s *stage, _ *router) ([]checked, error) {
	defer l.engine.Close()
	text, err := s.endProgram(ctx, l.process)
	if err == nil {
		err = awaitReleased(ctx, l.router)
	}
	return readChecks(text), errors.Join(err, l.router.end())
}

// overloaded passes requests on to an engine. It refuses requests of the user slow-down, with a wait of ten
// minutes.
func overloaded(engine http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the router has closed the connection
		}
		if strings.Contains(string(body), `"slow-down"`) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Retry-After", "600")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"error":{"message":"The engine is overloaded.",`+
				`"type":"RateLimitError","param":null,"code":429}}`)
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		engine.ServeHTTP(w, r)
	})
}
