// Package connector writes into the two legs of a split request what the engines' KV connector needs, and
// guards what went wrong elsewhere.
//
// A connector only edits; the orchestrator sends, retries and gives up. Nothing here blocks, logs or reads a
// clock.
package connector

import (
	"errors"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// Order says when the legs are sent.
type Order uint8

// The orders.
const (
	Sequential Order = iota + 1 // first prefill; decode is sent with the params of its answer
	Concurrent                  // both are sent at once, fates joined
	Shared                      // first prefill; decode finds the blocks in a shared store, without params
)

func (o Order) String() string {
	return [...]string{"none", "sequential", "concurrent", "shared"}[min(o, Shared)]
}

// Lateness is what becomes of a decode leg whose blocks the prefill engine has given to others meanwhile.
type Lateness uint8

// The kinds of lateness. Transfer params may not be used late where that corrupts or strands.
const (
	Corrupts   Lateness = iota + 1 // the decode engine reads what is in the blocks now: 200 with wrong text
	Strands                        // the decode engine waits for ever, and keeps blocks of its own for it
	Recomputes                     // the decode engine computes what it does not find
)

// Traits is what the orchestrator must know of a connector. It acts on these values, never on names.
type Traits struct {
	Order Order
	Late  Lateness
	// The engines pair the legs by path and X-Request-Id: the prefill leg goes the client's own path, under the
	// id of the decode leg.
	SamePath bool
	// A decode engine that refuses a leg lets the prefill engine free its blocks.
	Returnable bool
	// A decode leg that ends while it waits for blocks leaves its own blocks stranded on the decode engine. The
	// prefill leg, sent to its engine once more under the same id, frees them.
	Rescue bool
	// The "kv_connector" in vLLM's flag --kv-transfer-config of the engines.
	Engines string
	// The series in /metrics that show this connector, by the name that [replica.Facts.Connector] has for them;
	// "" where none do.
	Series string
}

// Body is a request body being edited, top-level members only. Values are raw JSON and kept, not copied.
type Body interface {
	Set(key string, value []byte)
	Delete(key string)
}

// Leg is one of the two requests, before it is sent.
type Leg struct {
	Body      Body
	SetHeader func(key, value string) // may be nil
	RequestID string                  // X-Request-Id of the leg; the pair's AttemptID when ""
	// Leg of a chat: the prompt's ids as a JSON array, for an engine that takes them with the transfer params.
	ReuseIDs []byte
}

// Pair is the plan's pair for one attempt.
type Pair struct {
	Prefill, Decode replica.Replica
	AttemptID       string // unique to the attempt
	PromptTokens    int    // of the decode leg's prompt, 0 when unknown
	IDs             bool   // both legs carry the same token ids
}

// Use says how a reply is about to be used.
type Use struct {
	Now    time.Time
	Margin time.Duration // age up to which a reply may go out, default 15 s (half of vLLM's lease)
	// The body will be refused by the decode engine's API layer, which frees the blocks: no age check.
	GiveBack bool
}

// Connector edits the legs. Methods are safe for concurrent use.
type Connector interface {
	Traits() Traits
	// EditPrefill prepares leg 1; limits and streaming are the caller's.
	EditPrefill(leg *Leg, pair Pair) error
	// EditDecode prepares leg 2. reply is nil unless the order is Sequential; it is consumed when there is no
	// error, and a second use gives ErrTaken.
	EditDecode(leg *Leg, pair Pair, reply *Reply, use Use) error
}

// What the orchestrator decides on.
var (
	ErrTaken         = errors.New("transfer params already taken")
	ErrExpired       = errors.New("transfer params too old")
	ErrInvalidParams = errors.New("invalid transfer params") // every *InvalidParams is one
)

// InvalidParams names the field for which a reply must not reach a decode engine.
type InvalidParams struct{ Field, Reason string }

func (e *InvalidParams) Error() string { return "transfer params: " + e.Field + " " + e.Reason }

// Is makes every InvalidParams an ErrInvalidParams.
func (e *InvalidParams) Is(target error) bool { return target == ErrInvalidParams }

// known has each connector by its name in the configuration, connector.type.
var known = map[string]func() Connector{
	"nixl":      func() Connector { return NIXL{Withheld: new(Withheld)} },
	"nixl-push": func() Connector { return NIXLPush{Withheld: new(Withheld)} },

	"lmcache":        func() Connector { return Store{"LMCacheConnectorV1", ""} },
	"mooncake-store": func() Connector { return Store{"MooncakeStoreConnector", ""} },
	"offloading":     func() Connector { return Store{"OffloadingConnector", "offloading"} },
}

// Named returns a new connector of this name in the configuration, nil if there is none.
func Named(name string) Connector {
	if made := known[name]; made != nil {
		return made()
	}
	return nil
}
