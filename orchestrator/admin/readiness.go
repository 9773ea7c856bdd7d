package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// Readiness is the body of /readyz.
type Readiness struct {
	Ready    bool             `json:"ready"`
	Why      []string         `json:"why,omitempty"`
	Replicas []replicaReady   `json:"replicas"`
	Config   *configReadiness `json:"config,omitempty"`

	NeedsRestart []string `json:"needs_restart,omitempty"` // fields whose new values are not in force

	Discovery []discovered `json:"discovery,omitempty"`
}

// discovered is the state of one source of discovery, see [discovery.Found].
type discovered struct {
	Source  string    `json:"source"`
	Name    string    `json:"name"`
	For     string    `json:"for"`
	State   string    `json:"state"`
	Members int       `json:"members"`
	Error   string    `json:"error,omitempty"`
	Left    []string  `json:"left,omitempty"` // see [discovery.Found]
	Since   time.Time `json:"since,omitzero"`
}

type replicaReady struct {
	Pool   string `json:"pool"`
	Name   string `json:"replica"`
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"`

	States []string `json:"states,omitempty"` // further states of the replica, see [fleet.State]
}

// configReadiness says that a newer file was not accepted. The router serves with the old configuration.
type configReadiness struct {
	Error string    `json:"error"`
	Since time.Time `json:"since"`
}

// adminReady names each replica with its reason.
func (a *Admin) adminReady(w http.ResponseWriter, _ *http.Request) {
	r := a.readiness(func(w *fleet.Watcher) (string, string) { return w.Name(), reason(w) })
	if since, err := a.o.Rejected(); err != nil {
		r.Config = &configReadiness{Error: err.Error(), Since: since}
	}
	r.NeedsRestart = a.o.NeedsRestart()
	for _, f := range a.o.Found() {
		r.Discovery = append(r.Discovery, discovered{
			Source: f.Source, Name: f.Name, For: f.Pool, State: f.State.String(), Members: len(f.Replicas),
			Error: f.Err, Left: f.Left, Since: f.Since,
		})
	}
	for i, of := range a.o.Fleet.Watchers() {
		if i < len(r.Replicas) && r.Replicas[i].Name == of.Name() {
			r.Replicas[i].States = stateNames(of)
		}
	}
	writeJSON(w, r.status(), r)
}

// stateNames returns the states that any replica of a server has.
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

// FrontReady gives the same answer to any client, but without addresses: it counts replicas, and reasons are
// kinds.
func (a *Admin) FrontReady(w http.ResponseWriter, _ *http.Request) {
	seen := map[replica.Role]int{}
	r := a.readiness(func(w *fleet.Watcher) (string, string) {
		name := fmt.Sprintf("%s[%d]", w.Role(), seen[w.Role()])
		seen[w.Role()]++
		if given := w.GivenName(); given != "" {
			name = given
		}
		return name, publicReason(reason(w))
	})
	if since, err := a.o.Rejected(); err != nil {
		r.Config = &configReadiness{
			Error: "the newest configuration was rejected; the admin listener's /readyz says why",
			Since: since,
		}
	}
	writeJSON(w, r.status(), r)
}

// reason says why a server gets no new requests; "" if it gets them.
func reason(w *fleet.Watcher) string {
	why := w.Reason()
	switch s := w.DrainStatus(); {
	case s.Empty && why != "":
		return fleet.StateDrained + ": " + why
	case s.Empty:
		return fleet.StateDrained
	case s.Draining && why == "":
		return fleet.StateDraining
	}
	return why
}

// publicReason removes addresses from texts that any client can read.
func publicReason(reason string) string {
	head, _, _ := strings.Cut(reason, ":")
	switch {
	case reason == "":
		return ""
	case strings.HasPrefix(reason, "connection refused"), strings.HasPrefix(reason, "no answer in time"),
		reason == "cannot be reached", reason == fleet.NotProbed, reason == fleet.SleepCause,
		head == fleet.StateDrained, head == fleet.StateDraining:
		return head
	}
	return "unusable"
}

func (a *Admin) readiness(say func(*fleet.Watcher) (name, reason string)) Readiness {
	r := Readiness{Replicas: []replicaReady{}}
	r.Ready, r.Why = a.o.State.Ready()
	for _, w := range a.o.Fleet.Watchers() {
		name, reason := say(w)
		r.Replicas = append(r.Replicas,
			replicaReady{Pool: w.Role().String(), Name: name, Ready: w.InUse(), Reason: reason})
	}
	return r
}

func (r Readiness) status() int {
	if r.Ready {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}
