package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// This file decides which failure the end of a leg is: an error, or an engine's own error answer.

// legFailed returns the failure for an error of a leg that got no answer.
func legFailed(ctx context.Context, in phase, at replica.ID, err error) *failure {
	if f := nobodys(ctx, in, at, err); f != nil {
		return f
	}
	if f := givenUp(ctx, in, at, err); f != nil {
		return f
	}
	if ctx.Err() != nil {
		return goneFailure(ctx, site{phase: in, cutAt: at, unsent: engine.NotSent(err)})
	}
	kind := kindBroken
	if engine.NotSent(err) {
		kind = kindUnreachable
	}
	return refuse(kind, site{phase: in, at: at, err: err, unsent: engine.NotSent(err)})
}

// givenUp returns the failure of a leg that this router ended because its time was over or because a replica
// stood still. It returns nil for all other legs.
func givenUp(ctx context.Context, in phase, at replica.ID, err error) *failure {
	cause, unsent := context.Cause(ctx), engine.NotSent(err)
	if errors.Is(cause, errPhaseTimeout) {
		return refuse(kindTimeout, site{phase: in, at: at, err: err, unsent: unsent})
	}
	if still, is := errors.AsType[*unresponsive](cause); is {
		kind := kindSilent
		if still.source {
			kind = kindSource
		}
		return refuse(kind, site{phase: still.phase, at: still.at, err: still, unsent: unsent})
	}
	if between, is := errors.AsType[*stuck](cause); is {
		return refuse(kindStuck, site{
			phase: in, at: between.pair.Decode, source: between.pair.Prefill, err: between, unsent: unsent,
		})
	}
	return nil
}

// nobodys returns the failure of a leg if a limit of the router or the router itself caused the error, and no
// engine. It returns nil for all other errors. Errors that a client can cause by its request are never blamed
// on an engine.
func nobodys(ctx context.Context, in phase, at replica.ID, err error) *failure {
	var kind failureKind
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errRestLate):
		return goneFailure(ctx, site{phase: in, unsent: engine.NotSent(err)})
	case errors.Is(cause, errAnswerLate):
		kind = kindAnswerTimeout
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, engine.ErrRequest):
		kind = kindUnsendable
	case errors.Is(err, fleet.ErrPlain):
		kind = kindUnsplit
	case errors.Is(err, openai.ErrDiverged):
		kind = kindDiverged
	case errors.Is(err, engine.ErrTooLarge), errors.Is(err, openai.ErrEventTooLong):
		kind = kindAnswerTooLarge
	default:
		return nil
	}
	return refuse(kind, site{phase: in, err: fmt.Errorf("%s: %w", at, err), unsent: engine.NotSent(err)})
}

// goneFailure returns the failure of a request whose client left or whose router stops. The site says at most
// where the request was.
func goneFailure(ctx context.Context, s site) *failure {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errStopped):
		return refuse(kindStopped, s)
	case errors.Is(cause, errPhaseTimeout):
		return refuse(kindRestLate, s)
	default:
		s.err = cause
		return leftBy(s)
	}
}

// engineAnswer returns the failure for an engine's own error answer.
func engineAnswer(in phase, at replica.ID, resp *engine.Response, body []byte) *failure {
	if !clientMayCause(resp.Status) {
		return misplaced(in, at, resp.Status)
	}
	s := site{phase: in, at: at, status: resp.Status}
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
		s.retryAfter = time.Duration(n) * time.Second
	}
	return answered(kindStatus, s, body, resp.Header.Get("Content-Type"))
}

// clientMayCause reports whether a client can have caused an answer of this status from an engine, or from a
// proxy before the engine. A client cannot cause other statuses: the router writes the credentials, the
// method and nearly all paths, and asks for no redirection and no part of an answer.
func clientMayCause(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge,
		http.StatusRequestURITooLong, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity,
		http.StatusRequestHeaderFieldsTooLarge:
		return true
	}
	return status >= http.StatusInternalServerError || status == http.StatusTooManyRequests
}

// misplaced returns the failure of a leg whose answer has a status that no client can have caused: the
// replica refuses all requests, or another program answers. The client is not asked for another key.
func misplaced(in phase, at replica.ID, status int) *failure {
	return refuse(kindMisplaced, site{
		phase: in, at: at, status: status,
		err: fmt.Errorf("it answered with status %d, which no request can cause: see what it wants, for instance "+
			"another api_key in its pool", status),
	})
}

// refusal reads an engine's own error answer.
func refusal(
	ctx context.Context, in phase, at *fleet.Endpoint, resp *engine.Response, limit int64,
) *failure {
	body, err := resp.ReadAll(limit)
	if err != nil {
		return legFailed(ctx, in, at.Member.ID, err)
	}
	return engineAnswer(in, at.Member.ID, resp, body)
}

// formerEra returns the failure of an answer that may rest on wrong blocks. The request was sent in era sent.
// Since then this router or another one may have found wrong blocks in the engine's cache. The client has
// seen nothing of the answer, so it is dropped and made again without the cache. formerEra returns nil if the
// era has not changed.
func formerEra(in phase, at *fleet.Endpoint, sent uint32) *failure {
	if at.CacheEpoch() <= sent {
		return nil
	}
	return refuse(kindFormerEra, site{phase: in, at: at.Member.ID})
}

// leftPool returns the failure for a replica that left while it was being chosen.
func leftPool(role replica.Role, id replica.ID) *failure {
	return refuse(kindLeft, site{phase: phase(role.String()), at: id})
}
