// Package admin serves the admin listener: the live page, status, records, metrics and commands.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strconv"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/discovery"
	"github.com/tandem-router/tandem/internal/page"
	"github.com/tandem-router/tandem/internal/rawjson"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/peers"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// Options is what the admin listener needs. Every field must be set, except Reload and Preview.
//
// Long: a field for each thing that the router lends.
type Options struct {
	Log      *slog.Logger
	Metrics  prometheus.Gatherer
	Fleet    *fleet.Fleet
	State    *observe.State
	Ring     *observe.Ring
	Captures *observe.Captures
	InFlight func() []observe.InFlight
	Peers    http.Handler     // what other routers ask at [peers.Path]
	Healthz  http.HandlerFunc // says the same as the front's
	Found    func() []discovery.Found

	Config       func() *config.Config  // in force
	InForce      func() *config.InForce // what records say of the configuration
	NeedsRestart func() []string        // fields whose new values are not in force
	// Rejected says since when and why the newest file is not in force; nil where it is.
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
	mux.Get("/healthz", a.o.Healthz)
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
	mux.Get("/debug/capture", a.capture)
	mux.Post("/debug/explain", a.explainBody)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.Handle("/debug/pprof/{name}", http.HandlerFunc(pprof.Index))
	sites := http.NewCrossOriginProtection()
	sites.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusForbidden, map[string]string{
			"error": "a browser sent this from another site; use a tool that sends no Origin, such as curl",
		})
	}))
	return sites.Handler(mux)
}

// capture streams what is served as a trace, for ten minutes or as long as ?for= says.
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
	err := ErrNoReload
	if a.o.Reload != nil {
		err = a.o.Reload()
	}
	if err != nil {
		a.audit(r, "reload", "rejected")
		writeJSON(w, http.StatusBadRequest, map[string]string{"status": "rejected", "error": err.Error()})
		return
	}
	a.audit(r, "reload", "done")
	writeJSON(w, http.StatusOK, struct {
		Status       string   `json:"status"`
		NeedsRestart []string `json:"needs_restart,omitempty"` // fields whose new values are not in force
	}{"applied", a.o.NeedsRestart()})
}

// showConfig shows the configuration in force, secrets hidden.
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

// showInFlight shows the requests that run now, the oldest first.
func (a *Admin) showInFlight(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, a.o.InFlight())
}

func (a *Admin) showReplicas(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, a.o.State.Status())
}

// explainBody plans a request without sending it: the body of a completion or a chat goes in, the decision
// comes out.
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
