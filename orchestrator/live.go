package orchestrator

import (
	"cmp"
	"slices"
	"time"

	"tandem/decode"
	"tandem/internal/replica"
	"tandem/orchestrator/fleet"
	"tandem/orchestrator/planner"
	"tandem/prefill"
	"tandem/scoring"
)

// Live is what the page of the admin listener shows, small enough to be sent every second for hundreds of replicas.
// Unknown numbers are -1.
type Live struct {
	Time     time.Time     `json:"time"`
	Ready    bool          `json:"ready"`
	Why      []string      `json:"why,omitempty"`
	InFlight int           `json:"in_flight"`
	Waiting  int           `json:"waiting"`
	Config   *InForce      `json:"config"`
	Rejected string        `json:"rejected,omitzero"` // why the newest configuration is not in force
	Profile  LiveSpeed     `json:"profile"`           // what is assumed of replicas that nothing is learned of
	Replicas []LiveReplica `json:"replicas"`
	Pairs    []LivePair    `json:"pairs"`
	Recent   Recent        `json:"recent"`
	Newest   []LiveRequest `json:"newest"`
}

// LiveReplica is one replica at a glance.
type LiveReplica struct {
	Pool     string        `json:"pool"`
	Name     string        `json:"name"`
	URL      string        `json:"url"`
	Up       bool          `json:"up"`
	Reason   string        `json:"reason,omitzero"`
	States   []fleet.State `json:"states,omitempty"`
	Index    string        `json:"index,omitzero"` // how far its index is believed
	Running  int           `json:"running"`
	Waiting  int           `json:"waiting"`
	Usage    float64       `json:"usage"` // share of its KV blocks
	Requests int           `json:"requests"`
	Queued   int           `json:"queued_tokens"` // of prompts that it has to compute
	WaitMS   float64       `json:"wait_ms"`       // until it has
	Free     int           `json:"free_blocks"`   // decode: may be promised
	Capacity int           `json:"capacity_blocks"`
	Indexed  int           `json:"indexed_blocks"`
	Age      float64       `json:"load_age_ms"`
	Speed    LiveSpeed     `json:"speed"`
}

// LiveSpeed is how fast an engine is. Samples 0: nothing is learned, and the profile is assumed.
type LiveSpeed struct {
	TokenUS float64 `json:"token_us"` // of prefill, a token
	StepMS  float64 `json:"step_ms"`  // of decoding, with an empty batch
	Samples int     `json:"samples"`
}

// LivePair is a pair over which something was sent lately, or that is kept out.
type LivePair struct {
	Prefill  string  `json:"prefill"`
	Decode   string  `json:"decode"`
	Sent     int     `json:"sent"`     // handoffs among the records that are kept
	Tokens   int     `json:"tokens"`   // that came over with them
	GBps     float64 `json:"gb_s"`     // learned; 0 where nothing is
	Samples  int     `json:"samples"`  // transfers that it was learned from
	Failures float64 `json:"failures"` // of the last minute
	State    string  `json:"state,omitzero"`
	Cause    string  `json:"cause,omitzero"`
}

// LiveRequest is a line of the list of requests.
type LiveRequest struct {
	ID        string    `json:"id"`
	ClientID  string    `json:"client_id,omitzero"`
	Time      time.Time `json:"time"`
	Mode      string    `json:"mode"`
	Prefill   string    `json:"prefill,omitzero"`
	Decode    string    `json:"decode,omitzero"`
	Reason    string    `json:"reason"`
	Prompt    int       `json:"prompt_tokens"`
	Output    int       `json:"output_tokens"`
	Cached    int       `json:"cached_tokens"`
	First     float64   `json:"first_ms"`
	Predicted float64   `json:"predicted_ms"`
	Total     float64   `json:"total_ms"`
	Attempts  int       `json:"attempts"`
	Outcome   string    `json:"outcome"`
}

// newestShown is how many requests the page lists.
const newestShown = 40

// Live returns what is to be seen now. Safe for concurrent use.
func (o *Orchestrator) Live() Live {
	now := time.Now()
	l := Live{
		Time: now, InFlight: o.InFlight(), Waiting: o.queue.length(), Config: o.snap.Load().inForce,
		Profile: liveSpeed(scoring.DefaultSpeed(), 0), Replicas: o.liveReplicas(now), Newest: []LiveRequest{},
	}
	l.Ready, l.Why = o.ready()
	if e := o.lastErr.Load(); e != nil {
		l.Rejected = e.err.Error()
	}
	kept := o.ring.newest(o.Config().Decisions.Ring)
	l.Pairs = o.livePairs(kept, now)
	l.Recent = recent(kept, now)
	for _, r := range kept[:min(len(kept), newestShown)] {
		l.Newest = append(l.Newest, liveRequest(r))
	}
	return l
}

func liveSpeed(s scoring.Speed, samples int) LiveSpeed {
	return LiveSpeed{TokenUS: s.A * 1e6, StepMS: s.D0 * 1e3, Samples: samples}
}

// liveReplicas lists all replicas in the order of the file.
func (o *Orchestrator) liveReplicas(now time.Time) []LiveReplica {
	prefills, decodes := map[replica.ID]*prefill.MemberStatus{}, map[replica.ID]*decode.MemberStatus{}
	for _, m := range o.prefill.Status(now) {
		prefills[m.ID] = &m
	}
	for _, m := range o.decode.Status(now) {
		decodes[m.ID] = &m
	}
	all := []LiveReplica{}
	for _, s := range o.Status().Replicas {
		r := LiveReplica{
			Pool: s.Pool, Name: s.Name, URL: s.URL, Up: s.Up, Reason: s.Reason, States: s.States,
			Usage: -1, Free: -1, Capacity: -1, Age: -1,
		}
		id := replica.ID(s.Name)
		if m := prefills[id]; m != nil && s.Pool == replica.Prefill.String() {
			r.prefills(m)
			r.Capacity = s.Facts.Blocks
		}
		if m := decodes[id]; m != nil && s.Pool == replica.Decode.String() {
			r.decodes(m)
		}
		all = append(all, r)
	}
	return all
}

func (r *LiveReplica) prefills(m *prefill.MemberStatus) {
	r.Index, r.Indexed = m.Trust.String(), m.Blocks
	r.Running, r.Waiting, r.Usage, r.Age = m.Running, m.Waiting, m.Usage, m.LoadAge
	r.Requests, r.Queued, r.WaitMS, r.Speed = m.Requests, m.Tokens, m.WaitMS, liveSpeed(m.Speed, m.Samples)
}

func (r *LiveReplica) decodes(m *decode.MemberStatus) {
	r.Index, r.Indexed = m.Trust.String(), m.Blocks
	r.Running, r.Waiting, r.Usage, r.Age = m.Running, m.Waiting, m.Usage, m.LoadAge
	r.Requests, r.WaitMS, r.Speed = m.Leases, m.LocalMS, liveSpeed(m.Speed, m.Samples)
	r.Free, r.Capacity = m.Free, m.Capacity
}

// livePairs puts together what the records, the links and the ejections say of pairs.
func (o *Orchestrator) livePairs(kept []*Record, now time.Time) []LivePair {
	all := map[planner.Pairing]*LivePair{}
	at := func(p, d replica.ID) *LivePair {
		key := planner.Pairing{Prefill: p, Decode: d}
		if all[key] == nil {
			all[key] = &LivePair{Prefill: string(p), Decode: string(d)}
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
	for _, link := range o.planner.LinkSpeeds() {
		pair := at(link.Prefill, link.Decode)
		pair.GBps, pair.Samples = link.BytesPerSecond/1e9, link.Samples
	}
	for _, s := range o.failingPairs(now) {
		pair := at(s.Pair.Prefill, s.Pair.Decode)
		pair.Failures, pair.State, pair.Cause = s.Failures, s.State.String(), s.Cause
	}
	out := make([]LivePair, 0, len(all))
	for _, pair := range all {
		out = append(out, *pair)
	}
	slices.SortFunc(out, func(a, b LivePair) int {
		return cmp.Or(cmp.Compare(a.Prefill, b.Prefill), cmp.Compare(a.Decode, b.Decode))
	})
	return out
}

func liveRequest(r *Record) LiveRequest {
	l := LiveRequest{
		ID: r.ID, ClientID: r.ClientID, Time: r.Time, Mode: r.Mode, Prefill: r.Prefill, Decode: r.Decode, Reason: r.Reason,
		Prompt: r.Prompt, Output: r.Output, Cached: r.Delivered, First: r.Phases.First, Predicted: -1, Total: r.Phases.Total,
		Attempts: r.Attempts, Outcome: r.Outcome,
	}
	if r.Decision != nil {
		l.Predicted = r.Decision.TTFT
	}
	return l
}
