// Package telemetry makes the logger, the tracer and the metrics registry, from configuration and from the
// standard OTEL_* environment.
package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// NewLogger returns a logger that writes lines of format text or json ("" is text) to w from level on ("" is
// info). A line with a context that has a span also has trace_id and span_id. The [slog.LevelVar] changes the
// level at any time.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, *slog.LevelVar, error) {
	v := new(slog.LevelVar)
	if err := SetLevel(v, level); err != nil {
		return nil, nil, err
	}
	o := &slog.HandlerOptions{Level: v}
	switch format {
	case "json":
		return slog.New(traced{slog.NewJSONHandler(w, o)}), v, nil
	case "", "text":
		return slog.New(traced{slog.NewTextHandler(w, o)}), v, nil
	}
	return nil, nil, fmt.Errorf("log format %q is neither text nor json", format)
}

// SetLevel sets v to debug, info, warn or error; "" is info.
func SetLevel(v *slog.LevelVar, level string) error {
	if level == "" {
		level = "info"
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return fmt.Errorf("log level %q is none of debug, info, warn, error", level)
	}
	v.Set(l)
	return nil
}

// traced adds the ids of the span in the context.
type traced struct{ slog.Handler }

func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if s := trace.SpanContextFromContext(ctx); s.IsValid() {
		r.AddAttrs(slog.String("trace_id", s.TraceID().String()), slog.String("span_id", s.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{h.Handler.WithAttrs(attrs)} }

func (h traced) WithGroup(name string) slog.Handler { return traced{h.Handler.WithGroup(name)} }
