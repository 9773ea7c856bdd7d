package picker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/tandem-router/tandem/internal/lab/memnet"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/picker/extprocv3"
)

// frozen is a connection of a gateway that can stand still: then nothing is read from it any more.
type frozen struct {
	net.Conn
	still *atomic.Bool
}

func (c frozen) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for c.still.Load() && err == nil {
		n, err = c.Conn.Read(b) // what came is lost
	}
	return n, err
}

// with runs story before a picker with these options, in fake time. still lets the gateway stand still.
func with(t *testing.T, o Options, story func(t *testing.T, c *grpc.ClientConn, still *atomic.Bool)) {
	synctest.Test(t, func(t *testing.T) {
		var network memnet.Net
		l, err := network.Listen("tcp", "picker:9002")
		if err != nil {
			t.Fatal(err)
		}
		o.MaxRequest = 1 << 20
		o.WriteTimeout = func() time.Duration { return 30 * time.Second }
		s := New(o)
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		var still atomic.Bool
		c, err := grpc.NewClient("passthrough:picker:9002",
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				conn, err := network.Dial(ctx, "tcp", addr)
				return frozen{conn, &still}, err
			}))
		if err != nil {
			t.Fatal(err)
		}
		story(t, c, &still)
		_ = c.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}

// open begins the stream of a request.
func open(t *testing.T, c *grpc.ClientConn) extprocv3.ExternalProcessor_ProcessClient {
	t.Helper()
	s, err := extprocv3.NewExternalProcessorClient(c).Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fields(all ...string) *extprocv3.HttpHeaders {
	h := &extprocv3.HttpHeaders{Headers: &extprocv3.HeaderMap{}}
	for i := 0; i < len(all); i += 2 {
		h.Headers.Headers = append(h.Headers.Headers,
			&extprocv3.HeaderValue{Key: all[i], RawValue: []byte(all[i+1])})
	}
	return h
}

var duplex = &extprocv3.ProtocolConfiguration{
	RequestBodyMode:  extprocv3.BodySendMode_FULL_DUPLEX_STREAMED,
	ResponseBodyMode: extprocv3.BodySendMode_FULL_DUPLEX_STREAMED,
}

func asked() *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{
		ProtocolConfig: duplex,
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: fields(":method", "POST",
			":path", "/v1/completions?x=1", ":authority", "models", "x-prefiller-host-port", "10.9.9.9:1",
			"authorization", "Bearer client")},
	}
}

func askedBody(body string, end bool) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestBody{
			RequestBody: &extprocv3.HttpBody{Body: []byte(body), EndOfStream: end},
		},
	}
}

func answered() *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_ResponseHeaders{
			ResponseHeaders: fields(":status", "200", "content-type", "text/plain"),
		},
		MetadataContext: &extprocv3.Metadata{FilterMetadata: map[string]*structpb.Struct{
			balancer: {Fields: map[string]*structpb.Value{servedKey: structpb.NewStringValue("10.0.0.3:8000")}},
		}},
	}
}

func answeredBody(body string, end bool) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_ResponseBody{
			ResponseBody: &extprocv3.HttpBody{Body: []byte(body), EndOfStream: end},
		},
	}
}

// tell sends messages of the gateway.
func tell(t *testing.T, s extprocv3.ExternalProcessor_ProcessClient, all ...*extprocv3.ProcessingRequest) {
	t.Helper()
	for _, m := range all {
		if err := s.Send(m); err != nil {
			t.Fatal(err)
		}
	}
}

// hear waits for a message of the picker.
func hear(t *testing.T, s extprocv3.ExternalProcessor_ProcessClient) *extprocv3.ProcessingResponse {
	t.Helper()
	m, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// echo picks one destination, replaces the body, and passes the answer on.
func echo(t *testing.T, to Destination) func(http.ResponseWriter, *http.Request, *Exchange) {
	return func(_ http.ResponseWriter, r *http.Request, x *Exchange) {
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
		if err := x.Send(&to); err != nil {
			t.Error(err)
		}
		for {
			part, err := x.Next(r.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if head := part; head.Status != 0 {
				head.Body = nil
				if want := "{200 text/plain 10.0.0.3:8000 [] false}"; fmt.Sprint(head) != want {
					t.Errorf("head %v, want %s", head, want)
				}
			}
			if err := x.Give(bytes.ToUpper(part.Body)); err != nil {
				t.Error(err)
			}
			if part.End {
				return
			}
		}
	}
}

// The messages of a request and its answer are those of the protocol. Bodies are cut; trailers stay behind
// them; nothing of a client's routing stays.
func TestTheProtocol(t *testing.T) {
	to := Destination{
		Decode: "10.0.0.2:8200", Prefill: "10.0.0.1:8000", ID: "id", Key: "engine",
		Session: "s1",
		Body:    bytes.Repeat([]byte("x"), 150_000),
	}
	o := Options{Pick: echo(t, to), SidecarPort: 8000}
	with(t, o, func(t *testing.T, c *grpc.ClientConn, _ *atomic.Bool) {
		s := open(t, c)
		tell(t, s, asked(), askedBody(`{"a":`, false), askedBody(`1}`, false), &extprocv3.ProcessingRequest{
			Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}},
		})
		m := hear(t, s)
		change := m.GetRequestHeaders().GetResponse().GetHeaderMutation()
		set := map[string]string{}
		for _, h := range change.GetSetHeaders() {
			if h.GetAppendAction() != extprocv3.HeaderAppendAction_OVERWRITE_IF_EXISTS_OR_ADD {
				t.Errorf("%s is not overwritten", h.GetHeader().GetKey())
			}
			set[h.GetHeader().GetKey()] = string(h.GetHeader().GetRawValue())
		}
		for key, want := range map[string]string{
			destinationKey: "10.0.0.2:8000", prefillerHeader: "10.0.0.1:8000", "x-request-id": "id",
			"content-length": "150000", "authorization": "Bearer engine", "x-session-id": "s1",
		} {
			if set[key] != want {
				t.Errorf("%s is %q, want %q", key, set[key], want)
			}
		}
		if gone := strings.Join(change.GetRemoveHeaders(), " "); !strings.Contains(gone, prefillerHeader) {
			t.Errorf("removed: %s", gone)
		}
		meta := m.GetDynamicMetadata().AsMap()[balancer].(map[string]any)
		if meta[destinationKey] != "10.0.0.2:8000" {
			t.Errorf("metadata %v", meta)
		}
		got := 0
		for got < len(to.Body) {
			part := hear(t, s).GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse()
			if n := len(part.GetBody()); n == 0 || n > mostInMessage || part.GetEndOfStream() {
				t.Fatalf("a part of %d bytes, end %v", n, part.GetEndOfStream())
			}
			got += len(part.GetBody())
		}
		if hear(t, s).GetRequestTrailers() == nil || got != len(to.Body) {
			t.Errorf("no trailers behind %d bytes", got)
		}
		tell(t, s, answered(), answeredBody("yes", false), answeredBody("", true))
		if hear(t, s).GetResponseHeaders() == nil {
			t.Error("no head of the answer")
		}
		for _, want := range []string{"YES", ""} {
			part := hear(t, s).GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse()
			if string(part.GetBody()) != want || part.GetEndOfStream() != (want == "") {
				t.Errorf("part %q, end %v", part.GetBody(), part.GetEndOfStream())
			}
		}
		if _, err := s.Recv(); err != io.EOF {
			t.Errorf("behind the answer: %v", err)
		}
	})
}

// A stream that does not reach the end of an answer ends with what the gateway has to know.
func TestEndsOfAStream(t *testing.T) {
	send := func(x *Exchange) { _ = x.Send(&Destination{Decode: "10.0.0.2:8000"}) }
	late := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusGatewayTimeout)
		_, _ = w.Write([]byte("{}"))
	}
	for name, c := range map[string]struct {
		pick func(w http.ResponseWriter, r *http.Request, x *Exchange)
		tell []*extprocv3.ProcessingRequest
		code codes.Code // OK: an immediate response with status 504
	}{
		"refused": {func(w http.ResponseWriter, _ *http.Request, _ *Exchange) { late(w) }, nil, codes.OK},
		"late before the answer": {func(w http.ResponseWriter, _ *http.Request, x *Exchange) {
			send(x)
			late(w)
		}, nil, codes.OK},
		"late in the answer": {func(w http.ResponseWriter, r *http.Request, x *Exchange) {
			send(x)
			_, _ = x.Next(r.Context())
			_ = x.Give(nil)
			late(w)
		}, []*extprocv3.ProcessingRequest{answered()}, codes.DeadlineExceeded},
		"left": {
			func(http.ResponseWriter, *http.Request, *Exchange) { panic(http.ErrAbortHandler) }, nil, codes.Canceled,
		},
		"panicked": {func(http.ResponseWriter, *http.Request, *Exchange) { panic("a bug") }, nil, codes.Internal},
		"the body does not come": {func(w http.ResponseWriter, r *http.Request, _ *Exchange) {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Second))
			if _, err := io.ReadAll(r.Body); err == nil {
				t.Error("a body")
			}
			late(w)
		}, []*extprocv3.ProcessingRequest{askedBody("{", false)}, codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			with(t, Options{Pick: c.pick}, func(t *testing.T, conn *grpc.ClientConn, _ *atomic.Bool) {
				s := open(t, conn)
				tell(t, s, append([]*extprocv3.ProcessingRequest{asked()}, c.tell...)...)
				var last *extprocv3.ProcessingResponse
				for {
					m, err := s.Recv()
					if err != nil {
						now := last.GetImmediateResponse()
						right := err == io.EOF && now.GetStatus().GetCode() == 504 && string(now.GetBody()) == "{}"
						if c.code != codes.OK {
							right = status.Code(err) == c.code && now == nil
						}
						if !right {
							t.Errorf("ended with %v behind %v", err, last)
						}
						return
					}
					last = m
				}
			})
		})
	}
}

// A gateway whose filter would hide bodies is right what to set; one that begins with a body is refused.
func TestAWrongGateway(t *testing.T) {
	picked := func(http.ResponseWriter, *http.Request, *Exchange) { t.Error("picked") }
	with(t, Options{Pick: picked}, func(t *testing.T, c *grpc.ClientConn, _ *atomic.Bool) {
		wrong := asked()
		wrong.ProtocolConfig = &extprocv3.ProtocolConfiguration{RequestBodyMode: extprocv3.BodySendMode_BUFFERED}
		for m, want := range map[*extprocv3.ProcessingRequest]string{
			wrong: "FULL_DUPLEX_STREAMED", askedBody("", true): "order",
		} {
			s := open(t, c)
			tell(t, s, m)
			if _, err := s.Recv(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	})
}

// A gateway that hides the head of an answer, or tells the head twice, brings no answer: the router could not
// tell what to take out of the answer. A status that is none counts as 502.
func TestAnAnswerWithoutAHead(t *testing.T) {
	follow := func(_ http.ResponseWriter, r *http.Request, x *Exchange) {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = x.Send(&Destination{Decode: "10.0.0.2:8000"})
		for {
			part, err := x.Next(r.Context())
			if err != nil {
				return
			}
			if part.Status != http.StatusOK && part.Status != http.StatusBadGateway {
				t.Errorf("status %d", part.Status)
			}
			_ = x.Give(part.Body)
		}
	}
	head := func(status string) *extprocv3.ProcessingRequest {
		return &extprocv3.ProcessingRequest{
			Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: fields(":status", status)},
		}
	}
	for name, c := range map[string]struct {
		answer []*extprocv3.ProcessingRequest
		heads  int
		want   string
	}{
		"body alone": {[]*extprocv3.ProcessingRequest{answeredBody("secret", true)}, 0, "processing_mode"},
		"trailers alone": {[]*extprocv3.ProcessingRequest{{
			Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}},
		}}, 0, "order"},
		"two heads": {[]*extprocv3.ProcessingRequest{head("200"), head("200")}, 1, "order"},
		"no status": {[]*extprocv3.ProcessingRequest{head("0"), head("0")}, 1, "order"},
	} {
		with(t, Options{Pick: follow}, func(t *testing.T, conn *grpc.ClientConn, _ *atomic.Bool) {
			s := open(t, conn)
			tell(t, s, asked(), askedBody("{}", true))
			hear(t, s) // the head and the body of the request
			hear(t, s)
			tell(t, s, c.answer...)
			for range c.heads {
				hear(t, s)
			}
			if m, err := s.Recv(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, %v, want %s", name, m, err, c.want)
			}
		})
	}
}

// A client whose path cannot be read gets 400. The gateway did nothing wrong.
func TestAPathThatCannotBeRead(t *testing.T) {
	picked := func(http.ResponseWriter, *http.Request, *Exchange) { t.Error("picked") }
	with(t, Options{Pick: picked}, func(t *testing.T, c *grpc.ClientConn, _ *atomic.Bool) {
		s := open(t, c)
		tell(t, s, &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
			RequestHeaders: fields(":method", "POST", ":path", "/v1/%zz"),
		}})
		if got := hear(t, s).GetImmediateResponse().GetStatus().GetCode(); got != http.StatusBadRequest {
			t.Errorf("status %d", got)
		}
	})
}

// A gateway that stands still without a word counts as gone within 15 s.
func TestASilentGatewayIsGone(t *testing.T) {
	var ended chan time.Duration
	wait := func(_ http.ResponseWriter, r *http.Request, x *Exchange) {
		_ = x.Send(&Destination{Decode: "10.0.0.2:8000"})
		began := time.Now()
		if _, err := x.Next(r.Context()); err != nil {
			ended <- time.Since(began)
		}
	}
	with(t, Options{Pick: wait}, func(t *testing.T, c *grpc.ClientConn, still *atomic.Bool) {
		ended = make(chan time.Duration, 1)
		s := open(t, c)
		tell(t, s, asked())
		hear(t, s)
		synctest.Wait()
		still.Store(true)
		if took := <-ended; took > pingAfter+pongAfter+time.Second {
			t.Errorf("gone after %v", took)
		}
	})
}

func TestHealthOfThePicker(t *testing.T) {
	var ready atomic.Bool
	with(t, Options{Ready: ready.Load}, func(t *testing.T, c *grpc.ClientConn, _ *atomic.Bool) {
		h := healthv1.NewHealthClient(c)
		for _, now := range []bool{false, true} {
			ready.Store(now)
			for _, service := range []string{
				"", "liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor",
			} {
				r, err := h.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
				serving := r.GetStatus() == healthv1.HealthCheckResponse_SERVING
				if err != nil || serving != (now || service == "liveness") {
					t.Errorf("%q is serving: %v, %v; ready %v", service, serving, err, now)
				}
			}
		}
	})
}

// A gateway that does not read a stream, since its client does not, holds a request no longer than the limit.
func TestAGatewayThatReadsNothing(t *testing.T) {
	var ended chan time.Duration
	pour := func(_ http.ResponseWriter, r *http.Request, x *Exchange) {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = x.Send(&Destination{Decode: "10.0.0.2:8000"})
		for {
			began := time.Now()
			part, err := x.Next(r.Context())
			if err == nil {
				err = x.Give(part.Body)
			}
			if err != nil {
				ended <- time.Since(began)
				return
			}
		}
	}
	with(t, Options{Pick: pour}, func(t *testing.T, c *grpc.ClientConn, _ *atomic.Bool) {
		ended = make(chan time.Duration, 1)
		s := open(t, c)
		tell(t, s, asked(), askedBody("{}", true), answered())
		go func() {
			for s.Send(answeredBody(strings.Repeat("x", 50_000), false)) == nil {
			}
		}()
		select {
		case took := <-ended:
			if took != 30*time.Second {
				t.Errorf("ended after %v", took)
			}
		case <-time.After(time.Minute):
			t.Error("the request is held on")
		}
		for {
			if _, err := s.Recv(); err != nil {
				if !strings.Contains(err.Error(), "client_write") {
					t.Error(err)
				}
				return
			}
			if t.Failed() {
				return
			}
		}
	})
}

// A hint is a list or a text with commas. It names destinations; of prefill engines the host counts.
func TestSubsets(t *testing.T) {
	list, err := structpb.NewValue([]any{"10.0.0.2:8000", "[::1]:8000, 10.0.0.3:8000"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		hint *structpb.Value
		want string
	}{
		"none":  {nil, "d2 d3 d6 p2 p9"},
		"list":  {list, "d2 d3 d6 p2"},
		"text":  {structpb.NewStringValue(" 10.0.0.2:8000,,"), "d2 p2"},
		"empty": {structpb.NewStringValue(""), ""},
		"other": {structpb.NewStringValue("10.0.0.2:8200"), "p2"},
	} {
		m := asked()
		if c.hint != nil {
			m.MetadataContext = &extprocv3.Metadata{FilterMetadata: map[string]*structpb.Struct{
				subsetHint: {Fields: map[string]*structpb.Value{subsetKey: c.hint}},
			}}
		}
		x := &Exchange{sidecar: 8000}
		x.subset, x.restricted = subsetOf(m)
		var got []string
		for _, r := range []struct {
			name, address string
			role          replica.Role
		}{
			{"d2", "10.0.0.2:8200", replica.Decode},
			{"d3", "10.0.0.3:8200", replica.Decode},
			{"d6", "[::1]:8200", replica.Decode},
			{"named", "engine:8200", replica.Decode},
			{"p2", "10.0.0.2:8100", replica.Prefill},
			{"p9", "10.0.0.9:8000", replica.Prefill},
		} {
			if x.Allows(r.role, r.address) {
				got = append(got, r.name)
			}
		}
		if all := strings.Join(got, " "); all != c.want {
			t.Errorf("%s: allowed %q, want %q", name, all, c.want)
		}
	}
}
