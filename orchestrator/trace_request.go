package orchestrator

import (
	"context"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tandem-router/tandem/orchestrator/observe"
)

// maxUserAgent is the greatest length of a client's User-Agent on a span.
const maxUserAgent = 256

// trace opens the request's span. It is a child of the client's span if the client sent a context.
func (q *request) trace(ctx context.Context) context.Context {
	if !q.spans.On() {
		q.span = trace.SpanFromContext(context.Background())
		return ctx
	}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(q.r.Header))
	scheme := "http"
	if q.r.TLS != nil {
		scheme = "https"
	}
	ctx, q.span = q.spans.Start(ctx, q.r.Method+" "+q.path, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(
			observe.AttrMethod.String(q.r.Method), observe.AttrRoute.String(q.path),
			observe.AttrPath.String(q.r.URL.Path),
			observe.AttrScheme.String(scheme), observe.AttrVersion.String(httpVersion(q.r)),
			observe.AttrID.String(q.id),
		))
	if agent := q.r.UserAgent(); agent != "" {
		q.span.SetAttributes(observe.AttrUserAgent.String(agent[:min(len(agent), maxUserAgent)]))
	}
	return ctx
}

// httpVersion returns 1.0, 1.1 or 2, in the form of the conventions.
func httpVersion(r *http.Request) string {
	if r.ProtoMajor >= 2 {
		return strconv.Itoa(r.ProtoMajor)
	}
	return strconv.Itoa(r.ProtoMajor) + "." + strconv.Itoa(r.ProtoMinor)
}

// traceFailure adds the failure to the request's span. A status of 4xx is the client's fault, and no error of
// a server. The conventions say so, and error rates made from spans should count what operators can correct.
func (q *request) traceFailure(f *failure) {
	if !q.spans.On() {
		return
	}
	q.span.SetAttributes(observe.AttrFailedPhase.String(string(f.phase)))
	if f.reply.status >= http.StatusInternalServerError {
		q.span.SetStatus(codes.Error, f.name())
		q.span.SetAttributes(observe.AttrErrorType.String(f.name()))
	}
}

// endTrace closes the request's span.
func (q *request) endTrace() {
	if !q.spans.On() {
		return
	}
	q.span.SetAttributes(observe.AttrMode.String(q.outcome.mode), observe.AttrOutcome.String(q.outcome.result))
	if q.key != nil {
		q.span.SetAttributes(observe.AttrKey.String(q.key.Name))
	}
	if q.session.label != "" {
		q.span.SetAttributes(observe.AttrSession.String(q.session.label))
	}
	if q.class != nil {
		q.span.SetAttributes(observe.AttrClass.String(q.class.Name))
	}
	if q.w.status != 0 {
		q.span.SetAttributes(observe.AttrStatus.Int(q.w.status))
	}
	q.span.End()
}
