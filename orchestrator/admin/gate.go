package admin

import (
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/page"
	"github.com/tandem-router/tandem/orchestrator/peers"
)

// Gate decides which requests the admin listener accepts. With admin.token, a request must present the
// token. Without a token, any request that reaches the listener is accepted, except from a web page. A page
// can have its own name resolve to our address (DNS rebinding), so that a browser takes us for the page's
// site. Then the Host header is that name. So Host must be an address, localhost, or a name in admin.hosts.
//
// /healthz and /metrics are open, for probes and scrapers. The page's own files are open too: the page asks
// for the rest. A request without the token gets the front's answer from /readyz. Other routers ask for
// bookings under the names that they have for us. A header that web pages cannot send distinguishes routers
// from pages.
func (a *Admin) Gate(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cfg := a.o.Config().Admin
		refusal := cfg.Token.IsSet() && !presents(r, cfg.Token)
		known := cfg.Token.IsSet() || knownHost(r.Host, cfg) // a page does not know the token
		switch path := r.URL.Path; {
		case path == "/healthz" || path == "/metrics" || slices.Contains(page.Files, path):
		case path == "/readyz" && (refusal || !known):
			a.FrontReady(w, r)
			return
		case refusal:
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeJSON(w, http.StatusUnauthorized, map[string]string{
				"error": "present the token of this router (admin.token) in the Authorization header: Bearer TOKEN",
			})
			return
		case !known && (path != peers.Path || !fromRouter(r)):
			writeJSON(w, http.StatusForbidden, map[string]string{"error": fmt.Sprintf(
				"the admin listener was asked as %q, which it does not know: add that name to admin.hosts, set "+
					"admin.token, or ask by address", r.Host)})
			return
		}
		h.ServeHTTP(w, r)
	})
}

// fromRouter reports whether a router can have sent r, and no web page: no page can choose Accept-Encoding
// (Fetch, "forbidden request-header"), and browsers say identity only where a page asks for a range.
func fromRouter(r *http.Request) bool {
	return r.Header.Get("Accept-Encoding") == "identity" && r.Header.Get("Range") == ""
}

// presents compares the bearer token of r in constant time.
func presents(r *http.Request, token config.Secret) bool {
	got, ok := Bearer(r)
	want := token.Reveal()
	return ok && want != "" && subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

// Bearer returns the token of a request's Authorization header; false where its scheme is not Bearer. The
// name of a scheme has no case (RFC 9110, section 11.1).
func Bearer(r *http.Request) (token string, ok bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return token, ok && strings.EqualFold(scheme, "bearer")
}

// knownHost reports whether no web page can have come by the name in Host.
func knownHost(hostport string, cfg config.Admin) bool {
	host := hostOf(hostport)
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	same := func(name string) bool { return host != "" && strings.EqualFold(host, name) }
	return same("localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost") ||
		same(hostOf(cfg.Listen)) || slices.ContainsFunc(cfg.Hosts, same)
}

// hostOf takes the port, the brackets of an IPv6 address and the dot at the end of a full name off.
func hostOf(hostport string) string {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	if strings.Trim(port, "0123456789") != "" {
		return "" // no port at all
	}
	return strings.TrimSuffix(host, ".")
}
