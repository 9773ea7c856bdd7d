package enginesim

import (
	"context"
	"errors"
	"net"
	"time"
)

// Options says what a simulated server is. The zero value serves the model "sim" on a free port of the loopback, without events.
type Options struct {
	Addr     string       // listen address, default "127.0.0.1:0"
	Listener net.Listener // takes the place of Addr; the server closes it
	BaseURL  string       // what URL says, for a Listener whose address cannot be dialled by name; default http://<address>

	Model    string   // served name, default "sim"
	Aliases  []string // further names of the base model
	Adapters []string // served LoRA adapters
	Version  string   // of vLLM, default "0.32.0"; older ones speak as they did: 0.20 has array events, 3-frame replay, no render flag and no id reuse
	Role     string   // a label for logs only: NIXL ignores roles
	DPRanks  int      // data-parallel ranks behind this one server, default 1

	EventsEndpoint string // ZMQ PUB, as "tcp://127.0.0.1:0"; "" publishes nothing
	ReplayEndpoint string // ZMQ ROUTER; default: a free port beside EventsEndpoint; NoReplay for none
	Topic          string
	NoReplay       bool

	ScaleOut        bool // --enable-scale-out: render and /inference/v1/generate answer instead of 403
	NoORCA          bool // never send endpoint-load-metrics
	ZeroLatency     bool // steps and transfers take no time
	PriorityPolicy  bool // --scheduling-policy priority
	ServerLoad      bool // --enable-server-load-tracking
	NoUsageDetails  bool // without --enable-prompt-tokens-details
	FingerprintHash string

	Listen           func(network, addr string) (net.Listener, error)                  // default net.Listen; also for the side channels
	Dial             func(ctx context.Context, network, addr string) (net.Conn, error) // to other engines' side channels, default net.Dialer
	HandshakeTimeout time.Duration                                                     // how long an unknown peer costs, default 5 s
	TransferLatency  time.Duration                                                     // before the first block of a read
	TransferRate     float64                                                           // blocks a second, 0 = at once
	KeepAlive        time.Duration                                                     // idle connections are closed after it, default 5 s as uvicorn does
	Control          string                                                            // address of the control listener (POST /fault), "" for none
}

// Server is one simulated vLLM API server with its engine cores. All methods are safe for concurrent use.
type Server struct{}

// Start listens and serves until Close.
func Start(o Options) (*Server, error) { return nil, errors.New("enginesim: not yet") }

// URL is the base of the HTTP server, without a slash at the end.
func (s *Server) URL() string { return "" }

// ControlURL is the base of the control listener, "" without one.
func (s *Server) ControlURL() string { return "" }

// HeldBlocks is the number of KV blocks that requests and leases hold now, over all ranks: 0 when nothing leaks.
func (s *Server) HeldBlocks() int { return 0 }

// AdminCalls counts requests to paths that a router must never expose, by path.
func (s *Server) AdminCalls() map[string]int { return nil }

// Calls counts requests by path.
func (s *Server) Calls() map[string]int { return nil }

// Dead says why the engine core died, nil while it lives.
func (s *Server) Dead() error { return nil }

// Fault makes the server misbehave as f says.
func (s *Server) Fault(f Fault) error { return nil }

// Close stops listening, cuts every connection and returns when all goroutines have left.
func (s *Server) Close() error { return nil }

// Fault is one misbehaviour, as JSON on the control listener.
type Fault struct {
	Kind   string        `json:"kind"`
	Leg    string        `json:"leg,omitzero"`    // prefill, decode, plain or "" for any
	Path   string        `json:"path,omitzero"`   // only requests to this path
	Count  int           `json:"count,omitzero"`  // how many requests, batches or events
	Status int           `json:"status,omitzero"` // of a failed request
	For    time.Duration `json:"for,omitzero"`    // nanoseconds, or a string as "2s"
}
