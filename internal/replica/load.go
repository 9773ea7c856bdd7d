package replica

import (
	"math"
	"time"
)

// LoadSource says where a [Load] came from, which says what it can hold.
type LoadSource uint8

// ORCA brings Waiting and Usage of the moment an answer left; Metrics brings every field, as of the scrape.
const (
	ORCA LoadSource = iota + 1
	Metrics
)

// Load is one report of an engine about itself. What was not in the report is Unknown (counts: -1, shares:
// NaN), never zero: an engine that says nothing must not look idle.
type Load struct {
	At      time.Time // when the report reached us
	Source  LoadSource
	Running int // requests in the batch, -1 unknown
	Waiting int // requests queued, -1 unknown
	Loading int // those of them whose KV is on its way or has come: they hold blocks already; -1 unknown
	// Of those, whose KV is on its way: they wait for nothing that the engine has to do. -1 unknown.
	Fetching int
	// Tokens that it drafts for each sequence and step; 0: it has none, or none yet, or does not say.
	Drafts int
	Usage  float64 // share of KV blocks held by requests and leases, 0..1, NaN unknown
}

// NoLoad is the report that says nothing.
func NoLoad() Load {
	return Load{Running: -1, Waiting: -1, Loading: -1, Fetching: -1, Usage: math.NaN()}
}

// Known reports whether l says anything at all.
func (l Load) Known() bool { return l.Source != 0 }
