package replica

import (
	"math"
	"time"
)

// LoadSource says where a [Load] came from, and so which fields it can have.
type LoadSource uint8

// ORCA brings Waiting and Usage of the moment an answer left; Metrics brings every field, as of the scrape.
const (
	ORCA LoadSource = iota + 1
	Metrics
)

// Load is one report of an engine about itself. A value that was not in the report is Unknown (counts: -1,
// shares: NaN), never zero: an engine that reports nothing must not look idle.
type Load struct {
	At      time.Time // when the report reached us
	Source  LoadSource
	Running int // requests in the batch, -1 unknown
	Waiting int // requests queued, -1 unknown
	Loading int // waiting requests whose KV is on its way or has come: they hold blocks already; -1 unknown
	// Loading requests whose KV is on its way. They wait for no work of the engine. -1 unknown.
	Fetching int
	// Tokens that it drafts for each sequence and step; 0: it has none, or none yet, or does not say.
	Drafts int
	Usage  float64 // share of KV blocks held by requests and leases, 0..1, NaN unknown
	Reads  Reads
}

// Reads is what an engine counts of its reads of other engines' KV blocks. The numbers only grow while its
// process lives. The zero Reads says that it does not count them.
type Reads struct {
	Count   float64
	Bytes   float64
	Seconds float64 // from the first descriptor until all blocks are there, added up
	Posting float64 // the part of Seconds for posting descriptors, during which the engine makes no step
}

// Since returns the counts since before; false if there are none, or if another process counts.
func (r Reads) Since(before Reads) (Reads, bool) {
	d := Reads{
		r.Count - before.Count, r.Bytes - before.Bytes, r.Seconds - before.Seconds, r.Posting - before.Posting,
	}
	return d, d.Count >= 1 && d.Bytes > 0 && d.Seconds > 0 && d.Posting >= 0
}

// NoLoad is the report that says nothing.
func NoLoad() Load {
	return Load{Running: -1, Waiting: -1, Loading: -1, Fetching: -1, Usage: math.NaN()}
}

// Known reports whether l says anything at all.
func (l Load) Known() bool { return l.Source != 0 }
