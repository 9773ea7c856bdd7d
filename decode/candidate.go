package decode

import (
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
	"github.com/tandem-router/tandem/scoring"
)

// Candidate is a replica that could decode the request now, with its facts. It belongs to the query that
// made it.
//
// Long: a row of facts, which one plan reads together and an operator mostly sees.
type Candidate struct {
	scoring.Decode

	Slot    int      // in the View
	Matched int      // leading tokens that the replica holds by the index: whole blocks, less than Tokens
	Below   kv.Below // of Matched, the tokens that the replica must read back from lower tiers
	// Leading tokens that the price assumes: Matched, or the expected match of a Blind replica.
	Expected int
	Source   roster.Source // from which it would pull blocks of the prompt that it computes; zero for none
	Need     int           // blocks of its expected answer, and of its prompt without blocks in use
	Free     int           // blocks that may be promised, -1 where the capacity is unknown
	Reserved int           // blocks asked for by requests still in a prefill queue
	LoadAge  time.Duration // of the newest report, -1 without any
	// There will be room when its blocks arrive, but there is none yet for a local prefill.
	Crowded bool
	// Requests that wait for their blocks take all the room that such requests may take. So this request may not
	// come as a Split, but the replica may prefill the prompt itself.
	Saturated bool
	// The speed of its local prefills is old, and no prefill under way will update it.
	Doubtful bool
	Unknown  bool // no fresh report: its use is assumed to be the pool's mean
	// Its events do not arrive now: Matched is a guess, and may be too small or too large.
	Blind bool
	Trust replica.Trust

	// Truncated says that the index dropped blocks of the replica for its byte budget: Matched may be too
	// small, never too large.
	Truncated bool

	member  *member
	prompt  int           // blocks of the prompt, without blocks that other requests have in use
	limit   int           // new tokens of a sequence, -1 none
	runSlot time.Duration // until one more sequence may run there
	speed   estimate.Speed
	longer  float64 // duration of the replica's steps, as a multiple of the pool's
	reads   float64 // tokens that a step reads with its whole load
	answer  float64 // expected tokens of one sequence
	shared  float64 // seconds of the request's own prefill that add nothing to the work of other prompts there
}
