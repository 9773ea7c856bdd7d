package page

import (
	"fmt"
	"time"

	"github.com/tandem-router/tandem/internal/config"
)

// Live is what the page shows, small enough to be sent every second for hundreds of replicas.
// Unknown numbers are -1.
type Live struct {
	Time     time.Time      `json:"time"`
	Ready    bool           `json:"ready"`
	Why      []string       `json:"why,omitempty"`
	InFlight int            `json:"in_flight"`
	Waiting  int            `json:"waiting"`
	Rejected string         `json:"rejected,omitzero"` // why the newest configuration is not in force
	Config   config.InForce `json:"config"`
	Profile  Speed          `json:"profile"` // what is assumed of replicas that nothing is learned of
	Replicas []Replica      `json:"replicas"`
	Pairs    []Pair         `json:"pairs"`
	Recent   Recent         `json:"recent"`
	Newest   []Request      `json:"newest"`
	Usable   int            `json:"usable"`        // replicas that get requests
	Out      []string       `json:"out,omitempty"` // names of the others, in the order of the file
	// Limited are names of usable replicas that serve less than they could, in the order of the file.
	Limited []string `json:"limited,omitempty"`
	Hints   []string `json:"hints,omitempty"`

	Classes []Class `json:"classes,omitempty"` // in the order of the file

	Keys     []Key `json:"keys,omitempty"`     // with most tokens in the last hour
	MoreKeys int   `json:"more_keys,omitzero"` // that were used in the last hour
}

// Class says how the requests of a class are served: now, and in the last minute as far as records are kept.
type Class struct {
	Name     string `json:"class"`
	Waiting  int    `json:"waiting"` // without a replica
	Running  int    `json:"running"`
	Requests int    `json:"requests"` // that ended
	Refused  int    `json:"refused"`  // with 429
	Judged   int    `json:"judged"`   // answers with goals
	Kept     int    `json:"kept"`     // answers that kept their goals
}

// Within is the share of the answers that kept their goals, -1 without any.
func (c *Class) Within() float64 {
	if c.Judged == 0 {
		return -1
	}
	return float64(c.Kept) / float64(c.Judged)
}

// Key says what a client key has used lately.
type Key struct {
	Name   string `json:"key"`
	Over   string `json:"over,omitzero"` // the limit that refused a request in the last minute
	Minute Usage  `json:"minute"`
	Hour   Usage  `json:"hour"`
}

// Usage is what a key has used in a time.
type Usage struct {
	Requests  int64 `json:"requests"`
	Refused   int64 `json:"refused"` // above a limit of the key
	Prompt    int64 `json:"prompt_tokens"`
	Cached    int64 `json:"cached_tokens"`
	Generated int64 `json:"generated_tokens"`
}

// Limit says which limit of the key refuses requests now, "" for none.
func (k *Key) Limit() string {
	if k.Over == "" {
		return ""
	}
	return fmt.Sprintf("%d refused: %s", k.Minute.Refused, k.Over)
}

// Replica is one replica at a glance.
type Replica struct {
	Pool      string    `json:"pool"`
	Name      string    `json:"name"`
	URL       string    `json:"url"`
	Model     string    `json:"model,omitzero"` // base model; "" where all replicas have the same
	Up        bool      `json:"up"`
	Reason    string    `json:"reason,omitzero"`
	States    []State   `json:"states,omitempty"`
	Condition Condition `json:"condition"`
	Index     string    `json:"index,omitzero"` // how far its index is believed
	Running   int       `json:"running"`
	Waiting   int       `json:"waiting"`
	Usage     float64   `json:"usage"` // share of its KV blocks
	Requests  int       `json:"requests"`
	Queued    int       `json:"queued_tokens"` // of prompts that it has to compute
	WaitMS    float64   `json:"wait_ms"`       // until it has
	Free      int       `json:"free_blocks"`   // decode: may be promised
	Capacity  int       `json:"capacity_blocks"`
	Indexed   int       `json:"indexed_blocks"`
	Age       float64   `json:"load_age_ms"`
	Speed     Speed     `json:"speed"`

	// Of decode replicas, the learned start settings of the engine.
	MaxSequences int  `json:"max_num_seqs"` // that it runs at a time
	CutsPrompts  bool `json:"cuts_prompts"` // as finely as pieces itself: they go there whole
}

// Speed is how fast an engine is. Samples 0: nothing is learned, and the profile is assumed.
type Speed struct {
	TokenUS float64 `json:"token_us"` // of prefill, a token
	StepMS  float64 `json:"step_ms"`  // of decoding, with an empty batch
	Samples int     `json:"samples"`
}

// Pair is a pair over which something was sent lately, or that is kept out.
type Pair struct {
	Prefill   string    `json:"prefill"`
	Decode    string    `json:"decode"`
	Sent      int       `json:"sent"`     // handoffs among the records that are kept
	Tokens    int       `json:"tokens"`   // that came over with them
	GBps      float64   `json:"gb_s"`     // learned; 0 where nothing is
	Samples   int       `json:"samples"`  // transfers that it was learned from
	Failures  float64   `json:"failures"` // of the last minute
	State     string    `json:"state,omitzero"`
	Cause     string    `json:"cause,omitzero"`
	Condition Condition `json:"condition"`
}

// Request is a line of the list of requests.
type Request struct {
	ID        string    `json:"id"`
	ClientID  string    `json:"client_id,omitzero"`
	Key       string    `json:"key,omitzero"` // name of the client's key
	Time      time.Time `json:"time"`
	Mode      string    `json:"mode"`
	Prefill   string    `json:"prefill,omitzero"`
	Decode    string    `json:"decode,omitzero"`
	Reason    string    `json:"reason"`
	Prompt    int       `json:"prompt_tokens"`
	Output    int       `json:"output_tokens"`
	Cached    int       `json:"cached_tokens"`
	First     float64   `json:"first_ms"`
	Predicted float64   `json:"predicted_ms"`
	Total     float64   `json:"total_ms"`
	Attempts  int       `json:"attempts"`
	Pieces    int       `json:"pieces,omitzero"` // of the prompt that went before the request itself
	Outcome   string    `json:"outcome"`
}

// Recent says how the requests of the last minute went, as far as records are kept. Unknown numbers are -1.
type Recent struct {
	Seconds   float64   `json:"seconds"` // that the records go back, at most 60
	Requests  int       `json:"requests"`
	Errors    int       `json:"errors"` // of the router or an engine; clients that left are none
	Split     int       `json:"split"`
	Retried   int       `json:"retried"`
	First     Quantiles `json:"first_ms"`     // to the first content, of streams
	Predicted Quantiles `json:"predicted_ms"` // of the same
	Token     Quantiles `json:"token_ms"`     // between tokens behind the first
	Prompt    int       `json:"prompt_tokens"`
	Available int       `json:"available_tokens"` // of requests for which all three are known
	Captured  int       `json:"captured_tokens"`
	Delivered int       `json:"delivered_tokens"`
}

// Quantiles are of some values, -1 where there are none.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
}

// State is something that people should know of a replica which is up all the same.
type State struct {
	State string    `json:"state"`
	Cause string    `json:"cause"`
	Since time.Time `json:"since"`
}
