package cluster

import (
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/lab/trace"
)

// call is one request of the trace while it lives.
type call struct {
	q       Query
	front   *front // that has the request
	session *visit
	prompt  []uint32
	output  int
	place   placement
	// Its prompt has been tokenized.
	tokenized bool
	leg       callLeg
	transfer  transfer
	gaps      gaps
	rec       Record
}

// placement is where a router placed a call.
type placement struct {
	p, d    int  // p below zero for none
	placed  bool // p and d are chosen
	attempt int  // how many legs had failed in the cluster when that was
}

// callLeg is the leg of a call that is under way, or was last.
type callLeg struct {
	side    Side
	piece   int           // leading tokens that it has, 0 for the whole prompt
	flying  bool          // it is on the way to the engine
	beside  watch         // on the streams beside a piece
	sentAt  time.Duration // the prefill leg, or the whole request
	boundAt time.Duration // the decode leg
	failure Failure
	answer  answer
	turn    turn // for the next piece
}

// transfer is what moves between the engines of a call.
type transfer struct {
	params *core.Transfer
	blocks []int // on the prefill replica, that are read
	// For which its descriptors are posted: blocks are there so much later.
	posting time.Duration
}

// answer is what an engine said, on its way to the router.
type answer struct {
	cached  int
	waiting int
	usage   float64
	output  int
}

// Record is what became of one call.
type Record struct {
	At       time.Duration // it came to the router
	Session  int           // number of its session in the trace
	Call     int           // its number in the session
	Waited   time.Duration // for room, at the router
	TTFT     time.Duration
	Total    time.Duration
	Gap      time.Duration // the longest from one token to the next, 0 for an answer of one
	Prompt   int
	Output   int
	Cached   int // prompt tokens that the replica which prefilled found, by its own account
	Pieces   int // that went before the request itself
	Prefill  int // replica, -1 where decode prefilled by itself
	Decode   int
	Moved    int64         // bytes transferred
	Transfer time.Duration // from the order to read until it was done
	Refused  bool          // no room in time: everything else is zero
	Failures int           // legs that failed
	Failed   bool          // its client got an error: everything else is zero but Failures
}

// TPOT is the seconds from token to token, 0 for an answer of one.
func (r *Record) TPOT() float64 {
	if r.Output < 2 {
		return 0
	}
	return (r.Total - r.TTFT).Seconds() / float64(r.Output-1)
}

// visit is a session that has begun.
type visit struct {
	*trace.Session
	number int
	left   int // calls that have not ended
}

// Source gives the sessions of a trace in the order of their start, with [trace.Session.At] set.
type Source interface {
	Next() (*trace.Session, error) // io.EOF at the end
}

// sessions is a source with one session read ahead.
type sessions struct {
	source Source
	next   *trace.Session
	count  int
	done   bool
}

// keys names the blocks of a prompt as every router of the fleet would.
func (c *Cluster) keys(chain kv.Chain, prompt []uint32) []kv.Key {
	return chain.Append(make([]kv.Key, 0, len(prompt)/max(1, chain.BlockSize())), chain.Root("", ""), prompt)
}
