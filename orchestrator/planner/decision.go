package planner

import (
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/scoring"
)

// Units says what the terms of the plans in a Decision are counted in.
type Units string

// The units of a Decision. InRaw are the numbers of the formula itself, see [scoring.InRaw]. Records that are
// older than these names say "seconds" and hold milliseconds.
const (
	InMilliseconds Units = "milliseconds"
	InRaw          Units = "raw"
)

// unitsOf returns the units of a record in which terms are counted in u.
func unitsOf(u scoring.Units) Units {
	if u == scoring.InRaw {
		return InRaw
	}
	return InMilliseconds
}

// Decision is the record of one choice. Times are milliseconds; in raw units the terms of the plans are the
// formula's own numbers. A published Decision is never changed.
type Decision struct {
	ID      string     `json:"id"`
	Time    time.Time  `json:"time"`
	Model   string     `json:"model"`
	Tokens  int        `json:"prompt_tokens"`
	Exact   bool       `json:"exact"`
	Units   Units      `json:"units"`
	Mode    Mode       `json:"mode"`
	Prefill replica.ID `json:"prefill,omitzero"`
	Decode  replica.ID `json:"decode"`
	Reason  string     `json:"reason"` // one sentence: why this pair
	Why     string     `json:"why"`    // the same in one word
	// Deepest prefix match on any replica that could prefill, full ones included, blind ones not.
	Available int `json:"available_tokens"`
	// Replicas left out of Available: their events are not heard, so their cached blocks are unknown.
	Blind     int `json:"blind,omitzero"`
	Truncated int `json:"truncated,omitzero"`
	// Prefix match where the request is prefilled, by the index; a guess if Guessed.
	Matched int  `json:"matched_tokens"`
	Guessed bool `json:"guessed,omitzero"` // what is cached where the request is prefilled is unknown
	// Prefix match on the decode replica: these tokens need no transfer.
	Held int `json:"held_tokens"`
	// The shared store gives these tokens: the decode replica needs no prefill leg.
	Stored int     `json:"stored_tokens,omitzero"`
	TTFT   float64 `json:"predicted_ttft_ms"`
	Output int     `json:"expected_output_tokens"`
	// Policies that chose instead of the costs.
	Rules    string `json:"rules,omitzero"`
	Compared int    `json:"compared"` // plans in the comparison
	Ties     int    `json:"ties"`     // plans as good as the chosen one, the chosen one included
	// The chosen plan, then the best others: splits and locals.
	Plans   []Plan   `json:"plans"`
	Unknown []string `json:"unknown,omitzero"` // inputs that were guessed
	// Replicas that were used although they are ejected: too few others are left.
	Forced   string      `json:"forced,omitzero"`
	Excluded []Exclusion `json:"excluded,omitzero"` // replicas that were no candidates; only from Explain
	Moved    *Move       `json:"moved,omitzero"`    // the decode replica was replaced after the prefill
}

// Plan is one row of the comparison.
type Plan struct {
	Mode      Mode          `json:"mode"`
	Prefill   replica.ID    `json:"prefill,omitzero"`
	Decode    replica.ID    `json:"decode"`
	Terms     scoring.Terms `json:"terms"`
	Total     float64       `json:"total"`
	GBps      float64       `json:"gb_s,omitzero"`       // estimated bandwidth of a Split's link
	OnPrefill *PrefillSide  `json:"on_prefill,omitzero"` // nil for Local
	OnDecode  *DecodeSide   `json:"on_decode,omitzero"`
}

// PrefillSide is the facts about the prefill replica of a plan. Unknown values are -1.
type PrefillSide struct {
	Matched int `json:"matched_tokens"` // by the index
	// Of Matched, the tokens that the engine must read back, by the memory that has them.
	Below kv.Below `json:"below_tokens,omitzero"`
	// The match that the price assumes, where Matched is a guess.
	Expected int           `json:"expected_tokens,omitzero"`
	Queued   int           `json:"queued_tokens"` // ahead of the request, ours and others'
	Usage    float64       `json:"usage"`
	Rho      float64       `json:"rho"`   // share of the last two minutes booked with work
	Alpha    float64       `json:"alpha"` // weight of prefill seconds
	LoadAge  float64       `json:"load_age_ms"`
	Trust    replica.Trust `json:"index"`
	Note     Note          `json:"index_note,omitzero"` // why Matched may be wrong
	Pulled
}

// Pulled is what the replica that computes the prompt would pull from another engine.
type Pulled struct {
	Tokens int        `json:"pulled_tokens,omitzero"` // leading tokens of the prompt
	Source replica.ID `json:"pulled_from,omitzero"`
}

// DecodeSide is the facts about the decode replica of a plan. Unknown values are -1.
//
// Long: a row of facts, which an operator sees all together.
type DecodeSide struct {
	Matched int `json:"matched_tokens"` // by the index
	// Of Matched, the tokens that the engine must read back, by the memory that has them.
	Below kv.Below `json:"below_tokens,omitzero"`
	// The match that the price assumes, where Matched is a guess.
	Expected int     `json:"expected_tokens,omitzero"`
	Need     int     `json:"need_blocks"` // prompt and expected answer
	Free     int     `json:"free_blocks"` // by the engine's report, less the reserved blocks
	Soft     int     `json:"soft_blocks"` // reserved by requests in a prefill queue
	Running  int     `json:"running"`     // requests of all routers
	Step     float64 `json:"step_ms"`     // decode step with this request
	// Length of a piece, if the prompt would be sent in pieces.
	Piece float64 `json:"piece_ms,omitzero"`
	// For a local prefill: the weight of prefill seconds, and the part of the prefill term that is decode steps
	// and is not weighted.
	Alpha   float64       `json:"alpha,omitzero"`
	Beside  float64       `json:"beside_ms,omitzero"`
	Usage   float64       `json:"usage"`
	LoadAge float64       `json:"load_age_ms"`
	Trust   replica.Trust `json:"index"`
	Note    Note          `json:"index_note,omitzero"` // why Matched may be wrong
	Pulled                // for a local prefill
}

// Note says why the match of a replica may be wrong. Its text is a sentence for people.
type Note uint8

// NoteBlind: the replica's events do not arrive, so its cache is unknown. NoteTruncated: the index dropped
// blocks of the replica to stay within its byte budget.
const (
	NoteBlind Note = iota + 1
	NoteTruncated
)

func (n Note) String() string {
	switch n {
	case NoteBlind:
		return "blind: its events do not arrive; expected is its last known match, or the mean of the others"
	case NoteTruncated:
		return "truncated: depth may be too small"
	}
	return ""
}

// MarshalText writes the sentence of n.
func (n Note) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// Exclusion says why a replica or pair was no candidate.
type Exclusion struct {
	Pool    string     `json:"pool"` // prefill, decode or pair
	Replica replica.ID `json:"replica"`
	With    replica.ID `json:"with,omitzero"` // the decode replica of a pair
	Reason  string     `json:"reason"`
}

// Move says which decode replica took over after the prefill, and why.
type Move struct {
	From   replica.ID `json:"from"`
	To     replica.ID `json:"to"`
	Reason string     `json:"reason"`
}

// The values of Decision.Why: the main cause of a choice, fit for a metric label.
const (
	WhyOnly     = "only"     // nothing else was possible
	WhyMatch    = "match"    // the prefix cached there
	WhyLoad     = "load"     // less work waiting
	WhyRoom     = "room"     // room or batch of the decode replica
	WhyLink     = "link"     // the shorter transfer
	WhySpeed    = "speed"    // the faster decode replica
	WhyFailures = "failures" // another failed lately
	WhyGoal     = "goal"     // the goals of the request
	WhyTie      = "tie"      // as good as others, taken at random
	WhyRule     = "rule"     // a pool's policy chose by itself
)
