package engine

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// A new API key or dial timeout applies from the next request on. Open connections remain in use.
func TestChangeKeepsConnections(t *testing.T) {
	c, s, conns := serve(t, Options{APIKey: "one"}, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Header.Get("Authorization"))
	})
	for _, key := range []string{"one", "two", "three"} {
		if err := c.Change(Options{URL: s.URL, APIKey: key, DialTimeout: time.Minute}, false); err != nil {
			t.Fatal(err)
		}
		if _, got, err := send(t.Context(), c, "/", nil); string(got) != "Bearer "+key || err != nil {
			t.Errorf("got key %q, %v; want %q", got, err, key)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("got %d connections, want 1", n)
	}
	if err := c.Change(Options{APIKey: "a\nb"}, false); err == nil {
		t.Error("Change accepted a key with a line break, want an error")
	}
	if _, got, _ := send(t.Context(), c, "/", nil); string(got) != "Bearer three" {
		t.Errorf("got key %q after a refused change, want the old key", got)
	}
}

func TestChangeOfDialTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Options{URL: "http://engine", Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Change(Options{DialTimeout: time.Minute}, false); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := c.Do(t.Context(), post); !Unreachable(err) || time.Since(began) != time.Minute {
			t.Errorf("got %v after %v, want unreachable after a minute", err, time.Since(began))
		}
	})
}

// After a change of the TLS trust, the client does not reuse older connections. This includes connections
// that were in use during the change.
func TestChangeOfTrust(t *testing.T) {
	s := httptest.NewTLSServer(namesQuestion(echo))
	defer s.Close()
	trust := func() Options {
		return Options{URL: s.URL, TLS: s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()}
	}
	c, err := New(trust())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	inUse, err := c.Do(t.Context(), post)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := send(t.Context(), c, "/", nil); err != nil || len(c.idle.conns) != 1 {
		t.Fatalf("got %v and %d idle connections, want 1", err, len(c.idle.conns))
	}
	if err := c.Change(Options{URL: s.URL, TLS: &tls.Config{}}, true); err != nil {
		t.Fatal(err)
	}
	if _, err := inUse.ReadAll(1 << 20); err != nil {
		t.Errorf("got %v from the running answer, want no error", err)
	}
	if _, _, err := send(t.Context(), c, "/", nil); !Unreachable(err) {
		t.Errorf("got %v, want an error about an untrusted engine", err)
	}
	if err := c.Change(trust(), true); err != nil {
		t.Fatal(err)
	}
	if _, _, err := send(t.Context(), c, "/", nil); err != nil {
		t.Errorf("got %v after the engine is trusted again, want no error", err)
	}
}

func TestRetiredClientServesOn(t *testing.T) {
	c, _, conns := serve(t, Options{}, echo)
	for i := range 4 {
		if i == 1 {
			c.Retire()
		}
		if _, _, err := send(t.Context(), c, "/", []byte("x")); err != nil {
			t.Errorf("request %d: got %v, want no error", i, err)
		}
	}
	if n := len(c.idle.conns); n != 0 || conns.Load() != 4 {
		t.Errorf("got %d idle connections of %d, want 0 of 4", n, conns.Load())
	}
}
