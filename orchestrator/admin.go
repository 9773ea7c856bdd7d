package orchestrator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"strconv"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tandem-router/tandem/internal/page"
	"github.com/tandem-router/tandem/internal/rawjson"
	"github.com/tandem-router/tandem/orchestrator/peers"
)

// Admin returns the handler of the admin listener: its page, metrics, reload, status, explanations and
// profiles. Whoever comes through [Orchestrator.gate] is trusted.
func (o *Orchestrator) Admin() http.Handler {
	mux := chi.NewRouter()
	mux.Get("/healthz", o.healthz)
	mux.Get("/readyz", o.adminReady)
	mux.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(o.reg, promhttp.HandlerOpts{}))
	mux.Post("/-/reload", o.reload)
	mux.Get("/-/drain", o.showDrain)
	mux.Post("/-/drain", o.orderDrain(true))
	mux.Post("/-/undrain", o.orderDrain(false))
	mux.Get("/-/config", o.showConfig)
	mux.Method(http.MethodGet, peers.Path, o.peers)
	mux.Get("/debug/decisions", o.showDecisions)
	mux.Get("/debug/decisions/{id}", o.showDecision)
	mux.Get("/debug/replicas", o.showReplicas)
	mux.Get("/debug/live", o.page.Live)
	mux.Get("/debug/history", o.showHistory)
	mux.Get("/-/config/changes", o.showChanges)
	for _, file := range page.Files {
		mux.Method(http.MethodGet, file, o.page)
	}
	mux.Get("/debug/capture", o.capture)
	mux.Post("/debug/explain", o.explainBody)
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

// reload reads the configuration again, as SIGHUP does.
func (o *Orchestrator) reload(w http.ResponseWriter, r *http.Request) {
	err := errNoReload
	if o.opt.Reload != nil {
		err = o.opt.Reload()
	}
	if err != nil {
		o.audit(r, "reload", "rejected")
		writeJSON(w, http.StatusBadRequest, map[string]string{"status": "rejected", "error": err.Error()})
		return
	}
	o.audit(r, "reload", "done")
	writeJSON(w, http.StatusOK, struct {
		Status       string   `json:"status"`
		NeedsRestart []string `json:"needs_restart,omitempty"` // fields whose new values are not in force
	}{"applied", o.needsRestart()})
}

// showConfig shows the configuration in force, secrets hidden.
func (o *Orchestrator) showConfig(w http.ResponseWriter, _ *http.Request) {
	text, err := o.Config().YAML()
	if err != nil {
		writeJSON(w, http.StatusInternalServerError, map[string]string{"error": err.Error()})
		return
	}
	w.Header().Set("Content-Type", "application/yaml")
	for _, field := range o.needsRestart() {
		_, _ = fmt.Fprintf(w, "# needs a restart, and is in force as it was at the start: %s\n", field)
	}
	_, _ = w.Write(text)
}

// showDecisions shows the newest records, as many as n says. What it does not know it refuses: who asks for
// some of them only must not take all of them for those.
func (o *Orchestrator) showDecisions(w http.ResponseWriter, r *http.Request) {
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
	writeJSON(w, http.StatusOK, o.ring.Newest(n))
}

func (o *Orchestrator) showDecision(w http.ResponseWriter, r *http.Request) {
	if rec := o.ring.Find(chi.URLParam(r, "id")); rec != nil {
		writeJSON(w, http.StatusOK, rec)
		return
	}
	writeJSON(w, http.StatusNotFound, map[string]string{
		"error": "no such decision is kept; decisions.ring in the configuration says how many are",
	})
}

func (o *Orchestrator) showReplicas(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, o.Status())
}

// explainBody plans a request without sending it: the body of a completion or a chat goes in, the decision
// comes out.
func (o *Orchestrator) explainBody(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(o.Config().Limits.BodyBytes)))
	if err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	d, err := o.Explain(r.Context(), body)
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

var errExplain = errors.New("send the body of a completion or a chat")
