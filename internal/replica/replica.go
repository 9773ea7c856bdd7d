// Package replica describes one engine as the router sees it: its name and address, the models that it
// serves, and its load by its last report.
//
// Everything here is a value. A replica whose facts change is a new value; no code edits a value in place.
package replica

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// ID names a replica, unique in the fleet: its configured name or host:port, with "/dpN" behind it where one
// server runs several data-parallel ranks.
type ID string

// Role says which pool a replica belongs to.
type Role uint8

// The two roles. NIXL ignores the role an engine was started with: the router gives it.
const (
	Prefill Role = iota + 1
	Decode
)

func (r Role) String() string {
	switch r {
	case Prefill:
		return "prefill"
	case Decode:
		return "decode"
	}
	return "role(" + strconv.Itoa(int(r)) + ")"
}

// Replica is one scheduler of one engine server. A server with data-parallel ranks is one replica per rank,
// since each rank has its own blocks and queue.
type Replica struct {
	ID    ID
	Role  Role
	URL   string // base of the HTTP server, without a slash at the end
	Host  string // host part of URL, without port
	Rank  int    // data-parallel rank as events, metrics labels and /kv_event_sources count it
	Place Place
	Facts Facts
	// An operator drains the replica: it gets no new request, and its running requests end.
	Draining bool
	// Replicas pair only if their revisions are equal; an empty revision pairs with any.
	Revision string
	// GatewayPort is where gateways send requests for the engine, instead of the port of URL; 0 for that port.
	GatewayPort int
	// PullPort is the port of Host where other engines may pull blocks (vLLM's P2P tier), 0 for none.
	PullPort int
}

// SameEngine reports whether both addresses belong to one engine, under any names.
func (r *Replica) SameEngine(as *Replica) bool { return r.URL == as.URL && r.Rank == as.Rank }

// Pinned reports whether a request must carry X-data-parallel-rank to reach this replica and no other rank of
// its server.
func (r *Replica) Pinned() bool { return r.Facts.Ranks > 1 }

// Serves reports whether the replica answers for model, a base model or an adapter. A replica without known
// facts serves nothing.
func (r *Replica) Serves(model string) bool { return slices.Contains(r.Facts.Models, model) }

// Base names the base model, on which the replica's speed depends: the path that the model was loaded from,
// or else the model's id. Base is "" while neither is known.
func (r *Replica) Base() string { return cmp.Or(r.Facts.Root, r.Facts.Model) }

// Adapter returns model if it names a LoRA adapter of the replica, and "" for the base model.
func (r *Replica) Adapter(model string) string {
	if slices.Contains(r.Facts.Adapters, model) {
		return model
	}
	return ""
}

// Facts is what an engine answered when it was probed. Where an engine cannot be probed, it is what the
// config says. Zero means unknown.
type Facts struct {
	Model    string   `json:"model"`    // id of the base model
	Root     string   `json:"root"`     // what the model was loaded from; part of NIXL's hash
	Models   []string `json:"models"`   // every served name: aliases of the base model and adapters
	Adapters []string `json:"adapters"` // the served names that are LoRA adapters
	// What each adapter was loaded from, in a comparable form; a missing adapter is unknown.
	AdapterRoots map[string]string `json:"adapter_roots,omitempty"`
	Version      string            `json:"version"` // vLLM version, "0.32.0"
	// What its answers say in system_fingerprint: version and configuration; "" where a probe saw none.
	Fingerprint string `json:"fingerprint,omitempty"`
	MaxModelLen int    `json:"max_model_len"` // tokens, prompt and answer together
	BlockSize   int    `json:"block_size"`    // tokens a KV block
	Blocks      int    `json:"blocks"`        // usable KV blocks of this rank
	CacheDType  string `json:"cache_dtype"`   // KV cache data type, part of NIXL's hash
	Connector   string `json:"connector"`     // by its series in /metrics, as "nixl"; "" unknown
	// The first child of a MultiConnector, where /metrics shows several; "" unknown.
	FirstConnector string `json:"first_connector,omitzero"`
	// Tokens drafted for each sequence and step (num_speculative_tokens), 0 none or unknown.
	Drafts        int  `json:"speculative_tokens"`
	PrefixCaching bool `json:"prefix_caching"` // whether the engine keeps prefixes at all
	Ranks         int  `json:"ranks"`          // data-parallel ranks behind the server's address, 1 for most
	// Global number of the first rank; the header X-data-parallel-rank counts from there.
	FirstRank int         `json:"first_rank"`
	Events    EventSource `json:"events"` // where this rank publishes block events
	// Hashes of the token ids that the engine makes of sample texts (see engine.TokenSample). The samples are a
	// text, a chat, a chat with tools, and the chat with tools as the chat path renders it. 0 is unknown.
	// Another hash means another tokenizer or template.
	Tokens [4]uint64 `json:"-"`
	Render bool      `json:"render"` // /v1/.../render answers (--enable-scale-out since about 0.30)
	// /v1/chat/completions honours kv_transfer_params.prompt_token_ids, seen in a probe.
	ReuseIDs   bool    `json:"reuse_ids"`
	ReuseOther IDReuse `json:"reuse_ids_other"` // the other paths that honour it, each seen in a probe
	Started    float64 `json:"started"`         // of the process, unix seconds; a later one is a restart
	// Reborn is when the process began, if its server had another one before and prefill engines that knew that
	// one cannot write to this one; 0: otherwise.
	Reborn float64 `json:"reborn,omitempty"`
	// KV is where engines of the other pool find the blocks of this rank, if they must be told.
	KV KVAddress `json:"kv,omitzero"`
	// Why no prompt can be handed over from here, or to here, as far as only this engine is concerned; "" if one
	// can.
	NoHandoff string `json:"no_handoff,omitempty"`
}

// KVAddress is where other engines find the KV blocks of one rank. It is of one engine process: after a
// restart it has another EngineID. The zero value is unknown.
type KVAddress struct {
	EngineID  string `json:"engine_id"`
	Bootstrap string `json:"bootstrap,omitempty"` // Mooncake: base of the server that tells where ranks are
}

// Ends reports whether the engine of decode would end with a decode leg for blocks of f: NIXL does not
// survive a leg of Mooncake.
func (f *Facts) Ends(decode *Facts) bool { return f.KV.Bootstrap != "" && decode.Connector == "nixl" }

// Measured reports whether the engine's /metrics describe its cache. Only then does a missing series mean
// anything.
func (f *Facts) Measured() bool { return f.CacheDType != "" }

// KeepsNoPrefixes reports whether the engine says that prefix caching is off.
func (f *Facts) KeepsNoPrefixes() bool { return f.Measured() && !f.PrefixCaching }

// IDReuse says on which other paths an engine takes token ids, so that requests may be split like chats.
type IDReuse struct {
	Messages  bool `json:"messages"`  // /v1/messages
	Responses bool `json:"responses"` // /v1/responses
}

// EventSource is the ZMQ address pair of one rank, with a dialable host in place of "*". The zero value means
// that the engine publishes nothing.
type EventSource struct {
	Endpoint string `json:"endpoint"` // PUB
	Replay   string `json:"replay"`   // ROUTER, "" without replay
	Topic    string `json:"topic"`
}

// Place is where a replica stands in the data centre. Empty fields are unknown and equal to nothing, except
// that two replicas on one URL host share a host.
type Place struct {
	Host, Rack, Zone string
}

// Link is the class of the path between two replicas, nearest first.
type Link uint8

// The link classes. Bandwidth is learned per pair and seeded per class.
const (
	SameHost Link = iota
	SameRack
	SameZone
	Other
	Links // number of classes
)

func (l Link) String() string {
	return [...]string{"host", "rack", "zone", "other", "links"}[min(l, Links)]
}

// LinkTo tells the class of the path from p to q.
func (p Place) LinkTo(q Place) Link {
	same := func(a, b string) bool { return a != "" && a == b }
	switch {
	case same(p.Host, q.Host):
		return SameHost
	case same(p.Rack, q.Rack):
		return SameRack
	case same(p.Zone, q.Zone):
		return SameZone
	}
	return Other
}

// AtLeast reports whether version, as /version gives it ("0.27.1", "0.28.0rc1+cpu"), is major.minor or newer.
// An unreadable version is not.
func AtLeast(version string, major, minor int) bool {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, err := strconv.Atoi(parts[0])
	if err != nil {
		return false
	}
	digits := strings.IndexFunc(parts[1], func(r rune) bool { return r < '0' || r > '9' })
	if digits < 0 {
		digits = len(parts[1])
	}
	b, err := strconv.Atoi(parts[1][:digits])
	if err != nil {
		return false
	}
	return a > major || a == major && b >= minor
}
