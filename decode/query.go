package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
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
	Estimate  bool // Tokens is an estimate: no replica is too small for it
	MaxTokens int  // new tokens of each sequence, 0 no limit
	Class     estimate.Class
	Sequences int // below 1 counts as 1
	Keys      []kv.Key
	// Tokens of a chunk of text by estimate, where Keys are of chunks; 0 where they are of blocks.
	Chunk  float64
	Block  int        // tokens of a block, where Keys are of blocks
	Depth  []int32    // what [roster.Roster.Match] said of Keys
	Below  []kv.Below // what [roster.Roster.MatchTiers] said
	Stored int        // leading tokens that every member can read from a shared store
	Avoid  []replica.ID
	Ready  time.Duration // until a prefill replica can have computed it
	Split  bool          // a prefill replica may compute it
	Local  bool          // the decode replica may compute it
	Pieces bool          // a decode replica may get the prompt in pieces

	Pulls roster.Pulls // of a decode replica that computes the prompt, from other engines
	// The request itself may ask for blocks of another engine. Else a piece must ask.
	PullsWhole bool

	Asked *scoring.Asked // what the request asks for; nil: nothing

	// Prefills is the measured speed of prefills in the other pool; zero: unknown.
	Prefills estimate.Speed
}

// named returns the prompt by its keys.
func (q *Query) named() roster.Prompt {
	return roster.Prompt{Keys: q.Keys, Block: q.Block, Tokens: q.Tokens, Chunk: q.Chunk}
}

// Excluded says why a member is no candidate.
type Excluded struct {
	ID     replica.ID
	Reason string
	Limit  int           // if Tokens is larger: the longest prompt that it ever takes; else 0
	Room   time.Duration // if it has no room: when it should have room; else 0
	Every  time.Duration // if it has no room: between two similar requests that find room on it; 0 unknown
	// If it has no room: the share of its blocks that the request would take; above 1 it waits until it is
	// empty.
	Part float64
}

// Rejected sums up the members that are no candidates.
type Rejected struct {
	Full    int           // without room now
	Retry   time.Duration // until the first full member should have room
	Matched int           // longest match on a full member, by an index that is not blind
	Blind   int           // number of blind full members
	Small   int           // too small for the prompt for good
	Ill     int           // suitable, but unhealthy, drained or avoided
	Limit   int           // the longest prompt that a small member takes
}

// MemberStatus describes one member, in KV blocks if a field names no other unit. Unknown values are -1.
type MemberStatus struct {
	roster.Status
	Capacity  int `json:"capacity_blocks"`
	Free      int `json:"free_blocks"`     // may be promised
	Promised  int `json:"promised_blocks"` // by this router, not in the engine's newest report
	Growth    int `json:"growth_blocks"`   // expected growth of requests in the report
	Reserved  int `json:"soft_blocks"`     // reserved by requests in a prefill queue
	Returned  int `json:"returned_blocks"` // came free since the newest report
	Leases    int `json:"leases"`
	Sequences int `json:"sequences"` // of this router, admitted or further
	Others    int `json:"other_requests"`
	replica.LoadStatus
	Guessed bool               `json:"guessed"`  // no fresh report: the use is assumed
	LocalMS float64            `json:"local_ms"` // until local prefills are done, predicted
	Output  int                `json:"expected_output_tokens"`
	Speed   estimate.Speed     `json:"speed"`
	Samples int                `json:"speed_samples"`
	Remote  ledger.PeerLoad    `json:"elsewhere,omitzero"`           // the sum of the other routers' reports
	Reads   map[string]float64 `json:"read_token_seconds,omitempty"` // learned, by memory

	// What was learned of the engine's settings: how many sequences it runs at once, and whether it cuts
	// prompts as finely as pieces, so that prompts go whole.
	MaxSequences int  `json:"max_num_seqs"`
	CutsPrompts  bool `json:"cuts_prompts"`
}
