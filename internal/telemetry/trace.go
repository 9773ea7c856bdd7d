package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/klog/v2"
)

// TraceOptions says where spans go. An empty Exporter leaves that to the environment: OTEL_SDK_DISABLED,
// OTEL_TRACES_EXPORTER (otlp, console, none), OTEL_EXPORTER_OTLP_[TRACES_]ENDPOINT, _PROTOCOL (grpc,
// http/protobuf), _HEADERS, _TIMEOUT, _CERTIFICATE and so on, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES,
// OTEL_TRACES_SAMPLER[_ARG], OTEL_BSP_*. Where that says nothing either, there are no spans.
type TraceOptions struct {
	Exporter string // "" asks the environment | otlp | stdout | file | none
	File     string // for file: a JSON line a span is appended
	// For otlp: URL of the collector, instead of the environment's; port 4317 is taken for gRPC where no
	// protocol is set.
	Endpoint string
	// Share of the traces that begin here which are kept, 0 (none) to 1; OTEL_TRACES_SAMPLER wins.
	Sample  float64
	Version string    // of the binary, for service.version
	Stdout  io.Writer // for stdout; nil is os.Stdout
}

// OnStdout reports whether spans go to standard output, which then is theirs alone: each line is a span.
func (o TraceOptions) OnStdout() bool {
	written := func(name string) bool { return name == "stdout" || name == "console" }
	return slices.ContainsFunc(o.exporters(), written)
}

// flushFor bounds how long a shutdown may wait for a collector.
const flushFor = 5 * time.Second

// SetupTracing builds a tracer provider; shutdown sends the remaining spans, within ctx and 5 seconds at
// most, and must be called once. Without a configured destination the provider is a [noop.TracerProvider],
// which costs nothing. An unreachable collector is no error: spans are dropped until it answers.
func SetupTracing(
	ctx context.Context, o TraceOptions,
) (provider trace.TracerProvider, shutdown func(context.Context) error, err error) {
	nothing := func(context.Context) error { return nil }
	sinks, err := o.sinks(ctx)
	if err != nil || len(sinks) == 0 {
		return noop.NewTracerProvider(), nothing, err
	}
	options, err := o.providerOptions(ctx)
	if err != nil {
		return noop.NewTracerProvider(), nothing, errors.Join(err, closeAll(ctx, sinks))
	}
	for _, s := range sinks {
		options = append(options, sdktrace.WithBatcher(s, s.batch...)) // starts a goroutine, so no error may follow
	}
	p := sdktrace.NewTracerProvider(options...)
	return p, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, flushFor)
		defer cancel()
		return p.Shutdown(ctx)
	}, nil
}

// sink is an exporter with its destination and its batching.
type sink struct {
	sdktrace.SpanExporter
	file  *os.File // nil where there is none
	batch []sdktrace.BatchSpanProcessorOption
}

// Shutdown closes the file after the exporter.
func (s sink) Shutdown(ctx context.Context) error {
	err := s.SpanExporter.Shutdown(ctx)
	if s.file != nil {
		err = errors.Join(err, s.file.Close())
	}
	return err
}

func closeAll(ctx context.Context, sinks []sink) error {
	var all []error
	for _, s := range sinks {
		all = append(all, s.Shutdown(ctx))
	}
	return errors.Join(all...)
}

// LogErrors sends the complaints of OpenTelemetry and of Kubernetes' client to log, such as a collector that
// cannot be reached. It sets their global handlers: call it once, from main.
func LogErrors(log *slog.Logger) {
	klog.SetSlogLogger(log)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("tracing failed", "error", err) }))
}

// sinks opens every exporter that is named, none when there is nothing to trace.
func (o TraceOptions) sinks(ctx context.Context) ([]sink, error) {
	var open []sink
	for _, name := range o.exporters() {
		s, err := o.sink(ctx, name)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("tracing: %w", err), closeAll(ctx, open))
		}
		open = append(open, s)
	}
	return open, nil
}

func (o TraceOptions) sink(ctx context.Context, name string) (sink, error) {
	soon := []sdktrace.BatchSpanProcessorOption{sdktrace.WithBatchTimeout(time.Second)}
	switch name {
	case "otlp":
		e, err := o.otlp(ctx)
		return sink{e, nil, nil}, err
	case "console", "stdout":
		e, err := stdouttrace.New(stdouttrace.WithWriter(cmp.Or[io.Writer](o.Stdout, os.Stdout)))
		return sink{e, nil, soon}, err
	case "file":
		f, err := openSpans(o.File)
		if err != nil {
			return sink{}, fmt.Errorf("tracing.file: %w; name a file that can be written", err)
		}
		e, err := stdouttrace.New(stdouttrace.WithWriter(f))
		return sink{e, f, soon}, err
	}
	return sink{}, fmt.Errorf("there is no exporter %q; choose otlp, console or none", name)
}

// openSpans opens the file that spans are appended to. It refuses a pipe, which would block without a
// reader.
func openSpans(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.Mode()&fs.ModeNamedPipe == 0 {
		return f, nil
	}
	return nil, errors.Join(fmt.Errorf("%s is a pipe", name), f.Close())
}

// exporters are the names of the exporters to open, none where tracing is off.
func (o TraceOptions) exporters() []string {
	if off, _ := strconv.ParseBool(os.Getenv("OTEL_SDK_DISABLED")); off {
		return nil
	}
	var all []string
	for name := range strings.SplitSeq(o.names(), ",") {
		if name = strings.TrimSpace(name); name != "" && name != "none" {
			all = append(all, name)
		}
	}
	return all
}

// names of the exporters, separated by commas. An OTLP endpoint in the environment without
// OTEL_TRACES_EXPORTER means otlp.
func (o TraceOptions) names() string {
	if name := cmp.Or(o.Exporter, os.Getenv("OTEL_TRACES_EXPORTER")); name != "" {
		return name
	}
	if cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")) != "" {
		return "otlp"
	}
	return ""
}

func (o TraceOptions) otlp(ctx context.Context) (sdktrace.SpanExporter, error) {
	switch protocol := o.protocol(); protocol {
	case "grpc":
		var options []otlptracegrpc.Option
		if o.Endpoint != "" {
			options = append(options, otlptracegrpc.WithEndpointURL(o.Endpoint))
		}
		return otlptracegrpc.New(ctx, options...)
	case "http/protobuf":
		var options []otlptracehttp.Option
		if o.Endpoint != "" {
			options = append(options, otlptracehttp.WithEndpointURL(withPath(o.Endpoint)))
		}
		return otlptracehttp.New(ctx, options...)
	default:
		return nil, fmt.Errorf("there is no OTLP protocol %q; choose grpc or http/protobuf", protocol)
	}
}

// protocol is what the environment says, else what the usual ports mean, else the specification's default.
func (o TraceOptions) protocol() string {
	if p := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"),
		os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL")); p != "" {
		return p
	}
	endpoint := cmp.Or(o.Endpoint, os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
		os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	if u, err := url.Parse(endpoint); err == nil && u.Port() == "4317" {
		return "grpc"
	}
	return "http/protobuf"
}

// withPath adds the path at which collectors take traces over HTTP, where the URL has none.
func withPath(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || u.Path != "" && u.Path != "/" {
		return endpoint
	}
	return u.JoinPath("v1/traces").String()
}

func (o TraceOptions) providerOptions(ctx context.Context) ([]sdktrace.TracerProviderOption, error) {
	r, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "tandem"),
			attribute.String("service.version", o.Version)),
		resource.WithFromEnv(), // later ones win
	)
	if err != nil {
		return nil, fmt.Errorf("tracing: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	options := []sdktrace.TracerProviderOption{sdktrace.WithResource(r)}
	if os.Getenv("OTEL_TRACES_SAMPLER") == "" {
		options = append(options, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(o.Sample))))
	}
	return options, nil
}
