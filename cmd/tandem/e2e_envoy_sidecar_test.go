//go:build linux && envoy

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"
)

// sidecar replaces llm-d's routing sidecar with its connector nixlv2. It runs in the pod of a decode
// engine. With the header x-prefiller-host-port it sends the body to that prefill engine for one token,
// and then to its own engine with the returned kv_transfer_params.
type sidecar struct {
	engine *httputil.ReverseProxy

	mu   sync.Mutex // guards the following
	seen []http.Header
}

// newSidecar serves the sidecar of the engine at an address.
func newSidecar(t *testing.T, engine, address string) *sidecar {
	t.Helper()
	to, err := url.Parse(engine)
	if err != nil {
		t.Fatal(err)
	}
	s := &sidecar{engine: httputil.NewSingleHostReverseProxy(to)}
	s.engine.FlushInterval = -1
	s.engine.ErrorLog = nil
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: s}}
	server.Start()
	t.Cleanup(server.Close)
	return s
}

// ServeHTTP serves a request of the gateway.
func (s *sidecar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.seen = append(s.seen, r.Header.Clone())
	s.mu.Unlock()
	prefiller := r.Header.Get("X-Prefiller-Host-Port")
	r.Header.Del("X-Prefiller-Host-Port")
	splits := r.URL.Path == "/v1/chat/completions" || r.URL.Path == "/v1/completions"
	if prefiller == "" || !splits {
		s.engine.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	var fields map[string]any
	if err == nil {
		err = json.Unmarshal(body, &fields)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	id := fmt.Sprintf("%p", &fields)
	status, params, answer := s.prefill(r, prefiller, id, fields)
	if status >= http.StatusInternalServerError { // the decode engine computes the prompt itself
		s.decode(w, r, body)
		return
	}
	if status >= http.StatusBadRequest {
		w.WriteHeader(status)
		_, _ = w.Write(answer)
		return
	}
	fields["kv_transfer_params"] = params
	second, _ := json.Marshal(fields)
	r.Header.Add("X-Request-Id", id)
	s.decode(w, r, second)
}

// prefill sends leg 1.
func (s *sidecar) prefill(
	r *http.Request, to, id string, fields map[string]any,
) (status int, params any, answer []byte) {
	first := maps.Clone(fields)
	first["kv_transfer_params"] = map[string]any{
		"do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": nil, "remote_block_ids": nil,
		"remote_host": nil, "remote_port": nil,
	}
	first["stream"] = false
	first["max_tokens"], first["max_completion_tokens"] = 1, 1
	delete(first, "stream_options")
	raw, _ := json.Marshal(first)
	url := "http://" + to + r.URL.Path
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, url, bytes.NewReader(raw))
	if err != nil {
		return http.StatusBadGateway, nil, nil
	}
	req.Header = r.Header.Clone()
	req.Header.Del("Content-Length")
	req.Header.Add("X-Request-Id", id)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return http.StatusBadGateway, nil, nil
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	var said struct {
		Params any `json:"kv_transfer_params"`
	}
	if err != nil || resp.StatusCode == http.StatusOK && json.Unmarshal(answer, &said) != nil {
		return http.StatusBadGateway, nil, nil
	}
	return resp.StatusCode, said.Params, answer
}

// decode sends leg 2.
func (s *sidecar) decode(w http.ResponseWriter, r *http.Request, body []byte) {
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", fmt.Sprint(len(body)))
	s.engine.ServeHTTP(w, r)
}

// headers returns the headers of all requests.
func (s *sidecar) headers() []http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}
