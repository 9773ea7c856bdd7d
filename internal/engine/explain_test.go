package engine_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/engine/enginetest"
)

// answering returns a handler that answers every request with this status and body.
func answering(status int, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})
}

// Explain names the fix for an engine that cannot be probed. Each server is real, with one wrong setting.
//
// Long: one row for each mistake.
func TestExplain(t *testing.T) {
	plain := func(status int, body string) string {
		s := httptest.NewServer(answering(status, body))
		t.Cleanup(s.Close)
		return s.URL
	}
	secure := httptest.NewUnstartedServer(answering(200, `{}`))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	trusted := x509.NewCertPool()
	trusted.AddCert(secure.Certificate())
	port := secure.URL[strings.LastIndexByte(secure.URL, ':'):]
	ln, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and is silent
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	for _, c := range []struct {
		name, url string
		tls       *tls.Config
		seen, do  string
	}{
		{
			"https to an http engine", strings.Replace(plain(200, ""), "http", "https", 1), nil, "plain HTTP",
			"write http://",
		},
		{"http to an https engine", "http://127.0.0.1" + port, nil, "answered 400", "write https://"},
		{ // uvicorn with TLS hangs up in this way
			"http to an https engine that hangs up", "http://" + enginetest.HangUp(t, 1, ""), nil,
			"without an answer", "write https://",
		},
		{"self-signed", secure.URL, nil, "signed by itself", "set pools.decode.tls.ca to"},
		{
			"certificate of another name", "https://localhost" +
				port, &tls.Config{RootCAs: trusted}, "certificate is not for localhost",
			"example.com",
		},
		{"no key", plain(401, ""), nil, "/v1/models answered 401", "set pools.decode.api_key to"},
		{
			"a web page", plain(200, " <!doctype html>"), nil, "answered HTML, not JSON",
			"something else answers there",
		},
		{
			"metrics of a web page", plain(200, "<html>"), nil, "/metrics answered HTML, not metrics",
			"something else answers there",
		},
		{"metrics of another program", plain(200, "up 1\n"), nil, "none of vLLM's series", "that of a vLLM server"},
		{"text", plain(200, "hello"), nil, "answered no JSON", "something else answers there"},
		{"another path", plain(404, ""), nil, "answered 404", "that of a vLLM server"},
		{"no listener", "http://127.0.0.1:1", nil, "connection refused", "is running and listening there"},
		{"no such name", "http://engine.invalid:8000", nil, "host name engine.invalid", "correct the host"},
		{"no answer", "http://" + ln.Addr().String(), nil, "no answer in time", "firewall"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, err := engine.New(engine.Options{URL: c.url, TLS: c.tls})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err = client.Models(ctx); strings.HasPrefix(c.name, "metrics") {
				_, err = client.Scrape(ctx)
			}
			if err == nil {
				t.Fatal("got no error, want one")
			}
			seen, do := engine.Explain(err, c.url, "pools.decode")
			if !strings.Contains(seen, c.seen) || !strings.Contains(do, c.do) {
				t.Errorf("%v: got seen %q, want %q in it; got do %q, want %q in it", err, seen, c.seen, do, c.do)
			}
		})
	}
}
