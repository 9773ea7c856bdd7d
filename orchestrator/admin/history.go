package admin

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/page"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// Run closes a step of the history each [page.HistoryStep] until ctx ends.
func (a *Admin) Run(ctx context.Context) {
	t := time.NewTicker(page.HistoryStep)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			a.past.Close(time.Now(), liveReplicas(a.o.State.Status().Replicas))
			a.judgePrefillPool()
		}
	}
}

// Ended takes a request that has ended into the history.
func (a *Admin) Ended(r *observe.Record) { a.past.Add(endedOf(r)) }

// endedOf is what the history keeps of a record.
func endedOf(r *observe.Record) page.Ended {
	e := page.Ended{
		Decode: r.Decode, Split: r.Mode == "split", Failed: r.Outcome != "ok" && r.Outcome != observe.Gone,
		First: -1, Token: -1, Prompt: r.Prompt, Available: -1, Delivered: -1,
	}
	if e.Split {
		e.Prefill = r.Prefill
	}
	if r.Outcome != "ok" {
		return e
	}
	if r.Available >= 0 && r.Captured >= 0 && r.Delivered >= 0 {
		e.Available, e.Delivered = r.Available, r.Delivered
	}
	if r.Streamed {
		e.First = r.Phases.First
		if r.Output > 1 && r.Samples == 0 {
			e.Token = (r.Phases.Total - r.Phases.First) / float64(r.Output-1)
		}
	}
	return e
}

// showHistory shows the last hour, of all requests or of ?replica=NAME.
func (a *Admin) showHistory(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("replica")
	if name == "" {
		writeJSON(w, http.StatusOK, a.past.Fleet())
		return
	}
	past, ok := a.past.Of(name)
	if !ok {
		writeJSON(w, http.StatusNotFound, map[string]string{
			"error": "nothing is remembered of a replica of that name yet; a step takes " + page.HistoryStep.String(),
		})
		return
	}
	writeJSON(w, http.StatusOK, past)
}

// A prefill pool is idle when of so many requests in so many steps of the history none was split.
const (
	idleSteps    = int(10 * time.Minute / page.HistoryStep)
	idleRequests = 100
)

// idlePool is a note for people about a prefill pool without requests. The zero value has no note.
type idlePool struct{ text atomic.Pointer[string] }

// hint is "" where the pool is used.
func (p *idlePool) hint() string {
	if text := p.text.Load(); text != nil {
		return *text
	}
	return ""
}

// judgePrefillPool notes whether the prefill pool is idle although requests could be split, and logs when
// that begins and ends.
func (a *Admin) judgePrefillPool() {
	requests, split, full := a.past.Sums(idleSteps)
	cause := ""
	if full && split == 0 && requests >= idleRequests && a.o.Config().Local == config.LocalAuto {
		cause = fmt.Sprintf("none of the %d requests of the last 10 min was split", requests)
	}
	ours := 0
	for _, w := range a.o.Fleet.Watchers() {
		if w.Role() == replica.Prefill {
			ours += w.NotePoolIdle(cause)
		}
	}
	was := a.unused.hint()
	switch {
	case cause == "" || ours == 0:
		a.unused.text.Store(nil)
		if was != "" {
			a.o.Log.Info("prefill pool is not idle any more")
		}
	default:
		text := "prefill pool idle: " + cause + "; `tandem advise` says whether splitting pays"
		a.unused.text.Store(&text)
		if was == "" {
			a.o.Log.Info("prefill pool is idle", "cause", cause, "replicas", ours,
				"fix", "tandem advise says whether splitting pays, and over which shape of fleet")
		}
	}
}
