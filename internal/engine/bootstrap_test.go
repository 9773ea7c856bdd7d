package engine

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

// The ranks of a server may be numbered over the whole engine, or from 0 on each server. Without the id of
// each rank there is no address at all.
func TestBootstrap(t *testing.T) {
	const entry = `{"engine_id":"%s","worker_addr":{"0":{"0":"tcp://10.0.0.7:1"}}}`
	said := func(parts ...string) string {
		var all []string
		for i := 0; i < len(parts); i += 2 {
			all = append(all, fmt.Sprintf(`%q:`+entry, parts[i], parts[i+1]))
		}
		return "{" + strings.Join(all, ",") + "}"
	}
	for _, tt := range []struct {
		name         string
		status       int
		body         string
		first, ranks int
		want         string
	}{
		{"one", 200, said("0", "a"), 0, 1, "a"},
		{"two", 200, said("0", "a", "1", "b"), 0, 2, "a b"},
		{"of many", 200, said("0", "a", "1", "b", "2", "c", "3", "d"), 2, 2, "c d"},
		{"from 0", 200, said("0", "a", "1", "b"), 6, 2, "a b"},
		{"the second is missing", 200, said("0", "a"), 0, 2, ""},
		{"none", 200, `{}`, 0, 1, ""},
		{"no id", 200, said("0", ""), 0, 1, ""},
		{"starting", 503, ``, 0, 1, ""},
		{"another server", 200, `<html>`, 0, 1, ""},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/query" || r.Header.Get("Authorization") != "" {
				t.Errorf("%s, key %q", r.URL.Path, r.Header.Get("Authorization"))
			}
			w.WriteHeader(tt.status)
			fmt.Fprint(w, tt.body)
		}))
		host, port, _ := net.SplitHostPort(s.Listener.Addr().String())
		n, _ := strconv.Atoi(port)
		all, err := Bootstrap(t.Context(), Options{APIKey: "secret"}, host, n, tt.first, tt.ranks)
		s.Close()
		var got []string
		for _, a := range all {
			if a.Bootstrap != s.URL {
				t.Errorf("%s: address %s, want %s", tt.name, a.Bootstrap, s.URL)
			}
			got = append(got, a.EngineID)
		}
		if strings.Join(got, " ") != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: %v, %v, want %s", tt.name, got, err, tt.want)
		}
	}
}
