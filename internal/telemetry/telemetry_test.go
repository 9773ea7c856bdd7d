package telemetry

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "OTEL_") {
			os.Unsetenv(name)
		}
	}
	goleak.VerifyTestMain(m)
}

func TestLogger(t *testing.T) {
	var out bytes.Buffer
	log, level, err := NewLogger(&out, "warn", "json")
	if err != nil {
		t.Fatal(err)
	}
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	ctx := trace.ContextWithSpanContext(t.Context(), span)
	log.InfoContext(ctx, "not shown")
	if err := SetLevel(level, "info"); err != nil {
		t.Fatal(err)
	}
	log.With("a", 1).InfoContext(ctx, "shown")
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v in %q", err, out.String())
	}
	if line["msg"] != "shown" || line["trace_id"] != span.TraceID().String() ||
		line["span_id"] != span.SpanID().String() || line["a"] != 1.0 {
		t.Errorf("line is %v", line)
	}
}

func TestLoggerRefuses(t *testing.T) {
	for _, c := range [][2]string{{"loud", "text"}, {"info", "xml"}} {
		if _, _, err := NewLogger(io.Discard, c[0], c[1]); err == nil {
			t.Errorf("%v was accepted", c)
		}
	}
}

func TestRegistry(t *testing.T) {
	families, err := NewRegistry("v1").Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	for _, want := range []string{"tandem_build_info", "go_goroutines", "process_cpu_seconds_total"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s in %v", want, names)
		}
	}
}

func TestNothingConfiguredCostsNothing(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"nothing":  {},
		"none":     {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
		"disabled": {"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range env {
				t.Setenv(k, v)
			}
			p, shutdown, err := SetupTracing(t.Context(), TraceOptions{Sample: 1})
			if err != nil {
				t.Fatal(err)
			}
			if _, silent := p.(noop.TracerProvider); !silent {
				t.Errorf("provider is %T", p)
			}
			if err := shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTracingRefuses(t *testing.T) {
	for _, c := range []struct {
		name, variable, value string
		options               TraceOptions
	}{
		{"exporter", "OTEL_TRACES_EXPORTER", "zipkin", TraceOptions{}},
		{"protocol", "OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", TraceOptions{Exporter: "otlp"}},
		{"attributes", "OTEL_RESOURCE_ATTRIBUTES", "no equals sign", TraceOptions{Exporter: "stdout"}},
		{"file", "", "", TraceOptions{Exporter: "file", File: filepath.Join(t.TempDir(), "none", "spans")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.variable != "" {
				t.Setenv(c.variable, c.value)
			}
			if _, _, err := SetupTracing(t.Context(), c.options); err == nil {
				t.Error("was accepted")
			}
		})
	}
}

// spanTo traces one span by o and returns when it has been flushed.
func spanTo(t *testing.T, o TraceOptions) {
	t.Helper()
	o.Sample = 1
	p, shutdown, err := SetupTracing(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	_, span := p.Tracer("test").Start(t.Context(), "plan")
	span.End()
	if err := shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestFileGetsALineASpan(t *testing.T) {
	file := filepath.Join(t.TempDir(), "spans.jsonl")
	t.Setenv("OTEL_SERVICE_NAME", "router-7")
	for range 2 { // the second one appends
		spanTo(t, TraceOptions{Exporter: "file", File: file, Version: "v1"})
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	n := 0
	for ; lines.Scan(); n++ {
		var span struct{ Name string }
		if err := json.Unmarshal(lines.Bytes(), &span); err != nil || span.Name != "plan" {
			t.Errorf("line %q: %v", lines.Text(), err)
		}
		if !strings.Contains(lines.Text(), "router-7") {
			t.Errorf("no service name in %q", lines.Text())
		}
	}
	if n != 2 {
		t.Errorf("got %d lines, want 2", n)
	}
}

// A pipe is refused at once: opening it would wait for a reader.
func TestSpansRefuseAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = SetupTracing(t.Context(), TraceOptions{Exporter: "file", File: pipe})
	if err == nil || !strings.Contains(err.Error(), "tracing.file: ") ||
		!strings.Contains(err.Error(), "is a pipe") {
		t.Errorf("with a reader: %v", err)
	}
	reader.Close()
	if _, _, err := SetupTracing(t.Context(), TraceOptions{Exporter: "file", File: pipe}); err == nil {
		t.Error("it was accepted without a reader")
	}
}

func TestStdout(t *testing.T) {
	var out bytes.Buffer
	spanTo(t, TraceOptions{Exporter: "stdout", Stdout: &out})
	if !strings.Contains(out.String(), `"plan"`) {
		t.Errorf("got %q", out.String())
	}
}

func TestOnStdout(t *testing.T) {
	for _, c := range []struct {
		exporter, variable, disabled string
		want                         bool
	}{
		{"stdout", "", "", true},
		{"", "otlp, console", "", true},
		{"file", "console", "", false},
		{"stdout", "", "true", false},
		{"", "", "", false},
	} {
		t.Setenv("OTEL_TRACES_EXPORTER", c.variable)
		t.Setenv("OTEL_SDK_DISABLED", c.disabled)
		if got := (TraceOptions{Exporter: c.exporter}).OnStdout(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestSamplerOfTheEnvironmentWins(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	var out bytes.Buffer
	spanTo(t, TraceOptions{Exporter: "stdout", Stdout: &out})
	if out.Len() > 0 {
		t.Errorf("got %q", out.String())
	}
}

// traces is a collector for both protocols.
type traces struct {
	collector.UnimplementedTraceServiceServer
	got chan string // names of spans with the service's name
}

func (c *traces) take(r *collector.ExportTraceServiceRequest) {
	for _, rs := range r.ResourceSpans {
		service := ""
		for _, a := range rs.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				c.got <- service + " " + s.Name
			}
		}
	}
}

func (c *traces) Export(
	_ context.Context, r *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	c.take(r)
	return &collector.ExportTraceServiceResponse{}, nil
}

func (c *traces) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var m collector.ExportTraceServiceRequest
	if r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &m) != nil {
		http.Error(w, "not a trace", http.StatusNotFound)
		return
	}
	c.take(&m)
}

// collect starts a collector and returns its URLs for gRPC and HTTP.
func collect(t *testing.T) (c *traces, grpcURL, httpURL string) {
	t.Helper()
	c = &traces{got: make(chan string, 10)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	collector.RegisterTraceServiceServer(g, c)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	h := httptest.NewServer(c)
	t.Cleanup(func() {
		h.Close()
		g.Stop()
		<-done
	})
	return c, "http://" + l.Addr().String(), h.URL
}

func TestOTLP(t *testing.T) {
	for _, row := range []struct {
		name    string
		options func(grpcURL, httpURL string) TraceOptions
		env     func(grpcURL, httpURL string) map[string]string
	}{
		{"environment, grpc", nil, func(g, _ string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": g, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
		}},
		{"environment, http", nil, func(_, h string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": h, "OTEL_TRACES_EXPORTER": "otlp"}
		}},
		{"configured, grpc", func(g, _ string) TraceOptions {
			return TraceOptions{Exporter: "otlp", Endpoint: g}
		}, func(_, _ string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}
		}},
		{
			"configured, http", func(_, h string) TraceOptions { return TraceOptions{Exporter: "otlp", Endpoint: h} },
			nil,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, g, h := collect(t)
			t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=mine,rack=a")
			var o TraceOptions
			if row.options != nil {
				o = row.options(g, h)
			}
			if row.env != nil {
				for k, v := range row.env(g, h) {
					t.Setenv(k, v)
				}
			}
			spanTo(t, o)
			select {
			case got := <-c.got:
				if got != "mine plan" {
					t.Errorf("collector got %q", got)
				}
			default:
				t.Error("the collector got nothing")
			}
		})
	}
}

func TestProtocol(t *testing.T) {
	for endpoint, want := range map[string]string{
		"http://c:4317": "grpc", "http://c:4318": "http/protobuf", "https://c": "http/protobuf",
		"": "http/protobuf",
	} {
		if got := (TraceOptions{Endpoint: endpoint}).protocol(); got != want {
			t.Errorf("protocol of %q is %q, want %q", endpoint, got, want)
		}
	}
}

// A collector that hangs does not hold up the end.
func TestShutdownEndsWithItsContext(t *testing.T) {
	hang := make(chan struct{})
	h := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	defer h.Close()
	defer close(hang)
	p, shutdown, err := SetupTracing(t.Context(), TraceOptions{Exporter: "otlp", Endpoint: h.URL, Sample: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, span := p.Tracer("test").Start(t.Context(), "plan")
	span.End()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := shutdown(ctx); err == nil {
		t.Error("shutdown says that all was sent")
	}
}
