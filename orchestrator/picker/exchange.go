package picker

import (
	"context"
	"io"
	"net"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/picker/extprocv3"
)

// Exchange is one HTTP request of a gateway and its answer. It belongs to the goroutine of the stream.
//
// Long: a field for each fact of the two directions.
type Exchange struct {
	stream  extprocv3.ExternalProcessor_ProcessServer
	sidecar int           // port, 0 for the engines' own
	write   time.Duration // the most that a message may take

	out  chan *extprocv3.ProcessingResponse // to transmit; closed at the end of the stream's function
	sent chan error                         // the result of each message; has room for one
	late *time.Timer                        // ends the wait for a message

	in   chan *extprocv3.ProcessingRequest // closed when err is set
	err  error                             // why nothing more comes
	over chan struct{}                     // closed when the stream's function returns

	readBy time.Time // deadline of the next read of the body, zero for none
	left   []byte    // of the newest message with a body
	ended  bool      // the body has been read
	tails  bool      // trailers followed the body
	bare   bool      // the request has no body

	subset     []string // addresses that the gateway allows
	restricted bool     // only the addresses in subset are allowed

	to        string // the destination that was sent, "" before
	headed    bool   // the head of the answer has come
	wrong     error  // what the gateway did wrong with the answer; nil for nothing
	answering bool   // the head of the answer has passed
	passed    bool   // all of the answer has
	newest    messageKind
	newestEnd bool
}

// messageKind is what the newest message of the answer is.
type messageKind uint8

const (
	headMessage messageKind = iota
	bodyMessage
	trailersMessage
)

// Destination is where a request goes, and what the engines get.
type Destination struct {
	Decode  string // host:port of the engine that answers
	Prefill string // host:port of the engine that computes the prompt, "" if the one that answers does
	ID      string // of the request, unique
	Body    []byte // instead of the client's
	Key     string // the engines' API key, "" for none
	HideKey bool   // the client's key is for the router alone
	Session string // id of the client's session, "" for none
}

// Part is a part of an answer.
type Part struct {
	Status      int    // of the head; 0 in other parts
	ContentType string // of the head
	Elsewhere   string // host:port that answers instead of the destination, in a head; "" if none is known
	Body        []byte // valid until the next part
	End         bool   // nothing follows
}

// receive reads the gateway's messages until the stream ends.
func (x *Exchange) receive() {
	defer close(x.in)
	for {
		m, err := x.stream.Recv()
		if err != nil {
			x.err = err
			return
		}
		select {
		case x.in <- m:
		case <-x.over:
			x.err = context.Canceled
			return
		}
	}
}

// next waits for the next message.
func (x *Exchange) next(ctx context.Context) (*extprocv3.ProcessingRequest, error) {
	select {
	case m, ok := <-x.in:
		if !ok {
			return nil, x.err
		}
		return m, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// transmit sends the messages of out, one at a time, until out is closed.
func (x *Exchange) transmit() {
	for m := range x.out {
		x.sent <- x.stream.Send(m)
	}
}

// send sends a message. gRPC waits as long as the gateway reads nothing, such as for a client that reads
// nothing. After a time limit nothing more is sent: the end of the stream's function ends the wait.
func (x *Exchange) send(m *extprocv3.ProcessingResponse) error {
	if x.wrong != nil {
		return x.wrong
	}
	x.late.Reset(x.write)
	defer x.late.Stop()
	x.out <- m
	select {
	case err := <-x.sent:
		return err
	case <-x.late.C:
		x.wrong = errDeaf
		return x.wrong
	}
}

// Read reads the body of the request. It implements [io.Reader].
func (x *Exchange) Read(p []byte) (int, error) {
	for len(x.left) == 0 {
		if x.ended {
			return 0, io.EOF
		}
		if err := x.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, x.left)
	x.left = x.left[n:]
	return n, nil
}

// fill waits for the next message with a part of the body.
func (x *Exchange) fill() error {
	ctx := x.stream.Context()
	if !x.readBy.IsZero() {
		bounded, cancel := context.WithDeadline(ctx, x.readBy)
		defer cancel()
		ctx = bounded
	}
	m, err := x.next(ctx)
	if err != nil {
		return err
	}
	switch v := m.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestBody:
		x.left, x.ended = v.RequestBody.GetBody(), v.RequestBody.GetEndOfStream()
	case *extprocv3.ProcessingRequest_RequestTrailers:
		x.ended, x.tails = true, true
	default:
		return errOrder
	}
	return nil
}

// Close implements [io.Closer]: the body of a request.
func (x *Exchange) Close() error { return nil }

// Allows reports whether the gateway lets the engine at address be chosen. A destination must be an IP
// address with a port. A subset names the ports of destinations; of a prefill engine the host counts alone.
func (x *Exchange) Allows(role replica.Role, address string) bool {
	host, _, err := net.SplitHostPort(address)
	switch {
	case role == replica.Decode && (err != nil || net.ParseIP(host) == nil):
		return false
	case !x.restricted:
		return true
	case role == replica.Decode:
		return slices.Contains(x.subset, x.destination(address))
	}
	return slices.ContainsFunc(x.subset, func(allowed string) bool {
		of, _, err := net.SplitHostPort(allowed)
		return err == nil && of == host
	})
}

// Send answers the request's messages with the destination.
func (x *Exchange) Send(to *Destination) error {
	address := x.destination(to.Decode)
	if err := x.send(routed(to, address, x.bare)); err != nil {
		return err
	}
	x.to = address
	if x.bare {
		return nil
	}
	if err := x.sendBody(requestBody, to.Body, !x.tails); err != nil || !x.tails {
		return err
	}
	return x.send(requestTrailers())
}

// Next waits for the next part of the answer.
func (x *Exchange) Next(ctx context.Context) (Part, error) {
	m, err := x.next(ctx)
	if err != nil {
		return Part{}, err
	}
	switch v := m.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		if x.headed {
			break
		}
		x.headed = true
		x.newest, x.newestEnd = headMessage, v.ResponseHeaders.GetEndOfStream()
		return x.head(m, v.ResponseHeaders), nil
	case *extprocv3.ProcessingRequest_ResponseBody:
		if !x.headed { // the filter hides the head, and so the kind of the answer
			x.wrong = errModes
			return Part{}, x.wrong
		}
		x.newest, x.newestEnd = bodyMessage, v.ResponseBody.GetEndOfStream()
		return Part{Body: v.ResponseBody.GetBody(), End: x.newestEnd}, nil
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		if !x.headed {
			break
		}
		x.newest, x.newestEnd = trailersMessage, true
		return Part{End: true}, nil
	}
	x.wrong = errOrder
	return Part{}, x.wrong
}

// Give answers the newest message of the answer with the body that the client gets instead.
func (x *Exchange) Give(body []byte) error {
	var err error
	switch x.newest {
	case headMessage:
		x.answering = true
		err = x.send(answerHead())
	case bodyMessage:
		if len(body) > 0 || x.newestEnd {
			err = x.sendBody(responseBody, body, x.newestEnd)
		}
	case trailersMessage:
		if len(body) > 0 {
			err = x.sendBody(responseBody, body, false)
		}
		if err == nil {
			err = x.send(responseTrailers())
		}
	}
	x.passed = err == nil && x.newestEnd
	return err
}

// mostInMessage is the most bytes of a body in one message. Some gateways take no more than 64 KiB.
const mostInMessage = 62000

// sendBody sends a body in messages, the last of which ends it if end is set.
func (x *Exchange) sendBody(
	as func(body []byte, end bool) *extprocv3.ProcessingResponse, body []byte, end bool,
) error {
	for {
		part := body[:min(len(body), mostInMessage)]
		body = body[len(part):]
		if err := x.send(as(part, end && len(body) == 0)); err != nil || len(body) == 0 {
			return err
		}
	}
}
