package orchestrator

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/orchestrator/peers"
)

// gated sends a request to the admin handler through its gate.
func (w *world) gated(method, path, host string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(w.t.Context(), method, "http://x"+path, nil)
	r.Host = host
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	w.o.admin.Gate(w.o.Admin()).ServeHTTP(rec, r)
	return rec
}

// A web page can make its own domain name resolve to the admin listener. It can then neither reload nor
// read anything that is not public.
func TestAdminKnowsItsNames(t *testing.T) {
	names := func(c *config.Config) {
		c.Admin.Listen, c.Admin.Hosts = "Router.internal:9090", []string{"tandem.example"}
	}
	in(t, setup{config: names}, func(w *world) {
		for _, tt := range []struct {
			host  string
			known bool
		}{
			{"127.0.0.1:9090", true},
			{"10.1.2.3", true},
			{"[::1]:9090", true},
			{"[fe80::1]", true},
			{"localhost:9090", true},
			{"LOCALHOST.", true},
			{"a.localhost:1", true},
			{"router.internal:9090", true},
			{"tandem.example", true},
			{"Tandem.Example.:9090", true},
			{"evil.example", false},
			{"evil.example:9090", false},
			{"127.0.0.1.evil.example:9090", false},
			{"localhost.evil.example", false},
			{"evillocalhost", false},
			{"tandem.example.evil", false},
			{"", false},
			{":9090", false},
			{"127.0.0.1:9090@evil.example", false},
		} {
			for _, ask := range []struct{ method, path string }{
				{"POST", "/-/reload"},
				{"GET", "/-/config"},
				{"GET", "/debug/decisions"},
				{"GET", "/debug/replicas"},
				{"GET", "/debug/pprof/"},
				{"POST", "/debug/explain"},
			} {
				rec := w.gated(ask.method, ask.path, tt.host)
				if refused := rec.Code == 403; refused == tt.known ||
					refused && !strings.Contains(rec.Body.String(), "admin.hosts") {
					t.Errorf("%s as %q: %d %s", ask.path, tt.host, rec.Code, rec.Body)
				}
			}
			for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
				if rec := w.gated("GET", path, tt.host); rec.Code != 200 {
					t.Errorf("%s as %q: %d", path, tt.host, rec.Code)
				}
			}
			for _, ask := range []struct {
				as     []string
				router bool
			}{
				{[]string{"Accept-Encoding", "identity"}, true},
				{nil, false},
				{[]string{"Accept-Encoding", "gzip, deflate, br, zstd"}, false},
				// fetch with a Range header sends this
				{[]string{"Accept-Encoding", "identity", "Range", "bytes=0-"}, false},
			} {
				rec := w.gated("GET", peers.Path, tt.host, ask.as...)
				if open := rec.Code == 200; open != (tt.known || ask.router) {
					t.Errorf("%s as %q with %q: %d", peers.Path, tt.host, ask.as, rec.Code)
				}
			}
			if named := strings.Contains(w.gated("GET", "/readyz", tt.host).Body.String(),
				".internal:8000"); named != tt.known {
				t.Errorf("/readyz as %q names replicas: %v", tt.host, named)
			}
		}
	})
}

// The admin listener refuses POST requests from pages of other sites, under any host name.
func TestAdminTakesNoPostsOfOtherSites(t *testing.T) {
	in(t, setup{}, func(w *world) {
		for _, header := range [][]string{
			{"Origin", "http://evil.example"}, {"Sec-Fetch-Site", "cross-site"}, {"Origin", "null"},
		} {
			if rec := w.gated("POST", "/-/reload", "127.0.0.1:9090", header...); rec.Code != 403 {
				t.Errorf("%v: %d %s", header, rec.Code, rec.Body)
			}
		}
		if rec := w.gated("POST", "/-/reload", "127.0.0.1:9090"); rec.Code == 403 {
			t.Errorf("without browser headers: %d %s", rec.Code, rec.Body)
		}
	})
}

// With admin.token set, requests need the token under any host name. Probes and scrapers need none.
func TestAdminToken(t *testing.T) {
	in(t, setup{config: func(c *config.Config) { c.Admin.Token = config.Secret{Value: "s3cret"} }},
		func(w *world) {
			for _, tt := range []struct {
				header []string
				want   int
			}{
				{nil, 401},
				{[]string{"Authorization", "Bearer s3cre"}, 401},
				{[]string{"Authorization", "s3cret"}, 401},
				{[]string{"Authorization", "Bearer "}, 401},
				{[]string{"X-Api-Key", "s3cret"}, 401},
				{[]string{"Authorization", "Bearer s3cret"}, 200},
			} {
				for _, host := range []string{"127.0.0.1:9090", "evil.example"} {
					for _, path := range []string{"/-/config", "/debug/replicas", peers.Path} {
						rec := w.gated("GET", path, host, tt.header...)
						if rec.Code != tt.want || tt.want == 401 && !strings.Contains(rec.Body.String(), "admin.token") {
							t.Errorf("%s as %q with %v: %d %s, want %d", path, host, tt.header, rec.Code, rec.Body, tt.want)
						}
					}
				}
			}
			for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
				if rec := w.gated("GET", path, "127.0.0.1:9090"); rec.Code != 200 ||
					strings.Contains(rec.Body.String(), `"replica": "p0.internal:8000"`) {
					t.Errorf("%s without the token: %d %s", path, rec.Code, rec.Body)
				}
			}
			if body := w.gated("GET", "/readyz", "x", "Authorization",
				"Bearer s3cret").Body.String(); !strings.Contains(body, ".internal") {
				t.Errorf("/readyz with the token says %s", body)
			}
			cfg := *w.cfg
			cfg.Admin.Token = config.Secret{Value: "another"}
			if err := w.o.Apply(&cfg); err != nil {
				t.Fatal(err)
			}
			if rec := w.gated("GET", "/-/config", "127.0.0.1", "Authorization", "Bearer s3cret"); rec.Code != 401 {
				t.Errorf("the old token after a reload: %d", rec.Code)
			}
		})
}

// The gate covers everything on the admin socket.
func TestAdminSocketHasTheGate(t *testing.T) {
	in(t, setup{}, func(w *world) {
		c, err := w.net.Dial(w.t.Context(), "tcp", "admin:80")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprint(c,
			"POST /-/reload HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 403 {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	})
}

// Routers that are peers send each other the admin token.
func TestPeersShowTheToken(t *testing.T) {
	token := func(c *config.Config) {
		c.Admin.Token = config.Secret{Value: "s3cret"}
		c.Routers.Peers = []string{"http://admin:80", "http://admin-b:80"}
	}
	in(t, setup{config: token}, func(w *world) {
		b, stop := w.beside()
		defer stop()
		time.Sleep(time.Second)
		for _, o := range []*Orchestrator{w.o, b} {
			heard := 0
			for _, up := range o.peers.Heard() {
				if up {
					heard++
				}
			}
			if heard != 1 {
				t.Errorf("%d other routers are connected, want 1", heard)
			}
		}
	})
}
