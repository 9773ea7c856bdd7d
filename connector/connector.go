// Package connector writes what the engines' KV connector needs into the two legs of a split request, and
// refuses wrong or old transfer params.
//
// A connector only edits; the orchestrator sends, retries and gives up. No code here blocks, logs or reads a
// clock.
package connector

import (
	"errors"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// Order is the order in which the legs are sent.
type Order uint8

// The orders.
const (
	Sequential Order = iota + 1 // prefill first; decode is sent with the params of the prefill answer
	Concurrent                  // both are sent at once; if one fails, both fail
	Shared                      // prefill first; decode finds the blocks in a shared store, without params
)

func (o Order) String() string {
	return [...]string{"none", "sequential", "concurrent", "shared"}[min(o, Shared)]
}

// Lateness is what happens to a decode leg whose blocks the prefill engine has reused.
type Lateness uint8

// The kinds of lateness. Transfer params may not be used late where that corrupts or strands.
const (
	Corrupts   Lateness = iota + 1 // the decode engine reads the new content: 200 with wrong text
	Strands                        // the decode engine waits for ever, and holds its own blocks
	Fails                          // the decode engine waits as long as it is set to, and then fails the leg
	Recomputes                     // the decode engine computes missing blocks
)

// Traits is what the orchestrator must know about a connector. It acts on these values, never on names.
type Traits struct {
	Order Order
	Late  Lateness
	// The engines pair the legs by path and X-Request-Id. So the prefill leg has the client's own path and
	// the decode leg's id.
	SamePath bool
	// A decode engine that refuses a leg tells the prefill engine to free its blocks.
	Returnable bool
	// A decode leg that ends while it waits for blocks leaves its own blocks held on the decode engine. To
	// free them, send the prefill leg to its engine once more under the same id.
	Rescue bool
	// A decode engine whose unstreamed leg is cut asks for the blocks once more, and the prefill engine, which
	// has forgotten them, lets this question wait until the prefill leg comes again under the same id.
	AsksAgain bool
	// The prefill answer has no params: an answer that ended at its length is enough.
	NoParams bool
	// Both legs carry the same token ids, or the request is not split: nothing else shows that their prompts
	// have one length.
	IDsOnly bool
	// The decode leg names the address of the prefill engine's blocks, [replica.Facts.KV], which the bootstrap
	// server of the engine tells.
	Bootstrap bool
	// The leg that computes the prompt can name a [Source].
	Pulls bool
	// A decode engine answers every request without transfer params from blocks that were never filled, with
	// status 200. It may get no request but a decode leg.
	NoPlain bool
	// The prefill leg names the decode replica, and the prefill engine writes into the memory of this replica.
	// No other decode replica may get the decode leg.
	NamesDecode bool
	// A decode leg that is cut while it waits for blocks leaves its own blocks held until its engine restarts.
	// Until its first content has come, or its time is over, it is not cut.
	CutLeaks bool
	// The keys of the store leave out adapters. So the engine answers a request for an adapter from blocks of
	// the base model, or of another adapter.
	NoAdapters bool
	// The fewest tokens that a store keeps, and it keeps multiples; 0: a block.
	Chunk int
	// The "kv_connector" in the engines' flag --kv-transfer-config.
	Engines string
	// What else this flag has, beside kv_role: members of the JSON object, each after a comma.
	Extra string
	// The series in /metrics that show this connector, by the name that [replica.Facts.Connector] has for them;
	// "" where none do.
	Series string
}

// Returns reports whether a prefill engine that has answered holds blocks that can be given back.
func (t Traits) Returns(reply *Reply) bool {
	return t.Returnable && reply != nil && (t.NoParams || !reply.None())
}

// Body is a request body being edited, top-level members only. Values are raw JSON. They are kept, not
// copied.
type Body interface {
	Set(key string, value []byte)
	Delete(key string)
}

// Leg is one of the two requests, before it is sent.
type Leg struct {
	Body      Body
	SetHeader func(key, value string) // may be nil
	RequestID string                  // X-Request-Id of the leg; "": the pair's AttemptID
	Loads     bool                    // EditDecode has written transfer params that an engine loads blocks by
	// For a chat: the prompt's ids as a JSON array, for an engine that accepts ids with transfer params.
	ReuseIDs []byte
}

// Pair is the plan's pair for one attempt.
type Pair struct {
	Prefill, Decode replica.Replica
	AttemptID       string // unique for each attempt
	PromptTokens    int    // of the decode leg's prompt; 0: unknown
	IDs             bool   // both legs have the same token ids
	Source          Source // from which the prefill engine pulls leading blocks; zero for none

	transfer string // MoRI-IO: the transfer id of leg 1
}

// Use says how a reply is going to be used.
type Use struct {
	Now    time.Time
	Margin time.Duration // highest age of a reply that may be sent, default 15 s (half of vLLM's lease)
	// The decode engine's API layer will refuse the body, which frees the blocks: no age check.
	GiveBack bool
}

// Connector edits the legs. Its methods are safe for concurrent use.
type Connector interface {
	Traits() Traits
	// EditPrefill prepares leg 1. The caller sets limits and streaming.
	EditPrefill(leg *Leg, pair Pair) error
	// EditDecode prepares leg 2. reply is nil unless the order is Sequential. Without an error, the reply is
	// used up, and a second use gives ErrTaken.
	EditDecode(leg *Leg, pair Pair, reply *Reply, use Use) error
}

// Errors that the orchestrator acts on.
var (
	ErrTaken         = errors.New("transfer params already taken")
	ErrExpired       = errors.New("transfer params too old")
	ErrInvalidParams = errors.New("invalid transfer params") // every *InvalidParams matches it
)

// InvalidParams names the field because of which a reply must not reach a decode engine.
type InvalidParams struct{ Field, Reason string }

func (e *InvalidParams) Error() string { return "transfer params: " + e.Field + " " + e.Reason }

// Is makes every InvalidParams match ErrInvalidParams.
func (e *InvalidParams) Is(target error) bool { return target == ErrInvalidParams }

// known maps connector.type, the name in the configuration, to connectors.
var known = map[string]func(Ports) Connector{
	"nixl":      func(Ports) Connector { return NIXL{Withheld: new(Withheld)} },
	"nixl-push": func(Ports) Connector { return NIXLPush{Withheld: new(Withheld)} },

	"mooncake":     func(Ports) Connector { return Mooncake{} },
	"moriio":       func(Ports) Connector { return MoRIIO{} },
	"moriio-write": func(at Ports) Connector { return MoRIIOWrite{at} },

	"lmcache":        func(Ports) Connector { return lmcache },
	"mooncake-store": func(Ports) Connector { return Store{Kind: "MooncakeStoreConnector"} },
	"offloading":     func(Ports) Connector { return Store{Kind: "OffloadingConnector", Series: "offloading"} },
}

// Named returns a new connector of this name in the configuration, nil if there is none. at are the ports of
// decode engines, for a connector whose prefill leg must name the ports.
func Named(name string, at Ports) Connector {
	if made := known[name]; made != nil {
		return made(at)
	}
	return nil
}
