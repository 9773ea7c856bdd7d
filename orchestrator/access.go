package orchestrator

import (
	"cmp"
	"log/slog"
	"time"
)

// maxPath is the longest path of a client that the access log shows.
const maxPath = 256

// logAccess writes the log line of a request that has ended (log.access). The line has no text of the prompt
// or the answer. status is that of the outcome, as in the log and in records. sent is the status that the
// client got before, if it differs: the 200 of a stream that broke off, or none if the client left.
func logAccess(q *request) {
	path := q.path
	if path == otherPath {
		path = q.r.URL.Path[:min(len(q.r.URL.Path), maxPath)]
	}
	status := cmp.Or(q.outcome.status, q.w.status)
	attrs := append(make([]slog.Attr, 0, 21),
		slog.String("id", q.id), slog.String("client_id", q.clientID), slog.String("client", q.r.RemoteAddr),
		slog.String("key", q.keyName()), slog.String("session", q.session.label),
		slog.String("method", q.r.Method), slog.String("path", path), slog.Int("status", status),
		slog.String("outcome", cmp.Or(q.outcome.result, "ok")), slog.String("mode", q.outcome.mode),
		slog.Float64("total_ms", ms(time.Since(q.start))),
	)
	if q.class != nil {
		attrs = append(attrs, slog.String("class", q.class.Name))
	}
	if sent := q.w.status; sent != status && sent != 0 {
		attrs = append(attrs, slog.Int("sent", sent))
	}
	if r := q.outcome.rec; r != nil {
		attrs = append(attrs,
			slog.String("alias", r.Alias), slog.String("model", r.Model),
			slog.String("prefill", r.Prefill), slog.String("decode", r.Decode),
		)
		if r.Prompt > 0 { // else nobody knows
			attrs = append(attrs, slog.Int("prompt_tokens", r.Prompt))
		}
		attrs = append(attrs,
			slog.Int("output_tokens", r.Output), slog.Int("cached_tokens", r.Delivered),
			slog.Float64("queue_ms", r.Phases.Queue), slog.Float64("first_ms", r.Phases.First),
			slog.Int("attempts", r.Attempts),
		)
	}
	q.log.LogAttrs(q.r.Context(), slog.LevelInfo, "request", attrs...)
}

// logFailure logs a failure: the request, the place and the cause.
func logFailure(q *request, f *failure) {
	attrs := []any{
		"id", q.id, "client_id", q.clientID, "key", q.keyName(), "session", q.session.label, "path", q.path,
		"phase", string(f.phase),
		"replica", string(cmp.Or(f.at, f.cutAt)), "kind", f.name(), "status", f.reply.status, "error", f.cause(),
	}
	if f.notRetried != "" {
		attrs = append(attrs, "not_retried", f.notRetried)
	}
	if f.notContinued != "" {
		attrs = append(attrs, "not_continued", f.notContinued)
	}
	if q.w.stream {
		attrs = append(attrs, "sent", q.w.status) // the status that the client got before
		q.log.Warn("stream broke off", attrs...)
		return
	}
	q.log.Warn("request failed", attrs...)
}
