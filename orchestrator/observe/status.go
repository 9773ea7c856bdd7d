package observe

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

	// Pairs are the pairs whose KV blocks did not arrive lately, including ejected pairs.
	Pairs []outlier.Status `json:"pairs,omitempty"`
	// Links are the measured paths between replicas.
	Links []LinkStatus `json:"links,omitempty"`
}

// LinkStatus is the estimate of the path between two replicas.
type LinkStatus struct {
	Prefill    replica.ID `json:"prefill"`
	Decode     replica.ID `json:"decode"`
	Kind       string     `json:"kind"`            // of path: host, rack, zone, other
	GBps       float64    `json:"gb_s"`            // estimate, in GB per second
	Configured float64    `json:"configured_gb_s"` // by scoring.links, for paths of this kind
	Error      float64    `json:"error"`           // plausible error of the estimate, as a factor ≥ 1
	Samples    int        `json:"samples"`         // measured transfers
	AgeMS      float64    `json:"age_ms"`          // since the newest measured transfer
}

// Links lists the measured paths, in order.
func (s *State) Links(now time.Time) (all []LinkStatus) {
	for _, l := range s.Planner.LinkSpeeds(now) {
		all = append(all, LinkStatus{
			Prefill: l.Prefill, Decode: l.Decode, Kind: l.Kind.String(), GBps: l.BytesPerSecond / 1e9,
			Configured: l.Configured / 1e9, Error: l.Error, Samples: l.Samples, AgeMS: Millis(l.Age),
		})
	}
	return all
}

// ReplicaStatus is one replica: its identity, its streams, and its books.
type ReplicaStatus struct {
	Pool    string        `json:"pool"`
	Name    string        `json:"replica"`
	URL     string        `json:"url"`
	Up      bool          `json:"up"`
	Reason  string        `json:"reason,omitempty"`
	States  []fleet.State `json:"states,omitempty"` // further states of the replica, several may hold together
	Facts   replica.Facts `json:"facts,omitzero"`
	Events  string        `json:"events"` // state of the event stream
	Batches uint64        `json:"event_batches"`
	Stream  *StreamStatus `json:"event_stream,omitempty"` // nil: no stream is followed
	Book    any           `json:"book,omitempty"`         // the pool's own account: leases, load, index
}

// StreamStatus counts what one event stream brought, and its faults, since the replica was first followed.
type StreamStatus struct {
	Seq          uint64            `json:"seq"` // of the newest batch applied
	Events       uint64            `json:"events"`
	Blocks       map[string]uint64 `json:"blocks"` // by outcome: stored, removed, orphaned, skipped
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
		Skewed: s.Skewed, LagMS: Millis(s.Behind.Last), LastAt: s.LastAt,
	}
}

// Status returns the state of everything. Safe for concurrent use.
func (s *State) Status() Status {
	traffic := s.Traffic()
	all := Status{InFlight: traffic.InFlight, Waiting: traffic.Waiting, Replicas: []ReplicaStatus{}}
	all.Ready, all.Why = s.Ready()
	now := time.Now()
	books := s.books(now)
	for _, w := range s.Fleet.Watchers() {
		all.Replicas = append(all.Replicas, statusOf(w, books)...)
	}
	all.Pairs = s.FailingPairs(now)
	all.Links = s.Links(now)
	return all
}

// FailingPairs returns the pairs whose blocks did not arrive lately.
func (s *State) FailingPairs(now time.Time) []outlier.Status {
	all := s.Planner.Outliers().Status(now)
	return slices.DeleteFunc(all, func(of outlier.Status) bool { return of.Pair == nil })
}

// books maps each replica to its pool's account.
func (s *State) books(now time.Time) map[replica.ID]any {
	out := map[replica.ID]any{}
	for _, m := range s.prefillStatus(now) {
		out[m.ID] = m
	}
	for _, m := range s.decodeStatus(now) {
		out[m.ID] = m
	}
	return out
}

// prefillStatus returns the prefill pool's account of each replica. The load of an unreachable replica is
// unknown: its last report would make it seem to run.
func (s *State) prefillStatus(now time.Time) []prefill.MemberStatus {
	all := s.Prefill.Status(now)
	for i := range all {
		if s.down(all[i].ID) {
			all[i].LoadStatus = replica.UnknownLoad()
		}
	}
	return all
}

// decodeStatus returns the decode pool's account of each replica, with the same exception.
func (s *State) decodeStatus(now time.Time) []decode.MemberStatus {
	all := s.Decode.Status(now)
	for i := range all {
		if s.down(all[i].ID) {
			all[i].LoadStatus, all[i].Free = replica.UnknownLoad(), -1
		}
	}
	return all
}

// down reports whether a known replica cannot be reached.
func (s *State) down(id replica.ID) bool {
	e := s.Fleet.Endpoint(id)
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
