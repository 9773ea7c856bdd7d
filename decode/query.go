package decode

import (
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
	"github.com/tandem-router/tandem/scoring"
)

// Query is the question of one request.
type Query struct {
	Model     string
	Tokens    int  // of the prompt, at least 1
	Estimate  bool // Tokens is one: nobody is too small for it
	MaxTokens int  // new tokens of each sequence, 0 no limit
	Class     estimate.Class
	Sequences int // below 1 counts as 1
	Keys      []kv.Key
	// Tokens of a chunk of text by estimate, where Keys are of chunks; 0 where they are of blocks.
	Chunk  float64
	Depth  []int32 // what [roster.Roster.Match] said of Keys
	Avoid  []replica.ID
	Ready  time.Duration // until a prefill replica can have computed it
	Split  bool          // a prefill replica may compute it
	Local  bool          // the decode replica may compute it
	Pieces bool          // the prompt may be sent in pieces to who computes it itself

	// Prefills is how long prefills take in the other pool, as measured; zero: not known.
	Prefills estimate.Speed
}

// Candidate is a replica that could decode the request now, with all that is known of it. It belongs to the
// query that made it.
//
// Long: a row of facts, all of them read for one plan, of which an operator sees most.
type Candidate struct {
	scoring.Decode

	Slot    int // in the View
	Matched int // leading tokens that the index says it holds, whole blocks and less than Tokens
	// Leading tokens that it is priced with: Matched, or what is expected of a replica that is Blind.
	Expected int
	Need     int           // blocks for its expected answer, and for what no request has in use of its prompt
	Free     int           // blocks that may be promised, -1 where the capacity is unknown
	Reserved int           // blocks asked for by requests still in a prefill queue
	LoadAge  time.Duration // of the newest report, -1 without any
	// There will be room when its blocks come, but there is none yet for who prefills here.
	Crowded bool
	// Requests that wait for their blocks take all the room that they may: no blocks of this one may follow, but
	// it may be computed there.
	Saturated bool
	// The speed of its own prefills was learned, but of nothing new, and none is under way that could tell.
	Doubtful bool
	Unknown  bool // no fresh report: what it uses is the pool's mean
	// Its events do not reach us now: Matched is a guess, and may as well be too small as too large.
	Blind bool
	Trust replica.Trust

	// Truncated says that blocks of it were dropped from the index for the byte budget: Matched may be too
	// small, never too large.
	Truncated bool

	member  *member
	prompt  int           // blocks of the prompt, without those that others have in use already
	limit   int           // new tokens of a sequence, -1 none
	runSlot time.Duration // until one sequence more may run there
	speed   estimate.Speed
	longer  float64 // times as long as the pool's its steps take
	reads   float64 // tokens that a step with all that it has reads
	answer  float64 // tokens that one sequence is expected to generate
	shared  float64 // seconds of its own prefill that it does not add to what others there take
}

// Excluded says why a member is no candidate.
type Excluded struct {
	ID     replica.ID
	Reason string
	Limit  int           // the largest prompt in tokens that it ever takes, where Tokens is more; else 0
	Room   time.Duration // when it should have room, where it has none now; else 0
	Every  time.Duration // between two requests like this that find room on it, where it has none; 0 unknown
	// Of all its blocks, what the request would take, where it has no room; above 1 it waits until it is empty.
	Part float64
}

// Rejected sums up the members that are no candidates.
type Rejected struct {
	Full    int           // without room now
	Retry   time.Duration // until the first of those should have room
	Matched int           // the most leading tokens that one of those holds, by an index that is not blind
	Blind   int           // how many of those are blind
	Small   int           // too small for the prompt for good
	Ill     int           // would do, were they not unhealthy, drained or avoided
	Limit   int           // the largest prompt that one of the small takes
}

// MemberStatus is what is known of one member, in KV blocks where nothing else is said. Unknown values are
// -1.
type MemberStatus struct {
	roster.Status
	Capacity  int `json:"capacity_blocks"`
	Free      int `json:"free_blocks"`     // may be promised
	Promised  int `json:"promised_blocks"` // by us, not in the engine's newest report
	Growth    int `json:"growth_blocks"`   // still expected of requests in the report
	Reserved  int `json:"soft_blocks"`     // asked for by requests in a prefill queue
	Returned  int `json:"returned_blocks"` // since the newest report
	Leases    int `json:"leases"`
	Sequences int `json:"sequences"` // ours, admitted or further
	Others    int `json:"other_requests"`
	replica.LoadStatus
	Guessed bool           `json:"guessed"`  // no fresh report: what is in use is assumed
	LocalMS float64        `json:"local_ms"` // until local prefills are done, predicted
	Output  int            `json:"expected_output_tokens"`
	Speed   estimate.Speed `json:"speed"`
	Samples int            `json:"speed_samples"`
	Remote  PeerLoad       `json:"elsewhere,omitzero"` // the sum of what other routers report

	// What was learned of how the engine was started: how many sequences it runs at a time, and whether it cuts
	// prompts as finely as pieces itself, so that they go there whole.
	MaxSequences int  `json:"max_num_seqs"`
	CutsPrompts  bool `json:"cuts_prompts"`
}
