package engine

import (
	"context"
	"errors"
	"net"
	"strconv"
)

// Phase says how far a request had got.
type Phase uint8

// The phases of a request, in order.
const (
	Dial  Phase = iota + 1 // checking it and connecting
	Write                  // sending it
	Head                   // waiting for the head of the answer
	Body                   // reading the body of the answer
)

func (p Phase) String() string {
	switch p {
	case Dial:
		return "dial"
	case Write:
		return "write"
	case Head:
		return "head"
	case Body:
		return "body"
	}
	return "phase " + strconv.Itoa(int(p))
}

// Error is a request that failed. It unwraps to the context's error when the context ended.
type Error struct {
	Phase Phase
	Sent  bool // whether any byte of the request may have left
	Err   error

	silent      bool // the connection died before the first byte of an answer
	old         bool // the connection ended when it had been kept for longer than it may
	unreachable bool // connecting failed, or a fresh connection before it took a byte
	dead        bool // the connection had ended while it was idle, and nothing was written
	spoke       bool // the engine sent something unasked on it; dead, too
}

func (e *Error) Error() string { return e.Phase.String() + ": " + e.Err.Error() }

// Unwrap returns what went wrong.
func (e *Error) Unwrap() error { return e.Err }

// orNil keeps a nil *Error from becoming a non-nil error.
func orNil(e *Error) error {
	if e == nil {
		return nil
	}
	return e
}

// NotSent reports whether err proves that the engine saw nothing of the request, so that its transfer params
// are still unused.
func NotSent(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && !e.Sent
}

// Unreachable reports whether err is the engine's fault: nothing answered at its address, or the engine hung
// up before it read a byte. Failures on our side say nothing about the engine and must not count against it.
// Examples are a context that ended, an invalid request, and a closed client.
func Unreachable(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.unreachable
}

// HungUp reports whether err is an accepted connection that ended before the first byte of an answer. For an
// Idempotent request it was a fresh connection. HungUp cannot tell whether the engine ended during the
// request, or was gone already behind a proxy that still accepts connections for it.
func HungUp(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok || !e.silent || e.unreachable || errors.Is(e.Err, context.Canceled) {
		return false
	}
	slow, is := errors.AsType[net.Error](e.Err)
	return !is || !slow.Timeout()
}

// Stale reports whether err means that a kept connection was too old for its next request, and ended before
// the first byte of an answer. An engine that was stopped for a while ends such connections before it reads
// from them. A process that ends breaks off all its connections.
func Stale(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.old && HungUp(err)
}

// ErrRequest is a request that cannot be put on the wire as it is, to any engine.
var ErrRequest = errors.New("request is not one")

// ErrTooLarge is a body longer than its reader's limit.
var ErrTooLarge = errors.New("answer is larger than the limit")

// ProtocolError is an answer that is not HTTP/1.1 as we accept it. Later bytes on its connection cannot be
// trusted.
type ProtocolError string

func (e ProtocolError) Error() string { return "answer is malformed: " + string(e) }

const (
	errHeadTooLarge = ProtocolError("head is larger than the limit")
	errBareLF       = ProtocolError("line does not end with CRLF")
	errCut          = ProtocolError("head is cut off")
)
