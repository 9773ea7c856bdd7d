// Package engine talks HTTP to one vLLM server: requests on the caller's goroutine, its facts and its load.
package engine

import (
	"context"
	"crypto/tls"
	"errors"
	"iter"
	"net"
	"net/http"
	"time"

	"tandem/internal/replica"
)

// Options says how to reach an engine server. Only URL is needed.
type Options struct {
	URL            string                                                            // base, http or https, maybe with a path prefix
	TLS            *tls.Config                                                       // for https; nil is the default config
	APIKey         string                                                            // sent as a bearer token when not empty
	Header         http.Header                                                       // sent with every request
	Dial           func(ctx context.Context, network, addr string) (net.Conn, error) // nil dials TCP
	DialTimeout    time.Duration                                                     // for connecting and the TLS handshake, 3 s when zero
	IdleTimeout    time.Duration                                                     // how long a connection may wait for its next request, 4 s when zero: uvicorn closes at 5 s
	MaxIdle        int                                                               // connections kept for reuse, 512 when zero
	MaxHeaderBytes int                                                               // limit of a response head, 16 KiB when zero, at most 32 KiB
}

// Client is one engine server. It is safe for concurrent use.
type Client struct{}

// Field is one header field of a request, its key in canonical form.
type Field struct{ Key, Value string }

// Request is what Do sends.
type Request struct {
	Method, Path string
	Header       []Field
	Body         []byte
	ContentType  string // of Body, application/json when empty
	Idempotent   bool   // may be sent again when a reused connection dies before the first byte of an answer
}

// Header is the head of a response.
type Header struct{ head string }

// Get returns the value of the first field named key, in any case, or "".
func (h Header) Get(key string) string { return "" }

// All walks the fields in order.
func (h Header) All() iter.Seq2[string, string] { return func(func(string, string) bool) {} }

// Response is an answer whose body is read with Next or ReadAll, by one goroutine at a time.
type Response struct {
	Status        int
	Header        Header
	ContentLength int64 // -1 when not known beforehand
}

var errTODO = errors.New("not there yet")

// New makes a client; it connects to nothing yet.
func New(o Options) (*Client, error) { return &Client{}, nil }

// Close closes the idle connections; those in use close when their response is closed.
func (c *Client) Close() {}

// Do sends r and returns when the head of the answer is there.
func (c *Client) Do(ctx context.Context, r *Request) (*Response, error) { return nil, errTODO }

// Post sends a JSON body and reads the whole answer.
func (c *Client) Post(ctx context.Context, path string, body []byte) (status int, reply []byte, err error) {
	return 0, nil, errTODO
}

// Next returns the body bytes that are there, waiting for the first; valid until the next call. io.EOF is the end.
func (r *Response) Next() ([]byte, error) { return nil, errTODO }

// Complete reports whether Next has returned the whole body already, so that it would say io.EOF at once.
func (r *Response) Complete() bool { return false }

// SetIdle lets Next fail with os.ErrDeadlineExceeded when nothing arrives for d; 0 waits as long as the request's context.
func (r *Response) SetIdle(d time.Duration) {}

// ReadAll returns the whole body, or an error when it is longer than limit.
func (r *Response) ReadAll(limit int64) ([]byte, error) { return nil, errTODO }

// Close gives the connection back when the body was read to its end, and closes it otherwise.
func (r *Response) Close() {}

// Phase says how far a request got.
type Phase uint8

// The phases of a request.
const (
	Dial Phase = iota + 1
	Write
	Head
	Body
)

// Error is a request that failed.
type Error struct {
	Phase Phase
	Sent  bool // whether any byte of the request may have left
	Err   error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// NotSent reports whether err proves that the engine saw nothing of the request.
func NotSent(err error) bool { return false }

// ParseORCA reads the value of an endpoint-load-metrics header; At is left to the caller.
func ParseORCA(value string) (replica.Load, bool) { return replica.NoLoad(), false }

// Metrics is what one scrape of /metrics says.
type Metrics struct {
	Loads      map[int]replica.Load // by data-parallel rank; At is left to the caller of ParseMetrics
	Ranks      map[int]Rank         // the rest, by the same rank
	Started    float64              // process start, unix seconds, 0 unknown
	Rejections float64              // requests refused by admission, NaN unknown
}

// Rank is what /metrics says of one data-parallel rank besides its load.
type Rank struct {
	Cache    Cache
	Queue    Queue
	Counters Counters
}

// Cache is the KV cache of one rank. Zero means unknown.
type Cache struct {
	BlockSize     int // tokens
	Blocks        int // usable blocks of this rank
	DType         string
	PrefixCaching bool
}

// Queue splits the waiting requests. -1 means unknown.
type Queue struct {
	Capacity, Deferred                           int // waiting for blocks or a slot; for something else, such as remote KV
	FetchToStart, FetchInProgress, FetchComplete int // remote KV loads
}

// Counters only grow while a process lives. NaN means unknown.
type Counters struct {
	Preemptions                           float64
	PrefixQueries, PrefixHits             float64 // tokens
	ExternalQueries, ExternalHits         float64 // tokens, KV connector
	NIXLFailedTransfers, NIXLFailedNotifs float64
	NIXLExpired, NIXLAfterExpiry          float64 // leases that ended unread; reads of a lease that was gone: wrong text is possible
}

// ParseMetrics reads the Prometheus text of an engine.
func ParseMetrics(body []byte) (Metrics, error) { return Metrics{}, errTODO }

// Scrape reads /metrics.
func (c *Client) Scrape(ctx context.Context) (Metrics, error) { return Metrics{}, errTODO }

// Health asks /health; nil is healthy.
func (c *Client) Health(ctx context.Context) error { return errTODO }

// Probe asks the server for its facts, one per data-parallel rank in rank order, the first being rank FirstRank.
func (c *Client) Probe(ctx context.Context) ([]replica.Facts, error) { return nil, errTODO }

// EventSource makes dialable addresses of what /kv_event_sources says, host standing in for a wildcard.
func EventSource(host, endpoint, replay, topic string) replica.EventSource {
	return replica.EventSource{}
}
