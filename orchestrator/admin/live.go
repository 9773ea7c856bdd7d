package admin

import (
	"cmp"
	"slices"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/page"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/orchestrator/planner"
	"github.com/tandem-router/tandem/prefill"
)

// mostSeen bounds the records that the page sums up: copying more would delay the requests that add records.
const mostSeen = 20_000

// newestShown is how many requests the page lists.
const newestShown = 40

// Live returns what is to be seen now. Safe for concurrent use.
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
	kept := a.o.Ring.Newest(mostSeen)
	l.Pairs = a.livePairs(kept, s.Pairs)
	l.Recent = recent(kept, now)
	for _, r := range kept[:min(len(kept), newestShown)] {
		l.Newest = append(l.Newest, liveRequest(r))
	}
	l.Judge()
	return l
}

func liveSpeed(s estimate.Speed, samples int) page.Speed {
	return page.Speed{TokenUS: s.A * 1e6, StepMS: s.D0 * 1e3, Samples: samples}
}

// liveReplicas lists all replicas in the order of the file.
func liveReplicas(replicas []observe.ReplicaStatus) []page.Replica {
	all := []page.Replica{}
	for _, s := range replicas {
		r := page.Replica{
			Pool: s.Pool, Name: s.Name, URL: s.URL, Up: s.Up, Reason: s.Reason,
			Usage: -1, Free: -1, Capacity: -1, Age: -1, MaxSequences: -1,
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

// livePairs puts together what the records, the links and the ejections say of pairs.
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
		Decode: r.Decode,
		Reason: r.Reason,
		Prompt: r.Prompt, Output: r.Output, Cached: r.Delivered, First: r.Phases.First, Predicted: -1,
		Total:    r.Phases.Total,
		Attempts: r.Attempts, Outcome: r.Outcome, Pieces: r.Pieces,
	}
	if r.Decision != nil {
		l.Predicted = r.Decision.TTFT
	}
	return l
}
