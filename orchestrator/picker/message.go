package picker

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/tandem-router/tandem/orchestrator/picker/extprocv3"
)

// Names of the endpoint picker protocol 1.0, and of the headers that llm-d's routing sidecar reads.
const (
	balancer        = "envoy.lb" // namespace of metadata
	subsetHint      = "envoy.lb.subset_hint"
	subsetKey       = "x-gateway-destination-endpoint-subset"
	destinationKey  = "x-gateway-destination-endpoint"
	servedKey       = "x-gateway-destination-endpoint-served"
	prefillerHeader = "x-prefiller-host-port"
)

// routingHeaders would let a client choose engines, or forge the result of an engine. No engine gets these
// headers from a client.
var routingHeaders = []string{
	destinationKey, subsetKey, servedKey, prefillerHeader, "x-encoder-hosts-ports", "x-data-parallel-host-port",
	"x-data-parallel-rank", "x-kv-cache-source-host-port",
}

// request waits for the head of the request and returns the request. Its body is read from x.
func (x *Exchange) request() (*http.Request, error) {
	m, err := x.next(x.stream.Context())
	if err != nil {
		return nil, err
	}
	v, ok := m.GetRequest().(*extprocv3.ProcessingRequest_RequestHeaders)
	if !ok {
		return nil, errOrder
	}
	const want = extprocv3.BodySendMode_FULL_DUPLEX_STREAMED
	c := m.GetProtocolConfig() // older gateways do not tell
	if c != nil && (c.GetRequestBodyMode() != want || c.GetResponseBodyMode() != want) {
		return nil, errModes
	}
	x.bare = v.RequestHeaders.GetEndOfStream()
	x.ended = x.bare
	x.subset, x.restricted = subsetOf(m)
	return x.httpRequest(v.RequestHeaders)
}

// httpRequest makes a request of its head.
func (x *Exchange) httpRequest(head *extprocv3.HttpHeaders) (*http.Request, error) {
	r := &http.Request{
		Method: http.MethodGet, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		Body: x, ContentLength: -1,
	}
	target := "/"
	for _, h := range head.GetHeaders().GetHeaders() {
		switch key, value := h.GetKey(), valueOf(h); key {
		case ":method":
			r.Method = value
		case ":path":
			target = value
		case ":authority", "host":
			r.Host = value
		default:
			if !strings.HasPrefix(key, ":") {
				r.Header.Add(key, value)
			}
		}
	}
	var err error
	if r.URL, err = url.ParseRequestURI(target); err != nil {
		return nil, errTarget
	}
	r.RequestURI = target
	r.RemoteAddr, _, _ = strings.Cut(r.Header.Get("X-Forwarded-For"), ",")
	return r.WithContext(x.stream.Context()), nil
}

// valueOf returns the value of a header. Gateways of today write raw_value.
func valueOf(h *extprocv3.HeaderValue) string {
	if raw := h.GetRawValue(); len(raw) > 0 {
		return string(raw)
	}
	return h.GetValue()
}

// subsetOf returns the addresses that the gateway allows. given is false if the gateway allows all. Gateways
// write a list, or one text with commas.
func subsetOf(m *extprocv3.ProcessingRequest) (addresses []string, given bool) {
	hint := m.GetMetadataContext().GetFilterMetadata()[subsetHint].GetFields()[subsetKey]
	if hint == nil {
		return nil, false
	}
	texts := []string{hint.GetStringValue()}
	for _, v := range hint.GetListValue().GetValues() {
		texts = append(texts, v.GetStringValue())
	}
	for _, text := range texts {
		for address := range strings.SplitSeq(text, ",") {
			if address = strings.TrimSpace(address); address != "" {
				addresses = append(addresses, address)
			}
		}
	}
	return addresses, true
}

// head reads the head of an answer.
func (x *Exchange) head(m *extprocv3.ProcessingRequest, h *extprocv3.HttpHeaders) Part {
	p := Part{End: h.GetEndOfStream(), Status: http.StatusBadGateway}
	for _, h := range h.GetHeaders().GetHeaders() {
		switch h.GetKey() {
		case ":status":
			if n, err := strconv.Atoi(valueOf(h)); err == nil && n > 0 {
				p.Status = n
			}
		case "content-type":
			p.ContentType = valueOf(h)
		}
	}
	served := m.GetMetadataContext().GetFilterMetadata()[balancer].GetFields()[servedKey].GetStringValue()
	if served != x.to {
		p.Elsewhere = served
	}
	return p
}

// routed is the answer to the head of a request: the destination, in the header and in metadata.
func routed(to *Destination, address string, bare bool) *extprocv3.ProcessingResponse {
	m := &extprocv3.HeaderMutation{RemoveHeaders: routingHeaders}
	m.SetHeaders = append(m.SetHeaders, set(destinationKey, address), set("x-request-id", to.ID))
	if to.Prefill != "" {
		m.SetHeaders = append(m.SetHeaders, set(prefillerHeader, to.Prefill))
	}
	if to.Session != "" {
		m.SetHeaders = append(m.SetHeaders, set("x-session-id", to.Session))
	}
	if !bare {
		m.SetHeaders = append(m.SetHeaders, set("content-length", strconv.Itoa(len(to.Body))))
	}
	switch {
	case to.Key != "":
		m.SetHeaders = append(m.SetHeaders, set("authorization", "Bearer "+to.Key))
	case to.HideKey:
		m.RemoveHeaders = slices.Concat(routingHeaders, []string{"authorization", "x-api-key"})
	}
	return &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
			Response: &extprocv3.CommonResponse{HeaderMutation: m, ClearRouteCache: true},
		}},
		DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			balancer: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
				destinationKey: structpb.NewStringValue(address),
			}}),
		}},
	}
}

// set replaces a header.
func set(key, value string) *extprocv3.HeaderValueOption {
	return &extprocv3.HeaderValueOption{
		Header:       &extprocv3.HeaderValue{Key: key, RawValue: []byte(value)},
		AppendAction: extprocv3.HeaderAppendAction_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

func requestBody(body []byte, end bool) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: streamed(body, end)},
	}
}

func responseBody(body []byte, end bool) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: streamed(body, end)},
	}
}

func streamed(body []byte, end bool) *extprocv3.BodyResponse {
	return &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
		Mutation: &extprocv3.BodyMutation_StreamedResponse{
			StreamedResponse: &extprocv3.StreamedBodyResponse{Body: body, EndOfStream: end},
		},
	}}}
}

// answerHead is the answer to the head of an answer. Transfer params may go, so its length may change.
func answerHead() *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{
			Response: &extprocv3.CommonResponse{
				HeaderMutation: &extprocv3.HeaderMutation{RemoveHeaders: []string{"content-length"}},
			},
		}},
	}
}

func requestTrailers() *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}},
	}
}

func responseTrailers() *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}},
	}
}

// refusal keeps an answer of the router itself, for one message. It implements [http.ResponseWriter].
type refusal struct {
	x      *Exchange
	header http.Header
	status int // 0: nothing was written
	body   []byte
}

// Header implements [http.ResponseWriter].
func (r *refusal) Header() http.Header { return r.header }

// WriteHeader implements [http.ResponseWriter].
func (r *refusal) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

// Write implements [http.ResponseWriter].
func (r *refusal) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	r.body = append(r.body, b...)
	return len(b), nil
}

// Flush implements [http.Flusher]. The message goes out at the end.
func (r *refusal) Flush() {}

// SetReadDeadline bounds the next reads of the request's body, for [http.ResponseController].
func (r *refusal) SetReadDeadline(by time.Time) error {
	r.x.readBy = by
	return nil
}

// response is the message.
func (r *refusal) response() *extprocv3.ProcessingResponse {
	m := &extprocv3.HeaderMutation{}
	for key, values := range r.header {
		if key == "Content-Length" { // the gateway's to say
			continue
		}
		for _, value := range values {
			m.SetHeaders = append(m.SetHeaders, set(strings.ToLower(key), value))
		}
	}
	return &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extprocv3.ImmediateResponse{
			Status: &extprocv3.HttpStatus{Code: int32(r.status)}, Headers: m, Body: r.body, Details: "tandem",
		}},
	}
}
