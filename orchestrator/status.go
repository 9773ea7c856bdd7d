package orchestrator

import (
	"maps"
	"slices"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/prefill"
)

// Status is the whole state for people: what /debug/replicas shows.
type Status struct {
	Ready    bool            `json:"ready"`
	Why      []string        `json:"why,omitempty"`
	InFlight int             `json:"in_flight"`
	Waiting  int             `json:"waiting"`
	Replicas []ReplicaStatus `json:"replicas"`

	// Pairs are those whose KV blocks did not come over lately, ejected ones among them.
	Pairs []outlier.Status `json:"pairs,omitempty"`
	// Links are the paths between replicas of which something was measured.
	Links []LinkStatus `json:"links,omitempty"`
}

// LinkStatus is what was learned of the path between two replicas.
type LinkStatus struct {
	Prefill    replica.ID `json:"prefill"`
	Decode     replica.ID `json:"decode"`
	Kind       string     `json:"kind"`            // of path: host, rack, zone, other
	GBps       float64    `json:"gb_s"`            // that it is taken for
	Configured float64    `json:"configured_gb_s"` // by scoring.links, for paths of this kind
	Error      float64    `json:"error"`           // factor by which it may well be more or less, at least 1
	Samples    int        `json:"samples"`         // transfers that it was learned from
	AgeMS      float64    `json:"age_ms"`          // since the newest of them
}

// links are those of which something was measured, in order.
func (o *Orchestrator) links(now time.Time) (all []LinkStatus) {
	for _, l := range o.planner.LinkSpeeds(now) {
		all = append(all, LinkStatus{
			Prefill: l.Prefill, Decode: l.Decode, Kind: l.Kind.String(), GBps: l.BytesPerSecond / 1e9,
			Configured: l.Configured / 1e9, Error: l.Error, Samples: l.Samples, AgeMS: ms(l.Age),
		})
	}
	return all
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
		Skewed: s.Skewed, LagMS: ms(s.Behind.Last), LastAt: s.LastAt,
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
	s.Links = o.links(now)
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
	for _, m := range o.prefillStatus(now) {
		out[m.ID] = m
	}
	for _, m := range o.decodeStatus(now) {
		out[m.ID] = m
	}
	return out
}

// prefillStatus is the prefill pool's account of each replica. The load of one that cannot be reached is
// unknown: what it said last would look as if it still ran.
func (o *Orchestrator) prefillStatus(now time.Time) []prefill.MemberStatus {
	all := o.prefill.Status(now)
	for i := range all {
		if o.down(all[i].ID) {
			all[i].LoadStatus = replica.UnknownLoad()
		}
	}
	return all
}

// decodeStatus is the decode pool's, in the same way.
func (o *Orchestrator) decodeStatus(now time.Time) []decode.MemberStatus {
	all := o.decode.Status(now)
	for i := range all {
		if o.down(all[i].ID) {
			all[i].LoadStatus, all[i].Free = replica.UnknownLoad(), -1
		}
	}
	return all
}

// down reports whether a replica that is known cannot be reached.
func (o *Orchestrator) down(id replica.ID) bool {
	e := o.fleet.Endpoint(id)
	return e != nil && !e.Up()
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
