// Package observe keeps what people may see of requests: records, the file of decisions, metrics and spans.
package observe

import (
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// Record describes one request: its decision and what the engines delivered. It has no prompt text and no
// token ids.
type Record struct {
	ID        string    `json:"id"`
	ClientID  string    `json:"client_id,omitzero"` // that the client gave it
	Key       string    `json:"key,omitzero"`       // name of the client's key
	Session   string    `json:"session,omitzero"`   // a part of the hash of the session's id
	Class     string    `json:"class,omitzero"`     // of the request
	Goals     string    `json:"goals,omitzero"`     // kept, or the first that the answer missed
	Time      time.Time `json:"time"`
	Path      string    `json:"path"`
	Alias     string    `json:"alias,omitzero"` // the alias that the client named instead of the model
	Model     string    `json:"model"`
	Mode      string    `json:"mode"`     // split, local, unsplit or none
	Streamed  bool      `json:"streamed"` // only a stream has a first content before its end
	Prefill   string    `json:"prefill,omitzero"`
	Decode    string    `json:"decode,omitzero"`
	Reason    string    `json:"reason"`
	Prompt    int       `json:"prompt_tokens,omitzero"` // no prompt is empty: 0 is unknown
	Output    int       `json:"output_tokens"`
	Tokenizer string    `json:"tokenizer,omitzero"` // where the ids came from
	// Longest match on any replica, by the index; -1 if the prompt's tokens are unknown.
	Available int `json:"available_tokens"`
	// Replicas left out of Available: their events do not arrive.
	Blind int `json:"blind,omitzero"`
	// Match on the replica that prefilled, by its index; -1 unknown.
	Captured  int `json:"captured_tokens"`
	Delivered int `json:"delivered_tokens"` // the engine's cached_tokens, -1 unknown
	// In a split: prompt tokens that the decode replica was to receive from the prefill replica; else -1.
	Planned int `json:"planned_tokens"`
	// Cached tokens that the decode engine reported beyond its own prefix match; -1 unknown.
	Moved int `json:"moved_tokens"`
	// Tokens that the prefill replica had computed, that the store did not deliver, and that the decode replica
	// computed again.
	Missed int `json:"missed_tokens,omitzero"`
	// The decode replica's own match is unknown: a part of Moved may have been there before.
	Unsure bool `json:"moved_unsure,omitzero"`
	// Requests for beginnings of the prompt that the decode replica got before the request itself.
	Pieces int `json:"pieces,omitzero"`
	// For a local prefill: the reason why the prompt, or its rest, was sent whole.
	Whole    string `json:"whole,omitzero"`
	Phases   Phases `json:"phases_ms"`
	Attempts int    `json:"attempts"`
	Samples  int    `json:"samples,omitzero"` // requested answers, if more than one
	// Attempts before the last one, and also the last one if the request failed.
	Failed []FailedAttempt `json:"failed_attempts,omitzero"`
	// Why no attempt followed the last failed one, see retry.go.
	NotRetried string `json:"not_retried,omitzero"`
	// Decode replicas that continued a stream that broke off.
	Continued []string `json:"continued,omitzero"`
	// Why no replica continued a stream that broke off, see continue.go.
	NotContinued string            `json:"not_continued,omitzero"`
	Status       int               `json:"status"`
	Outcome      string            `json:"outcome"` // ok, client_gone, or the kind of failure
	Config       *config.InForce   `json:"config"`
	Decision     *planner.Decision `json:"decision,omitzero"`
}

// Gone is the outcome of a request whose client left: not a failure.
const Gone = "client_gone"

// FailedAttempt is an attempt without an answer: where it was sent, and what failed.
type FailedAttempt struct {
	Mode    string  `json:"mode"`
	Prefill string  `json:"prefill,omitzero"`
	Decode  string  `json:"decode"`
	Reason  string  `json:"reason"`      // of the choice
	At      string  `json:"at,omitzero"` // the replica that failed; empty if none did
	Phase   string  `json:"phase"`       // in which it failed
	Kind    string  `json:"kind"`        // of failure
	Status  int     `json:"status"`      // the status that the client would have got
	Began   float64 `json:"began_ms"`    // since the request came
	Took    float64 `json:"took_ms"`     // until it failed
}

// NewRecord returns an empty record, with unknown numbers as -1.
func NewRecord(id, path string, began time.Time, inForce *config.InForce) *Record {
	return &Record{
		ID: id, Time: began, Config: inForce, Path: path, Mode: "none", Available: -1, Captured: -1,
		Delivered: -1,
		Planned:   -1, Moved: -1,
	}
}

// Ago is how long before now the request ended.
func (r *Record) Ago(now time.Time) time.Duration {
	return now.Sub(r.Time.Add(time.Duration(r.Phases.Total * 1e6)))
}

// Phases are the parts of a request's life in milliseconds. A phase that did not happen is zero.
type Phases struct {
	Tokenize float64 `json:"tokenize"`
	Queue    float64 `json:"queue"`
	Plan     float64 `json:"plan"`
	Prefill  float64 `json:"prefill"` // of a leg of its own, or in pieces
	// part of Prefill: wait for other requests' prompts at the decode replica
	Turn    float64 `json:"turn"`
	Handoff float64 `json:"handoff"` // last byte of the prefill answer to the decode request sent
	First   float64 `json:"first"`   // request in to first content byte out
	Total   float64 `json:"total"`
}
