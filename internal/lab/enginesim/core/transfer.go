package core

import (
	"encoding/json"
	"strconv"
	"time"
)

// Field is one key of kv_transfer_params as it came: missing, null, or a value.
type Field[T any] struct {
	Present bool // the key was there
	Null    bool // and its value was null, or of a type that V cannot hold
	V       T
}

// Has is a present key with this value.
func Has[T any](v T) Field[T] { return Field[T]{Present: true, V: v} }

// UnmarshalJSON takes any value: presence is what vLLM checks, not type.
func (f *Field[T]) UnmarshalJSON(b []byte) error {
	f.Present = true
	f.Null = string(b) == "null" || json.Unmarshal(b, &f.V) != nil
	return nil
}

// Truth is a JSON value as Python's if sees it.
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

// RemoteBlocks is remote_block_ids: one list a KV cache group, or what a client put there instead.
type RemoteBlocks struct {
	Groups [][]int
	Broken bool // a flat list or another value that Python holds true: the worker dies of the value
}

// UnmarshalJSON takes any value.
func (r *RemoteBlocks) UnmarshalJSON(b []byte) error {
	var t Truth
	_ = t.UnmarshalJSON(b) // takes any value
	r.Broken = bool(t) && json.Unmarshal(b, &r.Groups) != nil
	return nil
}

// Transfer is kv_transfer_params as the scheduler sees them. Whether a key is missing or null matters: vLLM
// dies of the one and hangs on the other.
type Transfer struct {
	DoRemotePrefill Truth               `json:"do_remote_prefill"`
	DoRemoteDecode  Truth               `json:"do_remote_decode"`
	RemoteBlocks    Field[RemoteBlocks] `json:"remote_block_ids"`
	EngineID        Field[string]       `json:"remote_engine_id"`
	RequestID       Field[string]       `json:"remote_request_id"`
	Host            Field[string]       `json:"remote_host"`
	Port            Field[json.Number]  `json:"remote_port"` // a quoted number is one too
	TPSize          Field[int]          `json:"tp_size"`
	NumTokens       Field[int]          `json:"remote_num_tokens"`
	PrefillCached   Field[int]          `json:"remote_prefill_cached_tokens"`
	Registration    Field[int]          `json:"remote_registration_generation"`
	TransferID      Field[string]       `json:"transfer_id"`
	Bootstrap       Field[string]       `json:"remote_bootstrap_addr"`
}

// ParseTransfer reads the JSON object of a request's kv_transfer_params. Values of a wrong type are kept as
// nulls; only what is no object is an error.
func ParseTransfer(object []byte) (*Transfer, error) {
	t := new(Transfer)
	if err := json.Unmarshal(object, t); err != nil {
		return nil, err
	}
	return t, nil
}

// missing is the first of vLLM's keys that is not there, in the order in which vLLM looks them up. A push
// needs no block ids.
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

// address says whether the four keys that name P's request are there. Null passes, as it does in vLLM.
func (t *Transfer) address() bool {
	return t.EngineID.Present && t.RequestID.Present && t.Host.Present && t.Port.Present
}

// readback says whether the params name blocks of a peer in full, as those of a decode-first turn do.
func (t *Transfer) readback() bool {
	return t.blocks() && t.address() && !t.EngineID.Null && !t.RequestID.Null && !t.Host.Null && !t.Port.Null
}

// blocks is Python's truth of remote_block_ids: [[]] is true.
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

// Peer is another engine's side channel. Null params leave zeros in it: the handshake with such a peer fails.
type Peer struct {
	EngineID string
	Host     string
	Port     int
	Ranks    int // tensor-parallel, as the params say: nobody asks the peer; 1 where they do not, 0 for a null
}

// OrderKind says what to do with a peer.
type OrderKind uint8

// The kinds of orders.
const (
	// Read Blocks, Notify the peer of RemoteIDs[0], then call Loaded for RequestID.
	OrderRead      OrderKind = iota + 1
	OrderNotify              // Notify the peer of RemoteIDs[0]: its blocks are not wanted
	OrderHeartbeat           // Heartbeat the peer with RemoteIDs
	OrderRegister            // Register Blocks with the peer; if that fails, call Loaded for RequestID
	OrderWrite               // Write Blocks over those that the peer has registered, then call Pushed
	OrderRefuse              // Mooncake: call Loaded of the peer for RemoteIDs[0], with Why
)

// Order is something that the engine's worker does with a peer. The code that drives the engine carries it
// out.
type Order struct {
	Kind      OrderKind
	Peer      Peer
	RequestID string   // OrderRead, OrderRegister, OrderWrite: ours
	RemoteIDs []string // the peer's request ids
	Blocks    []int    // OrderRead: ids on the peer; OrderRegister, OrderWrite: ours
	To        []int    // OrderWrite: ids on the peer
	// OrderRegister of Mooncake: Ask the engine that has this id at the bootstrap server. If it is not known
	// there, call Loaded.
	TransferID, Bootstrap string
	Why                   error // OrderRefuse
	// OrderRead: posting its descriptors takes so long, which is part of the step. The read takes so much
	// longer.
	Posting time.Duration
	// OrderRead: the registration of the peer's memory that the blocks are in, 0 where the params did not say.
	Registration int
}

// TransferOut is the kv_transfer_params of a finished prefill.
type TransferOut struct {
	BlockIDs  []int32 // ceil(NumTokens/BlockSize) entries; belongs to the engine as the Step does
	EngineID  string
	RequestID string
	Host      string
	Port      int
	NumTokens int
	TPSize    int
	// remote_registration_generation, 0: the key is not written.
	Registration int
	Cached       int // remote_prefill_cached_tokens, -1: the key is not written (more than one token was made)
	Push         bool
}

// AppendJSON appends the object as vLLM 0.32 writes it, or 0.33 where there is a registration.
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
