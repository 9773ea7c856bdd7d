// Package admin serves the admin listener: the live page, status, records, metrics and commands.
package admin

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/discovery"
	"github.com/tandem-router/tandem/internal/keys"
	"github.com/tandem-router/tandem/internal/page"
	"github.com/tandem-router/tandem/internal/rawjson"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/peers"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// Options holds what the admin listener needs. Every field must be set, except Reload and Preview.
//
// Long: a field for each thing that the router lends.
type Options struct {
	Log      *slog.Logger
	Metrics  prometheus.Gatherer
	Fleet    *fleet.Fleet
	State    *observe.State
	Ring     *observe.Ring
	Keys     *keys.Recent
	Captures *observe.Captures
	InFlight func() []observe.InFlight
	Peers    http.Handler                // answers the questions of other routers at [peers.Path]
	Alive    map[string]http.HandlerFunc // liveness by path, as on the front
	Found    func() []discovery.Found

	Config       func() *config.Config  // in force
	InForce      func() *config.InForce // the configuration, as records show it
	NeedsRestart func() []string        // fields whose new values are not in force
	// Rejected returns since when and why the newest file is not in force; nil if it is in force.
	Rejected func() (since time.Time, err error)
	Reload   func() error                    // nil refuses a reload
	Preview  func() ([]config.Change, error) // what a reload would change; nil refuses

	Exclusive  sync.Locker  // held while a drain begins or ends, and while a configuration is applied
	KeepDrains func() error // writes the state file now
	Explain    func(ctx context.Context, body []byte) (*planner.Decision, error)
}

// Admin serves the admin listener. Safe for concurrent use.
type Admin struct {
	o      Options
	page   *page.Page
	past   *page.History
	unused idlePool
}

// New makes an Admin. Its history begins with [Admin.Run].
func New(o Options) *Admin {
	a := &Admin{o: o, past: page.NewHistory()}
	a.page = page.New(a.Live)
	return a
}

// ErrNoReload says that this process cannot read a configuration again.
var ErrNoReload = errors.New("started without a configuration file: there is nothing to reload")

// Handler returns the handler of the admin listener: its page, metrics, reload, status, explanations and
// profiles. It trusts every request that comes through [Admin.Gate].
func (a *Admin) Handler() http.Handler {
	mux := chi.NewRouter()
	for path, h := range a.o.Alive {
		mux.Get(path, h)
	}
	mux.Get("/readyz", a.adminReady)
	mux.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(a.o.Metrics, promhttp.HandlerOpts{}))
	mux.Post("/-/reload", a.reload)
	mux.Get("/-/drain", a.showDrain)
	mux.Post("/-/drain", a.orderDrain(true))
	mux.Post("/-/undrain", a.orderDrain(false))
	mux.Get("/-/config", a.showConfig)
	mux.Method(http.MethodGet, peers.Path, a.o.Peers)
	mux.Get("/debug/decisions", a.showDecisions)
	mux.Get("/debug/decisions/{id}", a.showDecision)
	mux.Get("/debug/in_flight", a.showInFlight)
	mux.Get("/debug/replicas", a.showReplicas)
	mux.Get("/debug/live", a.page.Live)
	mux.Get("/debug/history", a.showHistory)
	mux.Get("/-/config/changes", a.showChanges)
	for _, file := range page.Files {
		mux.Method(http.MethodGet, file, a.page)
	}
	mux.Get("/debug/capture", a.o.audited("capture", a.capture))
	mux.Post("/debug/explain", a.explainBody)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", a.o.audited("profile", pprof.Profile))
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", a.o.audited("trace", pprof.Trace))
	mux.Handle("/debug/pprof/{name}", http.HandlerFunc(pprof.Index))
	sites := http.NewCrossOriginProtection()
	sites.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusForbidden, map[string]string{
			"error": "a browser sent this from another site; use a tool that sends no Origin, such as curl",
		})
	}))
	return sites.Handler(mux)
}

// capture streams the served requests as a trace, for ten minutes or for the time in ?for=.
func (a *Admin) capture(w http.ResponseWriter, r *http.Request) {
	length := 10 * time.Minute
	if text := r.URL.Query().Get("for"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			writeJSON(w, http.StatusBadRequest,
				map[string]string{"error": `for must be a time like "10m", and not ` + strconv.Quote(text)})
			return
		}
		length = d
	}
	a.o.Captures.Stream(w, r, length, a.o.State.Prefill.BlockSize())
}

// reload reads the configuration again, as SIGHUP does.
func (a *Admin) reload(w http.ResponseWriter, r *http.Request) {
	reload := a.o.Reload
	if reload == nil {
		reload = func() error { return ErrNoReload }
	}
	if err := a.o.reloads(a.o.actor(r), reload); err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]string{"status": "rejected", "error": err.Error()})
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Status       string   `json:"status"`
		NeedsRestart []string `json:"needs_restart,omitempty"` // fields whose new values are not in force
	}{"applied", a.o.NeedsRestart()})
}

// Reload calls reload, and writes an audit line. by is [ByFile] or [BySignal]. Safe for concurrent use.
func (a *Admin) Reload(by string, reload func() error) error {
	return a.o.reloads(actor{by: by}, reload)
}

// showConfig shows the configuration in force, without secrets.
func (a *Admin) showConfig(w http.ResponseWriter, _ *http.Request) {
	text, err := a.o.Config().YAML()
	if err != nil {
		writeJSON(w, http.StatusInternalServerError, map[string]string{"error": err.Error()})
		return
	}
	w.Header().Set("Content-Type", "application/yaml")
	for _, field := range a.o.NeedsRestart() {
		_, _ = fmt.Fprintf(w, "# needs a restart, and is in force as it was at the start: %s\n", field)
	}
	_, _ = w.Write(text)
}

// showDecisions shows the newest n records. It refuses unknown parameters: a caller that asks for a
// selection must not take all records for the selection.
func (a *Admin) showDecisions(w http.ResponseWriter, r *http.Request) {
	n := 50
	for name, values := range r.URL.Query() {
		asked, err := strconv.Atoi(values[0])
		if name != "n" || err != nil || asked <= 0 {
			writeJSON(w, http.StatusBadRequest, map[string]string{
				"error": "say how many as n=20; there is no other parameter, use jq to choose among them",
			})
			return
		}
		n = asked
	}
	writeJSON(w, http.StatusOK, a.o.Ring.Newest(n))
}

func (a *Admin) showDecision(w http.ResponseWriter, r *http.Request) {
	if rec := a.o.Ring.Find(chi.URLParam(r, "id")); rec != nil {
		writeJSON(w, http.StatusOK, rec)
		return
	}
	writeJSON(w, http.StatusNotFound, map[string]string{
		"error": "no such decision is kept; decisions.ring in the configuration says how many are",
	})
}

// showInFlight shows the running requests, the oldest first.
func (a *Admin) showInFlight(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, a.o.InFlight())
}

func (a *Admin) showReplicas(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, a.o.State.Status())
}

// explainBody plans a request without sending it. It gets the body of a completion or a chat, and answers
// with the decision.
func (a *Admin) explainBody(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(a.o.Config().Limits.BodyBytes)))
	if err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	d, err := a.o.Explain(r.Context(), body)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	writeJSON(w, http.StatusOK, d)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		status, body = http.StatusInternalServerError, append(rawjson.AppendString([]byte(`{"error":`),
			err.Error()), '}')
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

// showChanges lists what a reload would change now, one change a line. The list is empty if the file agrees
// with the configuration in force.
func (a *Admin) showChanges(w http.ResponseWriter, _ *http.Request) {
	var changes []config.Change
	err := ErrNoReload
	if a.o.Preview != nil {
		changes, err = a.o.Preview()
	}
	if err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	lines := make([]string, 0, len(changes)+1)
	for _, c := range changes {
		lines = append(lines, c.String())
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(strings.Join(append(lines, ""), "\n")))
}

// Gate decides which requests the admin listener accepts. With admin.token, a request must present the token.
// Without a token, every request that reaches the listener is accepted, except requests of web pages. A page
// can let its own name resolve to the listener's address (DNS rebinding). Then a browser takes the listener
// for the page's site, and the Host header has this name. So Host must be an address, localhost, or a name in
// admin.hosts.
//
// Liveness and /metrics are open, for probes and scrapers. The page's own files are open too; the page asks
// for the rest. A request without the token gets the front's answer from /readyz. Other routers ask for
// bookings under the names that they use for this router. A header that web pages cannot send distinguishes
// routers from pages.
func (a *Admin) Gate(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cfg := a.o.Config().Admin
		refusal := cfg.Token.IsSet() && !presents(r, cfg.Token)
		known := cfg.Token.IsSet() || knownHost(r.Host, cfg) // a page does not know the token
		switch path := r.URL.Path; {
		case a.o.Alive[path] != nil || path == "/metrics" || slices.Contains(page.Files, path):
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

// fromRouter reports whether a router can have sent r, and not a web page. No page can choose Accept-Encoding
// (Fetch, "forbidden request-header"), and browsers send identity only if a page asks for a range.
func fromRouter(r *http.Request) bool {
	return r.Header.Get("Accept-Encoding") == "identity" && r.Header.Get("Range") == ""
}

// presents compares the bearer token of r in constant time.
func presents(r *http.Request, token config.Secret) bool {
	got, ok := Bearer(r)
	want := token.Reveal()
	return ok && want != "" && subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

// Bearer returns the token of a request's Authorization header; false if its scheme is not Bearer. The case
// of a scheme's name does not matter (RFC 9110, section 11.1).
func Bearer(r *http.Request) (token string, ok bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return token, ok && strings.EqualFold(scheme, "bearer")
}

// knownHost reports whether no web page can have reached the listener by the name in Host.
func knownHost(hostport string, cfg config.Admin) bool {
	host := hostOf(hostport)
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	same := func(name string) bool { return host != "" && strings.EqualFold(host, name) }
	return same("localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost") ||
		same(hostOf(cfg.Listen)) || slices.ContainsFunc(cfg.Hosts, same)
}

// hostOf removes the port, the brackets of an IPv6 address, and the dot at the end of a full name.
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
