package orchestrator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tandem/internal/config"
	"tandem/internal/page"
	"tandem/internal/replica"
	"tandem/orchestrator/fleet"
	"tandem/orchestrator/outlier"
	"tandem/orchestrator/peers"
)

// Admin returns the handler of the admin listener: its page, metrics, reload, status, explanations and
// profiles. Whoever comes through [Orchestrator.gate] is trusted.
func (o *Orchestrator) Admin() http.Handler {
	mux := chi.NewRouter()
	mux.Get("/healthz", o.healthz)
	mux.Get("/readyz", o.adminReady)
	mux.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(o.reg, promhttp.HandlerOpts{}))
	mux.Post("/-/reload", o.reload)
	mux.Get("/-/config", o.showConfig)
	mux.Method(http.MethodGet, peers.Path, o.peers)
	mux.Get("/debug/decisions", o.showDecisions)
	mux.Get("/debug/decisions/{id}", o.showDecision)
	mux.Get("/debug/replicas", o.showReplicas)
	mux.Get("/debug/live", o.page.Live)
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
func (o *Orchestrator) reload(w http.ResponseWriter, _ *http.Request) {
	err := errNoReload
	if o.opt.Reload != nil {
		err = o.opt.Reload()
	}
	if err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]string{"status": "rejected", "error": err.Error()})
		return
	}
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
	writeJSON(w, http.StatusOK, o.ring.newest(n))
}

func (o *Orchestrator) showDecision(w http.ResponseWriter, r *http.Request) {
	if rec := o.ring.find(chi.URLParam(r, "id")); rec != nil {
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

// ready tells whether requests can be served: both pools have a usable replica, or decode alone where it may
// prefill for itself.
func (o *Orchestrator) ready() (ok bool, why []string) {
	up := map[replica.Role]int{}
	for _, w := range o.fleet.Watchers() {
		if w.Up() {
			up[w.Role()]++
		}
	}
	if o.draining.Load() {
		why = append(why, "shutting down")
	}
	if up[replica.Decode] == 0 {
		why = append(why, "no decode replica is usable")
	}
	if up[replica.Prefill] == 0 && o.Config().Local == config.LocalNever {
		why = append(why, "no prefill replica is usable and local is never")
	}
	return len(why) == 0, why
}

// readiness is the body of /readyz.
type readiness struct {
	Ready    bool             `json:"ready"`
	Why      []string         `json:"why,omitempty"`
	Replicas []replicaReady   `json:"replicas"`
	Config   *configReadiness `json:"config,omitempty"`

	NeedsRestart []string `json:"needs_restart,omitempty"` // fields whose new values are not in force
}

type replicaReady struct {
	Pool   string `json:"pool"`
	Name   string `json:"replica"`
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"`

	States []string `json:"states,omitempty"` // what else is to be known of it, see [fleet.State]
}

// configReadiness says that a newer file was not accepted; the router serves all the same.
type configReadiness struct {
	Error string    `json:"error"`
	Since time.Time `json:"since"`
}

// adminReady names each replica with its reason.
func (o *Orchestrator) adminReady(w http.ResponseWriter, _ *http.Request) {
	r := o.readiness(func(w *fleet.Watcher) (string, string) { return w.Name(), w.Reason() })
	if e := o.reloads.err.Load(); e != nil {
		r.Config = &configReadiness{Error: e.err.Error(), Since: e.at}
	}
	r.NeedsRestart = o.needsRestart()
	for i, of := range o.fleet.Watchers() {
		if i < len(r.Replicas) && r.Replicas[i].Name == of.Name() {
			r.Replicas[i].States = stateNames(of)
		}
	}
	writeJSON(w, r.status(), r)
}

// stateNames are the states that hold of any replica of a server.
func stateNames(w *fleet.Watcher) (names []string) {
	for _, m := range w.Members() {
		for _, s := range w.States(m.ID) {
			if !slices.Contains(names, s.State) {
				names = append(names, s.State)
			}
		}
	}
	return names
}

// frontReady says the same to anybody, without addresses: replicas are counted, and reasons are kinds.
func (o *Orchestrator) frontReady(w http.ResponseWriter, _ *http.Request) {
	seen := map[replica.Role]int{}
	r := o.readiness(func(w *fleet.Watcher) (string, string) {
		name := fmt.Sprintf("%s[%d]", w.Role(), seen[w.Role()])
		seen[w.Role()]++
		if given := w.GivenName(); given != "" {
			name = given
		}
		return name, publicReason(w.Reason())
	})
	if o.reloads.err.Load() != nil {
		r.Config = &configReadiness{
			Error: "the newest configuration was rejected; the admin listener's /readyz says why",
			Since: o.reloads.err.Load().at,
		}
	}
	writeJSON(w, r.status(), r)
}

// publicReason keeps addresses out of what strangers can read.
func publicReason(reason string) string {
	head, _, _ := strings.Cut(reason, ":")
	switch {
	case reason == "":
		return ""
	case strings.HasPrefix(reason, "connection refused"), reason == "no answer in time",
		reason == "cannot be reached", reason == fleet.NotProbed:
		return head
	}
	return "unusable"
}

func (o *Orchestrator) readiness(say func(*fleet.Watcher) (name, reason string)) readiness {
	r := readiness{Replicas: []replicaReady{}}
	r.Ready, r.Why = o.ready()
	for _, w := range o.fleet.Watchers() {
		name, reason := say(w)
		r.Replicas = append(r.Replicas,
			replicaReady{Pool: w.Role().String(), Name: name, Ready: w.Up(), Reason: reason})
	}
	return r
}

func (r readiness) status() int {
	if r.Ready {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":`+strconv.Quote(err.Error())+`}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

// Status is the whole state for people: what /debug/replicas shows.
type Status struct {
	Ready    bool            `json:"ready"`
	Why      []string        `json:"why,omitempty"`
	InFlight int             `json:"in_flight"`
	Waiting  int             `json:"waiting"`
	Replicas []ReplicaStatus `json:"replicas"`

	// Pairs are those whose KV blocks did not come over lately, ejected ones among them.
	Pairs []outlier.Status `json:"pairs,omitempty"`
}

// ReplicaStatus is one replica: who it is, how its streams stand, and its books.
type ReplicaStatus struct {
	Pool    string        `json:"pool"`
	Name    string        `json:"replica"`
	URL     string        `json:"url"`
	Up      bool          `json:"up"`
	Reason  string        `json:"reason,omitempty"`
	States  []fleet.State `json:"states,omitempty"` // what else is to be known of it: several can hold together
	Facts   replica.Facts `json:"facts,omitzero"`
	Events  string        `json:"events"` // state of the event stream
	Batches uint64        `json:"event_batches"`
	Stream  *StreamStatus `json:"event_stream,omitempty"` // nil where none is followed
	Book    any           `json:"book,omitempty"`         // the pool's own account: leases, load, index
}

// StreamStatus counts what one event stream brought and what went wrong in it, since the replica was first
// followed.
type StreamStatus struct {
	Seq          uint64            `json:"seq"` // of the newest batch applied
	Events       uint64            `json:"events"`
	Blocks       map[string]uint64 `json:"blocks"` // by what became of them: stored, removed, orphaned, skipped
	Gaps         uint64            `json:"gaps"`
	Lost         uint64            `json:"lost"` // gaps that could not be filled
	Replays      uint64            `json:"replays"`
	Timeouts     uint64            `json:"replay_timeouts"`
	Restarts     uint64            `json:"restarts"`
	Reconnects   uint64            `json:"reconnects"`
	Duplicates   uint64            `json:"duplicates"`
	Skipped      uint64            `json:"skipped_events"` // of unknown kinds
	DecodeErrors uint64            `json:"decode_errors"`
	WrongRank    uint64            `json:"wrong_rank"`
	Skewed       uint64            `json:"skewed"` // batches from our future
	// engine's time stamp to applied, newest live batch, clock skew included.
	LagMS  float64   `json:"lag_ms"`
	LastAt time.Time `json:"last_at,omitzero"`
}

func streamStatus(f *fleet.Stream) *StreamStatus {
	s := f.Stats()
	return &StreamStatus{
		Seq: s.Seq, Events: s.Events, Blocks: maps.Collect(f.Blocks()), Gaps: s.Gaps, Lost: s.Lost,
		Replays: s.Replays, Timeouts: s.Timeouts,
		Restarts: s.Restarts, Reconnects: s.Reconnects, Duplicates: s.Duplicates, Skipped: s.Unknown,
		DecodeErrors: s.DecodeErrors, WrongRank: s.WrongRank,
		Skewed: s.Skewed, LagMS: ms(s.Lag), LastAt: s.LastAt,
	}
}

// Status returns the state of everything, for the admin listener. Safe for concurrent use.
func (o *Orchestrator) Status() Status {
	s := Status{InFlight: o.InFlight(), Waiting: o.queue.length(), Replicas: []ReplicaStatus{}}
	s.Ready, s.Why = o.ready()
	now := time.Now()
	books := o.books(now)
	for _, w := range o.fleet.Watchers() {
		s.Replicas = append(s.Replicas, statusOf(w, books)...)
	}
	s.Pairs = o.failingPairs(now)
	return s
}

// failingPairs are those whose blocks did not come over lately.
func (o *Orchestrator) failingPairs(now time.Time) []outlier.Status {
	all := o.planner.Outliers().Status(now)
	return slices.DeleteFunc(all, func(s outlier.Status) bool { return s.Pair == nil })
}

// books maps each replica to its pool's account of it.
func (o *Orchestrator) books(now time.Time) map[replica.ID]any {
	out := map[replica.ID]any{}
	for _, m := range o.prefill.Status(now) {
		out[m.ID] = m
	}
	for _, m := range o.decode.Status(now) {
		out[m.ID] = m
	}
	return out
}

func statusOf(w *fleet.Watcher, books map[replica.ID]any) []ReplicaStatus {
	base := ReplicaStatus{
		Pool: w.Role().String(), Name: w.Name(), URL: w.URL(), Up: w.Up(), Reason: w.Reason(), Events: "off",
	}
	members := w.Members()
	if len(members) == 0 {
		return []ReplicaStatus{base}
	}
	var out []ReplicaStatus
	for _, m := range members {
		s := base
		s.Name = string(m.ID)
		s.Facts = m.Facts
		s.Book = books[m.ID]
		s.States = w.States(m.ID)
		for _, f := range w.Streams() {
			if f.ID() == m.ID {
				s.Events = f.Status()
				s.Batches = f.Stats().Batches
				s.Stream = streamStatus(f)
			}
		}
		out = append(out, s)
	}
	return out
}

var errExplain = errors.New("send the body of a completion or a chat")
