package admin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/keys"
	"github.com/tandem-router/tandem/internal/page"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/orchestrator/planner"
	"github.com/tandem-router/tandem/prefill"
)

// mostSeen limits the records that the page sums up: more would delay the requests that add records.
const mostSeen = 20_000

// newestShown is how many requests the page lists.
const newestShown = 40

// Live returns the present state for the page. Safe for concurrent use.
func (a *Admin) Live() *page.Live {
	now, s := time.Now(), a.o.State.Status()
	l := &page.Live{
		Time: now, Ready: s.Ready, Why: s.Why, InFlight: s.InFlight, Waiting: s.Waiting,
		Config: *a.o.InForce(), Profile: liveSpeed(estimate.DefaultSpeed(), 0),
		Replicas: liveReplicas(s.Replicas), Newest: []page.Request{},
	}
	if _, err := a.o.Rejected(); err != nil {
		l.Rejected = err.Error()
	}
	if hint := a.unused.hint(); hint != "" {
		l.Hints = append(l.Hints, hint)
	}
	if fields := a.o.NeedsRestart(); len(fields) > 0 {
		l.Hints = append(l.Hints,
			"needs a restart, and is in force as it was at the start: "+strings.Join(fields, ", "))
	}
	kept := a.o.Ring.Newest(mostSeen)
	l.Pairs = a.livePairs(kept, s.Pairs)
	l.Recent = recent(kept, now)
	for _, r := range kept[:min(len(kept), newestShown)] {
		l.Newest = append(l.Newest, liveRequest(r))
	}
	if len(a.o.Config().Classes) > 0 {
		l.Classes = liveClasses(a.o.Config().Classes, a.o.InFlight(), kept, now)
	}
	l.Keys, l.MoreKeys = liveKeys(a.o.Keys.List(now))
	l.Judge()
	return l
}

// mostKeys is how many client keys the page lists.
const mostKeys = 20

// liveKeys returns the first keys of all, and the number of the others.
func liveKeys(all []keys.Lately) (first []page.Key, more int) {
	for _, k := range all[:min(len(all), mostKeys)] {
		first = append(first, page.Key{
			Name: k.Key, Over: string(k.Over), Minute: page.Usage(k.Minute), Hour: page.Usage(k.Hour),
		})
	}
	return first, len(all) - len(first)
}

func liveSpeed(s estimate.Speed, samples int) page.Speed {
	return page.Speed{TokenUS: s.A * 1e6, StepMS: s.D0 * 1e3, Samples: samples}
}

// liveReplicas lists all replicas in the order of the file.
func liveReplicas(replicas []observe.ReplicaStatus) []page.Replica {
	all, models := []page.Replica{}, map[string]bool{"": true} // for a server that has not answered
	for _, s := range replicas {
		models[s.Facts.Model] = true
		r := page.Replica{
			Pool: s.Pool, Name: s.Name, URL: s.URL, Up: s.Up, Reason: s.Reason,
			Usage: -1, Free: -1, Capacity: -1, Age: -1, MaxSequences: -1, Model: s.Facts.Model,
		}
		for _, state := range s.States {
			r.States = append(r.States, page.State(state))
		}
		switch m := s.Book.(type) {
		case prefill.MemberStatus:
			showPrefill(&r, &m)
			r.Capacity = s.Facts.Blocks
		case decode.MemberStatus:
			showDecode(&r, &m)
		}
		all = append(all, r)
	}
	if several := len(models) > 2; !several {
		for i := range all {
			all[i].Model = ""
		}
	}
	return all
}

func showPrefill(r *page.Replica, m *prefill.MemberStatus) {
	r.Index, r.Indexed = m.Trust.String(), m.Blocks
	r.Running = m.Running
	r.Waiting = m.Waiting
	r.Usage = m.Usage
	r.Age = m.LoadAge
	r.Requests = m.Requests
	r.Queued = m.Tokens
	r.WaitMS = m.WaitMS
	r.Speed = liveSpeed(m.Speed, m.Samples)
}

func showDecode(r *page.Replica, m *decode.MemberStatus) {
	r.Index, r.Indexed = m.Trust.String(), m.Blocks
	r.Running = m.Running
	r.Waiting = m.Waiting
	r.Usage = m.Usage
	r.Age = m.LoadAge
	r.Requests = m.Leases
	r.WaitMS = m.LocalMS
	r.Speed = liveSpeed(m.Speed, m.Samples)
	r.Free, r.Capacity = m.Free, m.Capacity
	r.MaxSequences = m.MaxSequences
	r.CutsPrompts = m.CutsPrompts
}

// livePairs combines records, links and ejections by pair.
func (a *Admin) livePairs(kept []*observe.Record, failing []outlier.Status) []page.Pair {
	all := map[planner.Pairing]*page.Pair{}
	at := func(p, d replica.ID) *page.Pair {
		key := planner.Pairing{Prefill: p, Decode: d}
		if all[key] == nil {
			all[key] = &page.Pair{Prefill: string(p), Decode: string(d)}
		}
		return all[key]
	}
	for _, r := range kept {
		if r.Prefill != "" && r.Decode != "" && r.Outcome == "ok" {
			pair := at(replica.ID(r.Prefill), replica.ID(r.Decode))
			pair.Sent++
			pair.Tokens += max(r.Moved, 0)
		}
	}
	for _, link := range a.o.State.Planner.LinkSpeeds(time.Now()) {
		pair := at(link.Prefill, link.Decode)
		pair.GBps, pair.Samples = link.BytesPerSecond/1e9, link.Samples
	}
	for _, s := range failing {
		pair := at(s.Pair.Prefill, s.Pair.Decode)
		pair.Failures = s.Failures
		pair.State = s.State.String()
		pair.Cause = s.Cause
	}
	out := make([]page.Pair, 0, len(all))
	for _, pair := range all {
		out = append(out, *pair)
	}
	slices.SortFunc(out, func(a, b page.Pair) int {
		return cmp.Or(cmp.Compare(a.Prefill, b.Prefill), cmp.Compare(a.Decode, b.Decode))
	})
	return out
}

func liveRequest(r *observe.Record) page.Request {
	l := page.Request{
		ID: r.ID, ClientID: r.ClientID, Key: r.Key, Time: r.Time, Mode: r.Mode, Prefill: r.Prefill,
		Decode: r.Decode, Reason: r.Reason,
		Prompt: r.Prompt, Output: r.Output, Cached: r.Delivered, First: r.Phases.First, Predicted: -1,
		Total:    r.Phases.Total,
		Attempts: r.Attempts, Outcome: r.Outcome, Pieces: r.Pieces,
	}
	if r.Decision != nil {
		l.Predicted = r.Decision.TTFT
	}
	return l
}

func quantiles(of []float64) page.Quantiles {
	if len(of) == 0 {
		return page.Quantiles{P50: -1, P90: -1, P99: -1}
	}
	slices.Sort(of)
	at := func(q float64) float64 { return of[min(int(q*float64(len(of))), len(of)-1)] }
	return page.Quantiles{P50: at(0.5), P90: at(0.9), P99: at(0.99)}
}

// recent sums up records, the newest first. The time of a record is the arrival of its request.
func recent(kept []*observe.Record, now time.Time) page.Recent {
	var s page.Recent
	var first, predicted, token []float64
	for _, r := range kept {
		age := r.Ago(now)
		if age > time.Minute {
			continue
		}
		s.Seconds = max(s.Seconds, age.Seconds())
		countRecent(&s, r)
		if !r.Streamed || r.Outcome != "ok" {
			continue
		}
		first = append(first, r.Phases.First)
		if r.Decision != nil {
			predicted = append(predicted, r.Decision.TTFT)
		}
		if r.Output > 1 && r.Samples == 0 {
			token = append(token, (r.Phases.Total-r.Phases.First)/float64(r.Output-1))
		}
	}
	s.First = quantiles(first)
	s.Predicted = quantiles(predicted)
	s.Token = quantiles(token)
	return s
}

// countRecent adds one request to the sums.
func countRecent(s *page.Recent, r *observe.Record) {
	s.Requests++
	if r.Outcome != "ok" && r.Outcome != observe.Gone {
		s.Errors++
	}
	if r.Mode == "split" {
		s.Split++
	}
	if r.Attempts > 1 {
		s.Retried++
	}
	if r.Outcome == "ok" && r.Available >= 0 && r.Captured >= 0 && r.Delivered >= 0 {
		s.Prompt += r.Prompt
		s.Available += r.Available
		s.Captured += r.Captured
		s.Delivered += r.Delivered
	}
}

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
			a.o.Keys.List(time.Now()) // drops keys that are not used any more
		}
	}
}

// Ended adds a request that has ended to the history.
func (a *Admin) Ended(r *observe.Record) { a.past.Add(endedOf(r)) }

// endedOf returns the part of a record that the history keeps.
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
			"error": "nothing is remembered of a replica of that name yet; a step takes " +
				page.HistoryStep.String(),
		})
		return
	}
	writeJSON(w, http.StatusOK, past)
}

// A prefill pool is idle if the last requests, this many in this many steps of the history, were not split.
const (
	idleSteps    = int(10 * time.Minute / page.HistoryStep)
	idleRequests = 100
)

// idlePool is a note for people about a prefill pool without requests. The zero value has no note.
type idlePool struct{ text atomic.Pointer[string] }

// hint returns the note; "" if the pool is used.
func (p *idlePool) hint() string {
	if text := p.text.Load(); text != nil {
		return *text
	}
	return ""
}

// judgePrefillPool records whether the prefill pool is idle although requests could be split, and logs
// changes.
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
