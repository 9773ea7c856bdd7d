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

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// failure is a request, or an attempt at it, that went wrong: what the client will be told, and whether
// another attempt may help.
//
// Long: what is decided by a failure and what is told of it are not the same.
type failure struct {
	phase     string      // tokenize, queue, plan, prefill, handoff, decode, stream, client
	owner     string      // client, prefill, decode, us
	kind      string      // short and stable, for metrics and records
	answer    errorAnswer // what the client gets
	retry     bool        // another replica may do better
	alone     bool        // and it must prefill for itself
	at        replica.ID  // where it happened, "" when nowhere
	source    replica.ID  // whose blocks the engine may have failed to load, "" when that cannot be the cause
	replaced  bool        // another engine has the name of who left there
	delivered bool        // the client has the engine's own event about it
	misplaced bool        // an engine's answer has a status that no request can cause
	unused    bool        // the transfer params did not reach a decode engine: its lease can be given back
	err       error       // for the log and the span

	cutAt        replica.ID // where the request was when its client or the router ended it: nobody's fault
	notContinued string     // why nobody went on with a stream that broke off, "" of others
	notRetried   string     // why no attempt followed one that might be tried again, "" of others; see retry.go
}

// errorAnswer is how a client is told of a failure.
type errorAnswer struct {
	status      int
	body        []byte // an engine's own where one answered
	contentType string // of body, "" is JSON
	retryAfter  time.Duration
	own         bool // body is an engine's own answer
}

// answered reports whether an engine itself said that it failed.
func (f *failure) answered() bool {
	return f.misplaced || f.answer.own && f.answer.status >= http.StatusInternalServerError
}

// harmless reports whether the failed attempt cost no engine any work that trying again would multiply:
// nobody was there to receive it, whoever received it passed it to no engine, its prefill engine stands
// still, or its blocks came too late to be used, since somebody stood still.
func (f *failure) harmless() bool {
	return f.kind == "silent" && f.phase == "prefill" || f.kind == "unreachable" || f.kind == "left" ||
		f.kind == "expired" || f.kind == noIDs || f.forgotten() || f.misplaced
}

// opines reports whether the failure says something of the request: an engine had it.
func (f *failure) opines() bool { return f.kind != "unreachable" && !f.unlucky() }

// unlucky reports whether the attempt failed through no fault of its request nor of anybody who was asked:
// the same replicas may be asked again.
func (f *failure) unlucky() bool { return f.kind == staleKind || f.kind == formerEraKind }

// tells reports whether the failure says more to a client than that nobody else is left to try.
func (f *failure) tells() bool { return f.answer.own || f.kind == "bad_params" }

// forgotten reports whether an engine does not know the model, which it served when it was asked last: an
// adapter may have been unloaded there.
func (f *failure) forgotten() bool { return f.answer.own && f.answer.status == http.StatusNotFound }

// refusedTokens is how vLLM says how long a prompt is that it refuses. Where it says "at least" it does not
// know.
var refusedTokens = regexp.MustCompile(`your prompt contains ([0-9]{1,9}) input tokens`)

// counted is how many tokens the prompt has by the words of an engine that refused it as too long, 0 where it
// does not say: the router may have estimated another number.
func (f *failure) counted() int {
	if !f.answer.own || f.answer.status != http.StatusBadRequest {
		return 0
	}
	n := 0
	if m := refusedTokens.FindSubmatch(f.answer.body); m != nil {
		n, _ = strconv.Atoi(string(m[1])) // digits alone, and few of them
	}
	return n
}

func (f *failure) Error() string {
	s := f.phase + ": " + f.kind
	if f.at != "" {
		s = f.phase + " " + string(f.at) + ": " + f.kind
	}
	return s + ": " + f.cause()
}

// cause says why, for the log. Of an engine's own error it tells the status: its text may hold parts of a
// prompt.
func (f *failure) cause() string {
	switch {
	case f.err != nil:
		return f.err.Error()
	case f.kind == errorEventKind:
		return fmt.Sprintf("the engine's stream told of an error with status %d", f.answer.status)
	case f.answer.own:
		return fmt.Sprintf("the engine answered with status %d", f.answer.status)
	}
	return fmt.Sprintf("%s, status %d", strings.ReplaceAll(f.kind, "_", " "), f.answer.status)
}

func (f *failure) Unwrap() error { return f.err }

// clientGone is the status that records show for a client that left; nobody receives it.
const clientGone = 499

// goneKind is the kind of such a failure.
const goneKind = "client_gone"

// errorEventKind is the kind of an error that an engine told in an event of a stream.
const errorEventKind = "error_event"

// vLLM's names for errors by status.
func errorType(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "BadRequestError"
	case http.StatusUnauthorized:
		return "AuthenticationError"
	case http.StatusNotFound:
		return "NotFoundError"
	case http.StatusTooManyRequests:
		return "RateLimitError"
	case http.StatusServiceUnavailable:
		return "ServiceUnavailableError"
	case http.StatusGatewayTimeout:
		return "TimeoutError"
	}
	return "InternalServerError"
}

// refuse makes a failure of our own, with a body in vLLM's shape.
func refuse(phase, kind string, status int, message string) *failure {
	return &failure{
		phase: phase, owner: "us", kind: kind,
		answer: errorAnswer{
			status: status, body: openai.AppendError(nil, message, errorType(status), "", status),
		},
	}
}

// legFailed judges an error of a leg that got no answer.
func legFailed(ctx context.Context, phase string, at replica.ID, err error) *failure {
	if f := nobodys(ctx, phase, at, err); f != nil {
		return f
	}
	if f := givenUp(ctx, phase, at, err); f != nil {
		return f
	}
	if ctx.Err() != nil {
		return goneFailure(ctx, phase).cutOff(at)
	}
	f := &failure{phase: phase, owner: phase, at: at, err: err, retry: true}
	f.answer.status = http.StatusBadGateway
	if engine.NotSent(err) {
		f.kind = "unreachable"
		return f.saying("The " + phase + " replica cannot be reached.")
	}
	f.kind = "broken"
	return f.saying("The " + phase + " replica broke off before it answered.")
}

// givenUp judges a leg that this router ended, since its time was over or a replica stood still; nil for all
// others.
func givenUp(ctx context.Context, phase string, at replica.ID, err error) *failure {
	f := &failure{phase: phase, owner: phase, at: at, err: err, retry: true}
	f.answer.status = http.StatusGatewayTimeout
	cause := context.Cause(ctx)
	if errors.Is(cause, errPhaseTimeout) {
		f.kind = "timeout"
		f.retry = phase == "prefill"
		return f.saying("The " + phase + " replica did not answer in time.")
	}
	if still, is := errors.AsType[*unresponsive](cause); is {
		f.kind = "silent"
		f.phase, f.owner = still.phase, still.phase
		f.at, f.err = still.at, still
		return f.saying("The " + still.phase + " replica stood still.")
	}
	if between, is := errors.AsType[*stuck](cause); is {
		f.kind = "stuck"
		f.at, f.source = between.pair.Decode, between.pair.Prefill
		f.err = between
		return f.saying("The prompt did not reach the decode replica in time.")
	}
	return nil
}

// saying gives the failure a body in vLLM's shape.
func (f *failure) saying(message string) *failure {
	f.answer.body = openai.AppendError(nil, message, errorType(f.answer.status), "", f.answer.status)
	return f
}

// divergedKind is the kind of a failure to go on with an answer: the engine says other tokens than the one
// before it, both maybe for good reasons.
const divergedKind = "diverged"

// nobodys judges an error of a leg that is no engine's fault, but a limit of ours or our own doing; nil for
// all others. What a client can bring about by what it asks for is never held against an engine.
func nobodys(ctx context.Context, phase string, at replica.ID, err error) *failure {
	var f *failure
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errRestLate):
		return goneFailure(ctx, phase)
	case errors.Is(cause, errAnswerLate):
		f = refuse(phase, "answer_timeout", http.StatusGatewayTimeout,
			"The answer was not complete in the time that this router lets answers take.")
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, engine.ErrRequest):
		f = refuse(phase, "unsendable", http.StatusInternalServerError,
			"The router could not write this request for an engine.")
	case errors.Is(err, openai.ErrDiverged):
		f = refuse(phase, divergedKind, http.StatusBadGateway, "Another replica went on otherwise with the answer.")
	case errors.Is(err, engine.ErrTooLarge), errors.Is(err, openai.ErrEventTooLong):
		f = refuse(phase, "answer_too_large", http.StatusBadGateway, "The answer is larger than this router takes.")
	default:
		return nil
	}
	f.err = fmt.Errorf("%s: %w", at, err)
	return f
}

// goneFailure is what ends a request whose client left or whose router stops.
func goneFailure(ctx context.Context, phase string) *failure {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errStopped):
		return refuse(phase, "stopped", http.StatusServiceUnavailable,
			"The router is shutting down; send the request again.")
	case errors.Is(cause, errPhaseTimeout):
		return refuse(phase, "timeout", http.StatusGatewayTimeout, "The answer did not come in time.")
	}
	return leftBy(phase, context.Cause(ctx))
}

// heard is f, nil for none, or where its client has left meanwhile, as the leg outlives it for a moment, that
// nobody hears of it.
func (f *failure) heard(ctx context.Context) *failure {
	if f == nil || ctx.Err() == nil {
		return f
	}
	return goneFailure(ctx, f.phase).cutOff(cmp.Or(f.at, f.cutAt))
}

// cutOff says where the request was that f has ended. Unlike at it is for the log alone, and blames nobody.
func (f *failure) cutOff(at replica.ID) *failure {
	f.cutAt = at
	return f
}

// leftBy is the failure of a request whose client left in this phase.
func leftBy(phase string, err error) *failure {
	return &failure{
		phase: phase, owner: "client", kind: goneKind, answer: errorAnswer{status: clientGone}, err: err,
	}
}

// answered makes a failure of an engine's own error answer, which the client gets as it is.
func answered(phase string, at replica.ID, status int, body []byte, contentType, retryAfter string) *failure {
	f := &failure{
		phase: phase, owner: phase, kind: "status_" + strconv.Itoa(status), at: at,
		answer: errorAnswer{status: status, body: openai.Scrub(nil, body), contentType: contentType, own: true},
	}
	switch {
	case f.forgotten():
		f.retry = true // another replica may serve it still
	case status < 500 && status != http.StatusTooManyRequests:
		f.owner = "client"
	default:
		f.retry = true // never a 4xx but "too many": another replica may have room
	}
	if n, err := strconv.Atoi(retryAfter); err == nil && n > 0 {
		f.answer.retryAfter = time.Duration(n) * time.Second
	}
	return f
}

// clientMayCause reports whether a client can have caused an answer of this status from an engine, or from a
// proxy in front of it. A client cannot cause the others: the router writes the credentials, the method and
// nearly all paths, and asks for no redirection and for no part of an answer. 429 and what is above 499 are
// told apart by [answered].
func clientMayCause(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge,
		http.StatusRequestURITooLong, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity,
		http.StatusRequestHeaderFieldsTooLarge:
		return true
	}
	return status >= http.StatusInternalServerError || status == http.StatusTooManyRequests
}

// misplaced is the failure of a leg whose answer has a status that no client can have caused: the replica
// refuses everybody, or answers for something else. The client is not told to show another key.
func misplaced(phase string, at replica.ID, status int) *failure {
	f := &failure{
		phase: phase, owner: phase, kind: "status_" + strconv.Itoa(status), at: at, retry: true, misplaced: true,
		answer: errorAnswer{status: http.StatusBadGateway},
		err: fmt.Errorf("it answered with status %d, which no request can cause: see what it wants, for instance "+
			"another api_key in its pool", status),
	}
	return f.saying("The " + phase + " replica refuses this router.")
}

// refusal reads an engine's own error answer.
func refusal(
	ctx context.Context, phase string, at *fleet.Endpoint, resp *engine.Response, limit int64,
) *failure {
	body, err := resp.ReadAll(limit)
	if err != nil {
		return legFailed(ctx, phase, at.Member.ID, err)
	}
	if !clientMayCause(resp.Status) {
		return misplaced(phase, at.Member.ID, resp.Status)
	}
	return answered(phase, at.Member.ID, resp.Status, body, resp.Header.Get("Content-Type"),
		resp.Header.Get("Retry-After"))
}

// errPhaseTimeout is the cause of a leg's context that ran out of time, in contrast to a client that left.
var errPhaseTimeout = errors.New("the phase took too long")

// errAnswerLate is the cause where an answer that is not streamed took longer than answers may. Clients ask
// for long ones, and nothing is seen of them before their end: whether the engine works is for its probes to
// say.
var errAnswerLate = fmt.Errorf("the answer is not complete: %w", errPhaseTimeout)

// errRestLate is the cause where the rest of an answer did not begin in time. Its queue, its prefill and all
// its retries had that time together: it says nothing of the engine that has the leg in the end.
var errRestLate = fmt.Errorf("the rest of an answer did not begin: %w", errPhaseTimeout)
