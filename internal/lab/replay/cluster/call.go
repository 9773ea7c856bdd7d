package cluster

import (
	"errors"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/lab/trace"
)

// call is one request of the trace while it lives.
type call struct {
	q       Query
	front   *front // the router that has the request
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
	attempt int  // failed legs in the cluster at that time
}

// callLeg is the running or latest leg of a call.
type callLeg struct {
	side    Side
	piece   int           // leading tokens that it has, 0 for the whole prompt
	flying  bool          // it is on the way to the engine
	beside  watch         // of the streams during a piece
	sentAt  time.Duration // when the prefill leg, or the whole request, was sent
	boundAt time.Duration // when the decode leg was sent
	failure Failure
	answer  answer
	turn    turn // for the next piece
}

// transfer is the KV transfer of a call.
type transfer struct {
	params *core.Transfer
	blocks []int // blocks of the prefill replica that are read
	// Time to post the descriptors. The transfer ends this much later.
	posting time.Duration
}

// answer is an engine's answer on its way to the router.
type answer struct {
	cached  int
	waiting int
	usage   float64
	output  int
}

// Record is the result of one call.
type Record struct {
	At       time.Duration // arrival at the router
	Session  int           // number of its session in the trace
	Call     int           // its number in the session
	Waited   time.Duration // for room, at the router
	TTFT     time.Duration
	Total    time.Duration
	Gap      time.Duration // the longest time between two tokens, 0 for an answer of one token
	Prompt   int
	Output   int
	Cached   int // cached prompt tokens, as the replica that prefilled reported them
	Pieces   int // sent before the request itself
	Prefill  int // replica, -1 if the decode replica prefilled
	Decode   int
	Moved    int64         // bytes transferred
	Transfer time.Duration // from the order to read until the read was done
	Refused  bool          // no room in time: everything else is zero
	Failures int           // legs that failed
	Failed   bool          // its client got an error: everything else is zero but Failures
}

// TPOT is the mean time between tokens in seconds, 0 for an answer of one token.
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

// Paced is a [Source] whose next session may have to wait for ends of requests. Then Next returns
// [ErrNotYet].
type Paced interface {
	Source
	Ended(now time.Duration) // a request has ended
}

// ErrNotYet says that a source has its next session only after another request has ended.
var ErrNotYet = errors.New("the next session is not known yet")

// sessions is a source, which is read one session ahead.
type sessions struct {
	source Source
	count  int
	waits  bool // the source said [ErrNotYet]
	done   bool
}

// ended tells the source of an end. It reports whether the source may have a session now.
func (s *sessions) ended(now time.Duration) (again bool) {
	if p, ok := s.source.(Paced); ok {
		p.Ended(now)
		s.waits, again = false, s.waits
	}
	return again
}

// keys names the blocks of a prompt as every router of the fleet would.
func (c *Cluster) keys(chain kv.Chain, prompt []uint32) []kv.Key {
	return chain.Append(make([]kv.Key, 0, len(prompt)/max(1, chain.BlockSize())), chain.Root("", ""), prompt)
}
