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

// A new API key or dial timeout applies from the next request on, and open connections stay in use.
func TestChangeKeepsConnections(t *testing.T) {
	c, s, conns := serve(t, Options{APIKey: "one"}, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Header.Get("Authorization"))
	})
	for _, key := range []string{"one", "two", "three"} {
		if err := c.Change(Options{URL: s.URL, APIKey: key, DialTimeout: time.Minute}, false); err != nil {
			t.Fatal(err)
		}
		if _, got, err := send(t.Context(), c, "/", nil); string(got) != "Bearer "+key || err != nil {
			t.Errorf("sent %q, %v, want the key %q", got, err, key)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	if err := c.Change(Options{APIKey: "a\nb"}, false); err == nil {
		t.Error("a key with a line break was accepted")
	}
	if _, got, _ := send(t.Context(), c, "/", nil); string(got) != "Bearer three" {
		t.Errorf("sent %q after a refused change", got)
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
			t.Errorf("error = %v after %v, want unreachable after a minute", err, time.Since(began))
		}
	})
}

// Connections that were made with a former TLS trust are not used again, even if they were in use during
// the change.
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
		t.Fatalf("%v, %d idle connections, want 1", err, len(c.idle.conns))
	}
	if err := c.Change(Options{URL: s.URL, TLS: &tls.Config{}}, true); err != nil {
		t.Fatal(err)
	}
	if _, err := inUse.ReadAll(1 << 20); err != nil {
		t.Errorf("the running answer failed: %v", err)
	}
	if _, _, err := send(t.Context(), c, "/", nil); !Unreachable(err) {
		t.Errorf("error = %v, want an untrusted engine", err)
	}
	if err := c.Change(trust(), true); err != nil {
		t.Fatal(err)
	}
	if _, _, err := send(t.Context(), c, "/", nil); err != nil {
		t.Errorf("trusted again: %v", err)
	}
}

func TestRetiredClientServesOn(t *testing.T) {
	c, _, conns := serve(t, Options{}, echo)
	for i := range 4 {
		if i == 1 {
			c.Retire()
		}
		if _, _, err := send(t.Context(), c, "/", []byte("x")); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
	if n := len(c.idle.conns); n != 0 || conns.Load() != 4 {
		t.Errorf("%d idle connections of %d, want none of 4", n, conns.Load())
	}
}
