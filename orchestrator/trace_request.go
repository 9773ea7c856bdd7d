package orchestrator

import (
	"context"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// maxUserAgent bounds what a client says of itself on a span.
const maxUserAgent = 256

// trace opens the request's span, a child of the client's where it sent a context.
func (q *request) trace(ctx context.Context) context.Context {
	if !q.o.traced {
		q.span = trace.SpanFromContext(context.Background())
		return ctx
	}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(q.r.Header))
	scheme := "http"
	if q.r.TLS != nil {
		scheme = "https"
	}
	ctx, q.span = q.o.tracer.Start(ctx, q.r.Method+" "+q.path, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(
			attrMethod.String(q.r.Method), attrRoute.String(q.path), attrPath.String(q.r.URL.Path),
			attrScheme.String(scheme), attrVersion.String(httpVersion(q.r)), attrID.String(q.id),
		))
	if agent := q.r.UserAgent(); agent != "" {
		q.span.SetAttributes(attrUserAgent.String(agent[:min(len(agent), maxUserAgent)]))
	}
	return ctx
}

// httpVersion is 1.0, 1.1 or 2, as the conventions write them.
func httpVersion(r *http.Request) string {
	if r.ProtoMajor >= 2 {
		return strconv.Itoa(r.ProtoMajor)
	}
	return strconv.Itoa(r.ProtoMajor) + "." + strconv.Itoa(r.ProtoMinor)
}

// traceFailure says on the request's span what went wrong. A status of 4xx is the client's doing, and no
// error of a server: so the conventions have it, and error rates made of spans count what operators can mend.
func (q *request) traceFailure(f *failure) {
	if !q.o.traced {
		return
	}
	q.span.SetAttributes(attrFailedPhase.String(f.phase))
	if f.answer.status >= http.StatusInternalServerError {
		q.span.SetStatus(codes.Error, f.name())
		q.span.SetAttributes(attrErrorType.String(f.name()))
	}
}

// endTrace closes the request's span.
func (q *request) endTrace() {
	if !q.o.traced {
		return
	}
	q.span.SetAttributes(attrMode.String(q.outcome.mode), attrOutcome.String(q.outcome.result))
	if q.w.status != 0 {
		q.span.SetAttributes(attrStatus.Int(q.w.status))
	}
	q.span.End()
}
