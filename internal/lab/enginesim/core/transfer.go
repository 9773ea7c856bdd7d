package core

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// Field is one received key of kv_transfer_params: missing, null, or a value.
type Field[T any] struct {
	Present bool // the key is there
	Null    bool // its value is null, or has a type that V cannot hold
	V       T
}

// Has returns a present key with this value.
func Has[T any](v T) Field[T] { return Field[T]{Present: true, V: v} }

// UnmarshalJSON accepts any value: vLLM checks presence, not type.
func (f *Field[T]) UnmarshalJSON(b []byte) error {
	f.Present = true
	f.Null = string(b) == "null" || json.Unmarshal(b, &f.V) != nil
	return nil
}

// Truth is the truth value of a JSON value in Python.
type Truth bool

// UnmarshalJSON takes any value.
func (t *Truth) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "null", "false", "0", "0.0", `""`, "[]", "{}":
		*t = false
	default:
		*t = true
	}
	return nil
}

// RemoteBlocks is remote_block_ids: one list per KV cache group, or another value from the client.
type RemoteBlocks struct {
	Groups [][]int
	Broken bool // a flat list or another true value of Python: the worker dies
}

// UnmarshalJSON takes any value.
func (r *RemoteBlocks) UnmarshalJSON(b []byte) error {
	var t Truth
	_ = t.UnmarshalJSON(b) // takes any value
	r.Broken = bool(t) && json.Unmarshal(b, &r.Groups) != nil
	return nil
}

// Transfer holds kv_transfer_params as the scheduler reads them. Missing and null are different: vLLM dies of
// a missing key, and hangs on a null.
type Transfer struct {
	DoRemotePrefill Truth               `json:"do_remote_prefill"`
	DoRemoteDecode  Truth               `json:"do_remote_decode"`
	RemoteBlocks    Field[RemoteBlocks] `json:"remote_block_ids"`
	EngineID        Field[string]       `json:"remote_engine_id"`
	RequestID       Field[string]       `json:"remote_request_id"`
	Host            Field[string]       `json:"remote_host"`
	Port            Field[json.Number]  `json:"remote_port"` // a quoted number is accepted too
	TPSize          Field[int]          `json:"tp_size"`
	NumTokens       Field[int]          `json:"remote_num_tokens"`
	PrefillCached   Field[int]          `json:"remote_prefill_cached_tokens"`
	Registration    Field[int]          `json:"remote_registration_generation"`
	TransferID      Field[string]       `json:"transfer_id"`
	Bootstrap       Field[string]       `json:"remote_bootstrap_addr"`
	Source          Field[KVSource]     `json:"remote_kv_source"`
	ports
}

// ParseTransfer reads the JSON object of a request's kv_transfer_params. Values of a wrong type become nulls.
// Only JSON that is not an object is an error.
func ParseTransfer(object []byte) (*Transfer, error) {
	t := new(Transfer)
	if err := json.Unmarshal(object, t); err != nil {
		return nil, err
	}
	return t, nil
}

// missing returns the first missing key, in vLLM's order of look-up. Push needs no block ids.
func (t *Transfer) missing(push bool) string {
	switch {
	case !t.RemoteBlocks.Present && !push:
		return "remote_block_ids"
	case !t.EngineID.Present:
		return "remote_engine_id"
	case !t.RequestID.Present:
		return "remote_request_id"
	case !t.Host.Present:
		return "remote_host"
	case !t.Port.Present:
		return "remote_port"
	}
	return ""
}

// address reports whether the four keys that locate P's request are present. Null counts, as in vLLM.
func (t *Transfer) address() bool {
	return t.EngineID.Present && t.RequestID.Present && t.Host.Present && t.Port.Present
}

// readback reports whether the params fully name a peer's blocks, like those of a decode-first turn.
func (t *Transfer) readback() bool {
	return t.blocks() && t.address() && !t.EngineID.Null && !t.RequestID.Null && !t.Host.Null && !t.Port.Null
}

// blocks is the truth value of remote_block_ids in Python: [[]] is true.
func (t *Transfer) blocks() bool {
	b := t.RemoteBlocks
	return b.Present && !b.Null && (b.V.Broken || len(b.V.Groups) > 0)
}

func (t *Transfer) peer() Peer {
	port, _ := strconv.Atoi(string(t.Port.V))
	p := Peer{EngineID: t.EngineID.V, Host: t.Host.V, Port: port, Ranks: t.TPSize.V}
	if !t.TPSize.Present {
		p.Ranks = 1
	}
	return p
}

// Peer is another engine's side channel. Null params leave zeros: then the handshake fails.
type Peer struct {
	EngineID string
	Host     string
	Port     int
	Ranks    int // tensor-parallel size from the params, not from the peer; 1 if missing, 0 if null
}

// OrderKind is what to do with a peer.
type OrderKind uint8

// The kinds of orders.
const (
	// Read Blocks, notify the peer of RemoteIDs[0], then call Loaded for RequestID.
	OrderRead      OrderKind = iota + 1
	OrderNotify              // notify the peer of RemoteIDs[0]: its blocks are not needed
	OrderHeartbeat           // send the peer a heartbeat with RemoteIDs
	OrderRegister            // register Blocks with the peer; if that fails, call Loaded for RequestID
	OrderWrite               // write Blocks over the blocks that the peer registered, then call Pushed
	OrderRefuse              // Mooncake: call Loaded of the peer for RemoteIDs[0], with Why
	OrderProbe               // P2P tier: ask the peer for the blocks with Names, then call Fetched
	OrderMeet                // MoRI-IO: shake hands with the peer within this step, then call Met
	OrderPut                 // MoRI-IO: write Blocks over the blocks To of the peer, then call Wrote
	OrderDone                // MoRI-IO: call HearDone of the peer for TransferID
)

// Order is an action of the engine's worker with a peer. The code that drives the engine carries it out.
type Order struct {
	Kind      OrderKind
	Peer      Peer
	RequestID string   // OrderRead, OrderRegister, OrderWrite: id on this engine
	RemoteIDs []string // the peer's request ids
	Blocks    []int    // OrderRead: ids on the peer; OrderRegister, OrderWrite: ids on this engine
	To        []int    // OrderWrite: ids on the peer
	Names     []kv.EngineHash
	// OrderRegister of Mooncake: Ask the engine that has this id at the bootstrap server. If it is not known
	// there, call Loaded. OrderRegister of MoRI-IO: call HearBlocks of the peer for TransferID.
	TransferID, Bootstrap string
	Why                   error // OrderRefuse
	// OrderRead: time to post the descriptors. It is part of the step, and is added to the read's time.
	Posting time.Duration
	// OrderRead: the registration of the peer's memory with these blocks, 0 if the params do not say.
	Registration int
}

// TransferOut is the kv_transfer_params of a finished prefill.
type TransferOut struct {
	BlockIDs  []int32 // ceil(NumTokens/BlockSize) ids; valid as long as the Step
	EngineID  string
	RequestID string
	Host      string
	Port      int
	NumTokens int
	TPSize    int
	// remote_registration_generation; 0: the key is not written.
	Registration int
	Cached       int // remote_prefill_cached_tokens; -1: no key, because more than one token was generated
	Push         bool
	MoRIIO       *moriioOut // nil: another connector
}

// AppendJSON appends the object in the format of vLLM 0.32, or of 0.33 if there is a registration.
func (t *TransferOut) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[`...)
	for i, id := range t.BlockIDs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(id), 10)
	}
	dst = append(dst, `]],"remote_engine_id":`...)
	dst = appendQuoted(dst, t.EngineID)
	if t.MoRIIO != nil {
		return t.appendMoRIIO(dst)
	}
	dst = append(dst, `,"remote_request_id":`...)
	dst = appendQuoted(dst, t.RequestID)
	dst = append(dst, `,"remote_host":`...)
	dst = appendQuoted(dst, t.Host)
	dst = append(dst, `,"remote_port":`...)
	dst = strconv.AppendInt(dst, int64(t.Port), 10)
	dst = strconv.AppendInt(append(dst, `,"tp_size":`...), int64(t.TPSize), 10)
	dst = append(dst, `,"dcp_size":1,"pp_size":1,"remote_num_tokens":`...)
	dst = strconv.AppendInt(dst, int64(t.NumTokens), 10)
	if !t.Push {
		dst = append(dst, `,"remote_blocks_expiry_time":null`...)
	}
	if t.Registration > 0 {
		dst = strconv.AppendInt(append(dst, `,"remote_registration_generation":`...), int64(t.Registration), 10)
	}
	mode := `"pull"`
	if t.Push {
		mode = `"push"`
	}
	dst = append(append(dst, `,"transfer_mode":`...), mode...)
	if t.Cached >= 0 {
		dst = append(dst, `,"remote_prefill_cached_tokens":`...)
		dst = strconv.AppendInt(dst, int64(t.Cached), 10)
	}
	return append(dst, '}')
}

func appendQuoted(dst []byte, s string) []byte {
	b, _ := json.Marshal(s) // strings always marshal
	return append(dst, b...)
}
