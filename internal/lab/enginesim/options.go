package enginesim

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/kvevents"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// Options describes a simulated server. The zero value serves the model "sim" on a free loopback port,
// without events.
type Options struct {
	Addr     string       // listen address, default "127.0.0.1:0"
	Listener net.Listener // replaces Addr; the server closes the listener
	// The result of URL, if clients cannot dial the listener's address; default http://<address>.
	BaseURL string

	Model    string   // served name, default "sim"
	Aliases  []string // further names of the base model
	Adapters []string // served LoRA adapters, "name" or "name=path"
	// Version of vLLM, default "0.32.0". Older versions behave as they did: 0.20 has array events, 3-frame
	// replay, no render flag and no id reuse.
	Version string
	Role    string // "prefill" or "decode": the default of Core.Role, which NIXL ignores
	// Configuration of each rank. Empty EngineID, Host and Port are filled in. Defaults: MaxModelLen 32768,
	// Vocab 4096.
	Core core.Config
	// Where the bootstrap server of Mooncake listens; default port 8998 of Core.Host.
	Bootstrap string
	// Where the P2P tier of Core.Tier listens for rank 0; each further rank listens one port higher.
	P2P     string
	DPRanks int // data-parallel ranks behind this server, default 1

	EventsEndpoint string // ZMQ PUB, such as "tcp://127.0.0.1:0"; port+rank unless 0; "": no events
	ReplayEndpoint string // ZMQ ROUTER; default: a free port of EventsEndpoint's host
	Topic          string
	NoReplay       bool
	// Context to share between the servers of one process; nil: a context of its own.
	ZMQ *kvevents.Context
	// Gets each batch before the corresponding answers, even if no event is published. Must not keep the
	// batch.
	OnEvents func(*kvevents.EncodeBatch)

	OnRequest func(Seen) // gets each request before its answer, on the connection's goroutine
	APIKey    string     // --api-key

	// The engine's connector is a store that it shares with other engines, in the place of NIXL: transfer params
	// mean nothing to it. Core.Tier says how long the store takes.
	Store *core.Store
	Multi bool // a MultiConnector of NIXL and Store, or of Store and NIXL if Core.Tier.First

	LoadAdapters bool // VLLM_ALLOW_RUNTIME_LORA_UPDATING: adapters can be loaded and unloaded over HTTP
	// --enable-auto-tool-choice and --tool-call-parser: tools are accepted; the model never calls one.
	ToolParser     bool
	Pooling        bool // also serves the paths of embedding and scoring models
	ScaleOut       bool // --enable-scale-out: render and /inference/v1/generate answer instead of 403
	NoORCA         bool // never send endpoint-load-metrics
	ZeroLatency    bool // steps and transfers take no time
	ServerLoad     bool // --enable-server-load-tracking
	NoUsageDetails bool // without --enable-prompt-tokens-details
	ForceUsage     bool // --enable-force-include-usage: in each chunk of chats and completions, and behind
	NoRequestIDs   bool // without --enable-request-id-headers

	// Default net.Listen; also for side channels and control.
	Listen func(network, addr string) (net.Listener, error)
	// Dials peers' side channels; default net.Dialer's.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Time until a handshake with an unknown peer fails, default 5 s.
	HandshakeTimeout time.Duration
	// Time before each read from a peer.
	TransferLatency time.Duration
	// Blocks per second; 0: no limit.
	TransferRate float64
	// Idle connections are closed after this time, default 5 s as in uvicorn.
	KeepAlive time.Duration
	// Freeze of the engine at a process's first request for log-probabilities, when vLLM 0.32 compiles a
	// function (v1/sample/ops/logprobs.py).
	CompilesLogprobs time.Duration
	// Address of the control listener (POST /fault, GET /stats); "": none.
	Control string
	Faults  []Fault // in force from the start
	// Wrong set-ups by an operator.
	Wrong Wrong
}

// SetProtocol makes the engine speak a transfer protocol other than NIXL pull: "push" is NIXL push,
// "mooncake" is Mooncake, "moriio" is MoRI-IO in READ mode, "moriio-write" in WRITE mode.
func (o *Options) SetProtocol(name string) error {
	switch name {
	case "push":
		o.Core.Push = true
	case "mooncake":
		o.Core.Mooncake = true
	case "moriio":
		o.Core.MoRIIO = core.MoRIIORead
	case "moriio-write":
		o.Core.MoRIIO = core.MoRIIOWrite
	default:
		return fmt.Errorf("unknown protocol %q: want push, mooncake, moriio or moriio-write", name)
	}
	return nil
}

// compatible is what engines compare in the handshake.
func (o *Options) compatible() string {
	switch {
	case o.Core.Push:
		return o.Version + " push"
	case o.Core.Mooncake:
		return o.Version + " mooncake"
	case o.Core.MoRIIO != 0:
		return o.Version + " moriio"
	}
	return o.Version
}

// Long: one row per default.
func (o Options) withDefaults() Options {
	o.Addr = cmp.Or(o.Addr, "127.0.0.1:0")
	o.Model = cmp.Or(o.Model, "sim")
	o.Version = cmp.Or(o.Version, "0.32.0")
	o.Core.P2P = o.P2P != ""
	o.DPRanks = max(o.DPRanks, 1)
	if o.Core.Role == core.Both {
		o.Core.Role = map[string]core.Role{"prefill": core.Producer, "decode": core.Consumer}[o.Role]
	}
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, 5*time.Second)
	o.KeepAlive = cmp.Or(o.KeepAlive, 5*time.Second)
	if o.Listen == nil {
		o.Listen = net.Listen
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.Core.EngineID == "" {
		w, v := randomWord(), randomWord()
		o.Core.EngineID = fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x",
			w>>32, w>>16&0xffff, w&0xfff, v>>48&0x3fff|0x8000, v&(1<<48-1))
	}
	o.Core.MaxModelLen = cmp.Or(o.Core.MaxModelLen, 32768)
	o.Core.Vocab = cmp.Or(o.Core.Vocab, 4096)
	if o.Core.FirstToken == 0 && o.Core.Vocab > 2*firstWord {
		o.Core.FirstToken = firstWord // words only
	}
	if o.ZeroLatency {
		o.Core.Cost = core.Cost{}
		o.TransferLatency = 0
		o.TransferRate = 0
	}
	if o.Wrong.NoConnector {
		o.Core.NoLoad = true
		o.Faults = append(slices.Clone(o.Faults), Fault{Kind: "null_params", Count: -1})
	}
	if o.Store != nil {
		o.Core.Tier.Store = o.Store
	}
	if o.EventsEndpoint == "" && o.OnEvents == nil {
		o.Core.NoEvents = true
	}
	return o
}
