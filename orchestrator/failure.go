package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
)

// failure is a failed request, or a failed attempt at a request. The kind says what the client is told and
// whether another attempt may help. The site says where and why it happened. A failure does not change after
// it was made: a method that adds something returns a copy.
type failure struct {
	kind failureKind
	site
	reply errorAnswer // what the client gets

	delivered    bool   // the client has the engine's own event about the failure
	notContinued string // why no engine continued the stream that broke off; "" otherwise
	notRetried   string // why no attempt followed a failure that another replica might avoid; see retry.go
}

// site is where and why a failure happened.
type site struct {
	phase  phase      // in which it happened
	at     replica.ID // the engine that failed, "" if none did
	cutAt  replica.ID // where the request was when its client or the router ended it, only for the log
	source replica.ID // the prefill engine, if its blocks may be the cause
	err    error      // for the log and the span

	words      string        // the message for the client; "": the words of the kind
	retryAfter time.Duration // after this time the client may try again; 0: unknown
	status     int           // status of the engine, if it decides the name of the failure
	replaced   bool          // another engine now has the name of the engine that left
	unsent     bool          // the engine did not get the request
}

// errorAnswer is the answer for the client.
type errorAnswer struct {
	status      int
	body        []byte
	contentType string // of body, "" is JSON
}

// refuse returns a failure whose body has vLLM's form.
func refuse(kind failureKind, s site) *failure {
	row := &failureTable[kind]
	message := cmp.Or(s.words, strings.ReplaceAll(row.words, "{phase}", string(s.phase)))
	body := openai.AppendError(nil, message, errorType(row.status), "", row.status)
	return &failure{kind: kind, site: s, reply: errorAnswer{status: row.status, body: body}}
}

// answered returns a failure with an engine's own error answer or error event, which the client gets
// unchanged.
func answered(kind failureKind, s site, body []byte, contentType string) *failure {
	return &failure{
		kind: kind, site: s,
		reply: errorAnswer{status: s.status, body: openai.Scrub(nil, body), contentType: contentType},
	}
}

// leftBy returns the failure of a request whose client left. The client gets nothing.
func leftBy(s site) *failure {
	return &failure{kind: kindClientGone, site: s, reply: errorAnswer{status: clientGone}}
}

// lost returns the failure of a client that stopped reading.
func lost(err error) *failure {
	return leftBy(site{phase: phaseClient, err: err})
}

// badRequest returns the failure for a refused body, in the words of the reader of bodies if there are any.
func badRequest(err error) *failure {
	s := site{phase: phaseAdmit, err: err}
	bad, ok := errors.AsType[*openai.BadRequest](err)
	if !ok {
		return refuse(kindBadRequest, s)
	}
	reply := errorAnswer{status: http.StatusBadRequest, body: bad.Append(nil)}
	return &failure{kind: kindBadRequest, site: s, reply: reply}
}

func (f *failure) row() *failureRow { return &failureTable[f.kind] }

// name returns the name of the failure in metrics, records, spans and the log.
func (f *failure) name() string {
	if name := f.row().name; name != "status_" {
		return name
	}
	return "status_" + strconv.Itoa(f.status)
}

// own reports whether the client gets an engine's own answer.
func (f *failure) own() bool { return f.row().owner == ownerByStatus }

// owner returns the side that caused the failure. The client is the cause of a status below 500 from an
// engine, except 429 and 404: another replica may have room, or may still serve the model.
func (f *failure) owner() owner {
	switch {
	case !f.own():
		return f.row().owner
	case f.forgotten(), f.reply.status >= http.StatusInternalServerError,
		f.reply.status == http.StatusTooManyRequests:
		return ownerEngine
	}
	return ownerClient
}

// mayRetry reports whether another replica may do better.
func (f *failure) mayRetry() bool {
	if f.own() {
		return f.owner() == ownerEngine
	}
	return f.row().retry.holds(f.phase)
}

// answered reports whether an engine itself reported the failure.
func (f *failure) answered() bool {
	return f.kind == kindMisplaced || f.own() && f.reply.status >= http.StatusInternalServerError
}

// harmless reports whether another attempt would multiply no work of an engine. Examples: no engine received
// the request, the prefill engine stands still, or the blocks came too late.
func (f *failure) harmless() bool { return f.row().harmless.holds(f.phase) || f.forgotten() }

// opines reports whether the failure says something about the request, because an engine received it.
func (f *failure) opines() bool {
	return f.kind != kindUnreachable && f.kind != kindSource && !f.unlucky()
}

// unlucky reports whether neither the request nor a replica caused the failure: the same replicas may be
// asked again.
func (f *failure) unlucky() bool { return f.row().unlucky }

// unused reports whether no decode engine received the transfer params. Then the prefill engine's lease can
// be given back.
func (f *failure) unused() bool { return f.unsent || f.row().unused.holds(f.phase) }

// tells reports whether the failure says more to a client than that no replica is left.
func (f *failure) tells() bool { return f.own() || f.kind == kindBadParams }

// forgotten reports whether an engine no longer knows the model, which it served at the last probe. The
// adapter may have been unloaded.
func (f *failure) forgotten() bool { return f.own() && f.reply.status == http.StatusNotFound }

// gone reports whether the client left.
func (f *failure) gone() bool { return f.kind == kindClientGone }

// refusedTokens finds in vLLM's refusal how long the prompt is. If vLLM says "at least", it does not know the
// length.
var refusedTokens = regexp.MustCompile(`your prompt contains ([0-9]{1,9}) input tokens`)

// counted returns the length of the prompt according to an engine that refused it as too long; 0 if the
// engine does not say the length. The router may have estimated another length.
func (f *failure) counted() int {
	if !f.own() || f.reply.status != http.StatusBadRequest {
		return 0
	}
	n := 0
	if m := refusedTokens.FindSubmatch(f.reply.body); m != nil {
		n, _ = strconv.Atoi(string(m[1])) // a few digits
	}
	return n
}

func (f *failure) Error() string {
	s := string(f.phase) + ": " + f.name()
	if f.at != "" {
		s = string(f.phase) + " " + string(f.at) + ": " + f.name()
	}
	return s + ": " + f.cause()
}

// cause returns the reason for the log. For an engine's own error it returns only the status, because the
// engine's text may have parts of a prompt.
func (f *failure) cause() string {
	switch {
	case f.err != nil:
		return f.err.Error()
	case f.kind == kindErrorEvent:
		return fmt.Sprintf("the engine's stream told of an error with status %d", f.reply.status)
	case f.own():
		return fmt.Sprintf("the engine answered with status %d", f.reply.status)
	}
	return fmt.Sprintf("%s, status %d", strings.ReplaceAll(f.name(), "_", " "), f.reply.status)
}

func (f *failure) Unwrap() error { return f.err }

// withSource returns f with the prefill engine whose blocks may be the cause; "" for none.
func (f *failure) withSource(source replica.ID) *failure {
	own := *f
	own.source = source
	return &own
}

// withDelivered returns f, marked as a failure whose event the client has already.
func (f *failure) withDelivered() *failure {
	own := *f
	own.delivered = true
	return &own
}

// withNotRetried returns f with the reason why no attempt follows; "" for none. f may be nil.
func (f *failure) withNotRetried(why string) *failure {
	if f == nil || why == "" {
		return f
	}
	own := *f
	own.notRetried = why
	return &own
}

// withNotContinued returns f with the reason why no engine continued the stream.
func (f *failure) withNotContinued(why string) *failure {
	own := *f
	own.notContinued = why
	return &own
}

// ofSibling returns f for another prompt of the same batch. No engine failed that prompt.
func (f *failure) ofSibling() *failure {
	own := *f
	own.at, own.source = "", ""
	own.notContinued = ""
	return &own
}

// heard returns f; nil for no failure. If the client has left meanwhile, it returns the failure of a client
// that left, because the leg outlives the client for a moment.
func (f *failure) heard(ctx context.Context) *failure {
	if f == nil || ctx.Err() == nil {
		return f
	}
	return goneFailure(ctx, site{phase: f.phase, cutAt: cmp.Or(f.at, f.cutAt)})
}

// shaped returns f as an answer of this API, in the words of the API.
func (f *failure) shaped(kind openai.Kind) errorAnswer {
	a := f.reply
	if ours := !f.own() || f.phase == phasePrefill; kind == openai.Messages && ours && !f.gone() {
		return errorAnswer{
			status: a.status, body: kind.Error(nil, openai.Message(a.body), errorType(a.status), a.status),
		}
	}
	return a
}

// onSpan returns the name of f for the span of a leg; "" if the leg did not fail. A client that left is no
// failure of an engine.
func (f *failure) onSpan() string {
	if f == nil || f.gone() {
		return ""
	}
	return f.name()
}

// event returns f as the last events of a stream in which sent events have gone out.
func (f *failure) event(kind openai.Kind, sent int) []byte {
	status := f.reply.status
	if status < 400 || status == clientGone {
		status = http.StatusBadGateway
	}
	message := "The answer could not be finished: " + string(f.phase) + " " + f.name() + "."
	return kind.ErrorEvent(nil, message, errorType(status), status, sent)
}

// errorType returns the name of errors with this status in vLLM, or else in client libraries.
func errorType(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "BadRequestError"
	case http.StatusUnauthorized:
		return "AuthenticationError"
	case http.StatusNotFound:
		return "NotFoundError"
	case http.StatusRequestEntityTooLarge:
		return "RequestTooLargeError"
	case http.StatusTooManyRequests:
		return "RateLimitError"
	case http.StatusServiceUnavailable:
		return "ServiceUnavailableError"
	case http.StatusGatewayTimeout:
		return "TimeoutError"
	}
	return "InternalServerError"
}
