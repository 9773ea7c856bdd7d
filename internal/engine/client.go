// Package engine talks HTTP to one vLLM server: it sends requests on the caller's goroutine, and fetches the
// server's facts and load.
//
// A router that sends two requests per answer pays most for context switches. So nothing here runs beside
// the caller, except the write of a long body over TLS. One write sends the request, each read takes the
// bytes that have arrived, and a cancelled context closes the connection. A request that may have reached
// the engine is never sent twice, because KV transfer params can be used only once.
package engine

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Options says how to reach an engine server. Only URL is needed.
type Options struct {
	// Base, http or https, maybe with a path prefix.
	URL string
	// For https; nil is the default config.
	TLS *tls.Config
	// Sent as a bearer token when not empty.
	APIKey string
	Header http.Header                                                       // sent with every request
	Dial   func(ctx context.Context, network, addr string) (net.Conn, error) // nil dials TCP
	// For connecting and the TLS handshake; 0: as long as the caller waits.
	DialTimeout time.Duration
	// How long a connection may wait for its next request, 4 s when zero: uvicorn closes at 5 s.
	IdleTimeout time.Duration
	// Connections kept for reuse, 512 when zero.
	MaxIdle int
	// Bounds the kept connections of all clients that share it; nil is no bound.
	Kept *Kept
	// Limit of a response head, 16 KiB when zero, at most 32 KiB.
	MaxHeaderBytes int
}

func (o *Options) setDefaults() {
	if o.Dial == nil {
		o.Dial = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = 4 * time.Second
	}
	if o.MaxIdle <= 0 {
		o.MaxIdle = 512
	}
	if o.MaxHeaderBytes <= 0 {
		o.MaxHeaderBytes = 16 << 10
	}
	o.MaxHeaderBytes = min(o.MaxHeaderBytes, bufferSize)
}

// Client is one engine server. It is safe for concurrent use.
type Client struct {
	// Immutable.
	o      Options // as of New, defaults filled in
	addr   string  // host:port to dial
	host   string  // host of the URL, without port and brackets
	prefix string  // path of the URL, without a slash at the end

	way  atomic.Pointer[way]
	idle idle
}

// way is what of a client may change while it is used. It is immutable; a change makes another one.
type way struct {
	tls         *tls.Config // nil for plain http
	dialTimeout time.Duration
	fixed       []byte // the header lines that every request carries, Host first
}

// New makes a client; it connects to nothing yet.
func New(o Options) (*Client, error) {
	o.setDefaults()
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("engine url: %w", err)
	}
	if err := checkURL(u); err != nil {
		return nil, fmt.Errorf("engine url %q: %w", o.URL, err)
	}
	c := &Client{o: o, host: u.Hostname(), prefix: strings.TrimRight(u.EscapedPath(), "/")}
	c.addr = net.JoinHostPort(c.host, port(u))
	now, err := newWay(u, o)
	if err != nil {
		return nil, fmt.Errorf("engine %s: %w", c.addr, err)
	}
	c.way.Store(now)
	c.idle.max, c.idle.keep = o.MaxIdle, o.IdleTimeout
	c.idle.all = o.Kept
	return c, nil
}

func newWay(u *url.URL, o Options) (*way, error) {
	lines, err := fixedLines(u.Host, o)
	now := &way{dialTimeout: o.DialTimeout, fixed: lines}
	if u.Scheme == "https" {
		now.tls = tlsConfig(o.TLS, u.Hostname())
	}
	return now, err
}

// Change sets TLS, APIKey, Header and DialTimeout to the values in o from the next request on. Every other
// option stays as at [New]. Running requests continue. retrust says that TLS has changed: connections made
// with the old TLS settings carry no further request.
func (c *Client) Change(o Options, retrust bool) error {
	o.setDefaults()
	u, err := url.Parse(c.o.URL)
	if err != nil { // not that of a client
		return fmt.Errorf("engine url: %w", err)
	}
	next, err := newWay(u, o)
	if err != nil {
		return fmt.Errorf("engine %s: %w", c.addr, err)
	}
	if !retrust || next.tls == nil {
		next.tls, retrust = c.way.Load().tls, false
	}
	c.way.Store(next)
	if retrust {
		c.idle.empty()
	}
	return nil
}

func checkURL(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("scheme must be http or https")
	case u.Hostname() == "":
		return errors.New("host is missing")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("user, query and fragment have no place here")
	}
	return nil
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "https" {
		return "443"
	}
	return "80"
}

func tlsConfig(base *tls.Config, host string) *tls.Config {
	cfg := &tls.Config{}
	if base != nil {
		cfg = base.Clone()
	}
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	cfg.NextProtos = []string{"http/1.1"}
	return cfg
}

// Close closes the idle connections and refuses new requests; connections in use close when their response
// does.
func (c *Client) Close() { c.idle.close() }

// Retire closes the idle connections and keeps none from now on. Later requests are still served, each on a
// connection of its own. Retire is for an engine that gets no new requests while older requests may still
// have to ask it.
func (c *Client) Retire() { c.idle.retire() }

// Do sends r and returns when the head of the answer has arrived; the caller reads the body and closes the
// response. The end of ctx closes the connection at once in any state, until the response is closed or read
// to its end.
//
// Every error is an [*Error]; it unwraps to [ErrAnother] where the engine sent something else than the
// answer to r. A request of which a byte may have left is not sent again, unless r is Idempotent.
func (c *Client) Do(ctx context.Context, r *Request) (*Response, error) {
	if err := c.refuse(ctx, r); err != nil {
		return nil, &Error{Phase: Dial, Err: err}
	}
	for dead := r.ID != ""; dead; {
		cn := c.idle.get(c.way.Load().tls, r.Path)
		if cn == nil {
			break
		}
		resp, err := c.exchange(ctx, cn, r)
		if err == nil || !again(ctx, err, r) {
			return resp, orNil(err)
		}
		dead = err.dead
	}
	cn, err := c.dial(ctx)
	if err != nil {
		return nil, &Error{Phase: Dial, Err: err, unreachable: ctx.Err() == nil && !exhausted(err)}
	}
	resp, xerr := c.exchange(ctx, cn, r)
	return resp, orNil(xerr)
}

// refuse tells what forbids r before anything is done for it.
func (c *Client) refuse(ctx context.Context, r *Request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.idle.closed.Load() {
		return net.ErrClosed
	}
	if err := r.validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return nil
}

// again reports whether r may go out on a fresh connection after the idle one failed with err.
func again(ctx context.Context, err *Error, r *Request) bool {
	if ctx.Err() != nil {
		return false
	}
	return !err.Sent || r.Idempotent && err.silent
}

// exchange sends r over cn and reads the head of its answer. It owns cn from here on.
func (c *Client) exchange(ctx context.Context, cn *conn, r *Request) (*Response, *Error) {
	resp := &Response{client: c, conn: cn, ContentLength: -1}
	if ctx.Done() != nil {
		resp.ctx, resp.stop = ctx, context.AfterFunc(ctx, cn.abortFn)
	}
	at, early, err := cn.send(c, r)
	resp.Sent = at
	if err == nil {
		err = resp.readHead(c.o.MaxHeaderBytes, r.Method, early)
	}
	if err == nil {
		err = resp.checkHead(r)
	}
	if err != nil {
		if err.spoke {
			c.idle.distrust()
		}
		err.old = !cn.since.IsZero() && time.Since(cn.since) >= c.o.IdleTimeout
		resp.release(false)
		if cause := ctx.Err(); cause != nil {
			err.Err, err.unreachable = cause, false
		}
		return nil, err
	}
	return resp, nil
}

// dial opens a connection, with the TLS handshake where there is one.
func (c *Client) dial(ctx context.Context) (*conn, error) {
	by := c.way.Load()
	limited, cancel := by.limit(ctx)
	defer cancel()
	nc, err := c.o.Dial(limited, "tcp", c.addr)
	if err == nil && by.tls != nil {
		nc, err = handshake(limited, nc, by.tls)
	}
	if err == nil {
		cn := newConn(nc)
		cn.tls = by.tls
		return cn, nil
	}
	if cause := ctx.Err(); cause != nil {
		return nil, cause
	}
	return nil, err
}

// limit bounds the time to connect.
func (w *way) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.dialTimeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, w.dialTimeout)
}

// exhausted reports whether a connection could not be made because this machine has run out of something.
func exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) ||
		errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EADDRNOTAVAIL)
}

func handshake(ctx context.Context, nc net.Conn, cfg *tls.Config) (net.Conn, error) {
	tc := tls.Client(nc, cfg)
	if err := tc.HandshakeContext(ctx); err != nil {
		nc.Close()
		return nil, fmt.Errorf("tls handshake: %w", err)
	}
	return tc, nil
}

// Post sends a JSON body and reads the whole answer, at most 64 MiB. A status other than 200 is not an error.
func (c *Client) Post(ctx context.Context, path string, body []byte) (status int, reply []byte, err error) {
	return c.roundTrip(ctx, &Request{Method: http.MethodPost, Path: path, Body: body})
}

// get is Post's twin for questions that may be asked twice.
func (c *Client) get(ctx context.Context, path string) (status int, reply []byte, err error) {
	return c.roundTrip(ctx, &Request{Method: http.MethodGet, Path: path, Idempotent: true})
}

const replyLimit = 64 << 20

func (c *Client) roundTrip(ctx context.Context, r *Request) (int, []byte, error) {
	resp, err := c.Do(ctx, r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Close()
	reply, err := resp.ReadAll(replyLimit)
	return resp.Status, reply, err
}
