package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// DrainAnswer is the admin listener's answer about the drain of one replica: to POST /-/drain and /-/undrain,
// and to GET /-/drain.
type DrainAnswer struct {
	Error string `json:"error,omitempty"` // nothing was done
	// Notes for the operator, a sentence each.
	Notes    []string     `json:"notes,omitempty"`
	Replicas []DrainState `json:"replicas,omitempty"` // one, or two if the engine is in both pools
}

// DrainState is the progress of the drain of one replica.
type DrainState struct {
	Pool  string    `json:"pool"`
	Name  string    `json:"replica"`
	Up    bool      `json:"up"`
	State string    `json:"state"`          // draining, drained or "in use"
	Left  string    `json:"left,omitempty"` // requests that must end before the replica is drained
	Since time.Time `json:"since,omitzero"` // when the draining began
}

// InUse is the [DrainState.State] of a replica that is not being drained.
const InUse = "in use"

// Drained reports whether all of the replicas are drained.
func (a *DrainAnswer) Drained() bool {
	for _, r := range a.Replicas {
		if r.State != fleet.StateDrained {
			return false
		}
	}
	return len(a.Replicas) > 0
}

func drainStates(ws []*fleet.Watcher) (all []DrainState) {
	for _, w := range ws {
		s := DrainState{Pool: w.Role().String(), Name: w.Name(), Up: w.Up(), State: InUse}
		switch d := w.DrainStatus(); {
		case d.Empty:
			s.State, s.Since = fleet.StateDrained, d.Since
		case d.Draining:
			s.State, s.Since = fleet.StateDraining, d.Since
			s.Left = d.Left
		}
		all = append(all, s)
	}
	return all
}

// showDrain reports the progress of the drain of ?replica=NAME.
func (a *Admin) showDrain(w http.ResponseWriter, r *http.Request) {
	ws, err := a.o.Fleet.Find(r.URL.Query().Get("replica"))
	if err != nil {
		writeJSON(w, http.StatusNotFound, DrainAnswer{Error: err.Error()})
		return
	}
	writeJSON(w, http.StatusOK, DrainAnswer{Replicas: drainStates(ws)})
}

// orderDrain answers a command that drains ?replica=NAME (on), or ends the drain.
func (a *Admin) orderDrain(on bool) http.HandlerFunc {
	act := map[bool]string{true: "drain", false: "undrain"}[on]
	return func(w http.ResponseWriter, r *http.Request) {
		name, force := r.URL.Query().Get("replica"), r.URL.Query().Get("force") == "true"
		by := a.o.actor(r)
		status, answer := a.setDrained(name, on, force)
		if status == http.StatusOK {
			a.keepDrains(&answer)
		}
		a.o.audit(by, act, cmp.Or(answer.Error, "done"), "replica", name, "force", force)
		writeJSON(w, status, answer)
	}
}

// setDrained begins or ends the drain of a replica.
func (a *Admin) setDrained(name string, on, force bool) (status int, answer DrainAnswer) {
	a.o.Exclusive.Lock()
	defer a.o.Exclusive.Unlock()
	ws, err := a.o.Fleet.Find(name)
	switch {
	case err != nil:
		return http.StatusNotFound, DrainAnswer{Error: err.Error()}
	case !on && ws[0].DrainStatus().Draining && byFile(ws):
		return http.StatusConflict, DrainAnswer{Error: fmt.Sprintf(
			"the configuration file drains %s: take drain: true out of it and reload", name)}
	case on && !force:
		if why := a.lost(ws); why != "" {
			return http.StatusConflict, DrainAnswer{Error: why + "; --force drains it all the same"}
		}
	}
	if on {
		if why := a.lost(ws); why != "" {
			a.o.Log.Warn("the last usable replica is drained", "replica", name, "consequence", why)
		}
	}
	a.o.Fleet.SetDrained(ws, on)
	return http.StatusOK, DrainAnswer{Replicas: drainStates(ws), Notes: a.drainNotes(on)}
}

// keepDrains writes the drains into the state file, so that they survive a crash of the router.
func (a *Admin) keepDrains(answer *DrainAnswer) {
	if err := a.o.KeepDrains(); err != nil {
		answer.Notes = append(answer.Notes,
			"the state file was not written, so a restart of the router may forget this: "+err.Error())
	}
}

func byFile(ws []*fleet.Watcher) bool {
	for _, w := range ws {
		if w.DrainStatus().ByFile {
			return true
		}
	}
	return false
}

// drainNotes returns notes for the operator.
func (a *Admin) drainNotes(on bool) (notes []string) {
	cfg := a.o.Config()
	if on && cfg.State.File == "" {
		notes = append(notes,
			"a restart of the router forgets this, since state.file is not set; drain: true in the file stays")
	}
	if len(cfg.Routers.Peers) > 0 || len(cfg.Routers.Valkey.Addresses) > 0 {
		notes = append(notes, "this is this router alone: drain at each of the others, too")
	}
	return notes
}

// lost names the requests that no replica could serve if ws were drained; "" if there are none.
func (a *Admin) lost(ws []*fleet.Watcher) string {
	var models []string
	for _, w := range ws {
		if w.Role() == replica.Prefill && a.o.Config().Local != config.LocalNever || !w.InUse() {
			continue // decode replicas compute the prompts, or nothing changes
		}
		for _, m := range w.Members() {
			for _, model := range m.Facts.Models {
				if !a.servedBeside(w, model) {
					models = append(models, model)
				}
			}
		}
		if len(models) > 0 {
			return fmt.Sprintf("%s is the last usable %s replica that serves %s, whose requests would get 503",
				w.Name(), w.Role(), firstOf(models))
		}
	}
	return ""
}

// servedBeside reports whether another server of w's pool accepts requests for model.
func (a *Admin) servedBeside(w *fleet.Watcher, model string) bool {
	for _, other := range a.o.Fleet.Watchers() {
		if other == w || other.Role() != w.Role() || !other.InUse() {
			continue
		}
		for _, m := range other.Members() {
			if m.Serves(model) {
				return true
			}
		}
	}
	return false
}

// firstOf names the first few models.
func firstOf(models []string) string {
	const most = 3
	if more := len(models) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(models[:most], ", "), more)
	}
	return strings.Join(models, ", ")
}
