//go:build linux && envoy

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/kubernetestest"
)

// gatewayFleet is a fleet behind a real Envoy, with tandem epp as its endpoint picker. Clients ask Envoy.
// Each decode engine has its own address, and a routing sidecar at this address.
type gatewayFleet struct {
	*fleet
	envoy    *process
	sidecars []*sidecar
	port     int // of the sidecars
}

// newGateway starts everything; the order of the engines is p0, p1, d0, d1.
func newGateway(t *testing.T, set setting) *gatewayFleet { return newGatewayOf(t, set, false) }

// newGatewayOf is a gateway as of newGateway. If pool is true, the picker gets its members from an
// InferencePool of an API server, with the engines' pods.
func newGatewayOf(t *testing.T, set setting, pool bool) *gatewayFleet {
	t.Helper()
	if set.lease == 0 {
		set.lease = 3 * time.Second
	}
	set.margin, set.local = set.lease/2, orElse(set.local, "never")
	f := &gatewayFleet{
		fleet: &fleet{t: t, set: set, client: newClient(), asker: newClient(), known: map[string]*reply{}},
	}
	binary(t)
	f.reference = newEngine(t, "reference", "", "--zero-latency", "--blocks", "8192")
	for i := range 2 {
		common := append([]string{"--lease", set.lease.String()}, set.engines...)
		p := newEngine(t, fmt.Sprintf("p%d", i), "prefill", append(common, set.prefill...)...)
		common = append(common, "--listen", fmt.Sprintf("127.0.0.%d:0", i+2))
		d := newEngine(t, fmt.Sprintf("d%d", i), "decode", append(common, set.decode...)...)
		f.fleet.prefill, f.fleet.decode = append(f.fleet.prefill, p), append(f.fleet.decode, d)
	}
	f.port = freePortAt(t, "127.0.0.2")
	for i, d := range f.fleet.decode {
		f.sidecars = append(f.sidecars, newSidecar(t, d.url, fmt.Sprintf("127.0.0.%d:%d", i+2, f.port)))
	}
	if pool {
		f.set.extra = f.pods()
		f.mount(f.yaml(nil, nil))
		f.router = start(t, "picker", "epp", "--config", f.file())
	} else {
		f.mount(f.yaml(f.fleet.prefill, f.fleet.decode))
		f.router = start(t, "picker", "epp", "--config", f.file(), "--sidecar-port", fmt.Sprint(f.port))
	}
	words := strings.Fields(strings.ReplaceAll(f.router.line("tandem picks on "), ",", ""))
	f.admin = "http://" + words[len(words)-1]
	f.startEnvoy(words[3])
	f.ready(f.fleet.prefill, f.fleet.decode)
	untilOK(t, f.asker, f.front+"/v1/models", 10*time.Second)
	f.settle()
	t.Cleanup(f.client.CloseIdleConnections)
	t.Cleanup(f.asker.CloseIdleConnections)
	return f
}

// pods starts an API server with a pod for each engine and an InferencePool, whose target port is that of the
// sidecars. It returns the configuration of discovery.
func (f *gatewayFleet) pods() string {
	f.t.Helper()
	s := kubernetestest.Start(f.t)
	token := filepath.Join(f.t.TempDir(), "token")
	f.must(os.WriteFile(token, []byte("first"), 0o600))
	s.Put(kubernetestest.InferencePool("llm", "app", "vllm", f.port))
	for _, e := range append(slices.Clone(f.fleet.prefill), f.fleet.decode...) {
		p := podOf(e)
		p.Labels["app"] = "vllm"
		s.Put(p)
	}
	return fmt.Sprintf("discovery: {kubernetes: {namespace: llm, server: %q, token_file: %q, "+
		"inference_pool: llm, prefill: {selector: role=prefill, port: vllm}, "+
		"decode: {selector: role=decode, port: vllm}}}", s.URL, token)
}

// startEnvoy runs Envoy with the example configuration, in front of the picker at an address.
func (f *gatewayFleet) startEnvoy(picker string) {
	f.t.Helper()
	path := os.Getenv("ENVOY")
	if path == "" {
		f.t.Fatal("ENVOY must name the binary: make e2e-envoy does so")
	}
	raw, err := os.ReadFile("../../deploy/envoy/envoy.yaml")
	f.must(err)
	port := freePortAt(f.t, "127.0.0.1")
	_, pickerPort, _ := net.SplitHostPort(picker)
	text := strings.NewReplacer(
		"port_value: 8080", fmt.Sprintf("port_value: %d", port), "port_value: 9002", "port_value: "+pickerPort,
		"http_filters:\n", "http_filters:\n"+testFilter,
	).Replace(string(raw))
	file := filepath.Join(f.t.TempDir(), "envoy.yaml")
	f.must(os.WriteFile(file, []byte(text), 0o600))
	f.envoy = startCommand(f.t, "envoy", exec.Command(path, "-c", file, "--concurrency", "1",
		"--log-level", "warn", "--use-dynamic-base-id"))
	f.front = fmt.Sprintf("http://127.0.0.1:%d", port)
	eventually(f.t, 20*time.Second, func() error {
		c, err := net.Dial("tcp", strings.TrimPrefix(f.front, "http://"))
		if err == nil {
			c.Close()
		}
		return err
	})
}

// testFilter lets a client's header be the gateway's hint of a subset.
const testFilter = `                  - name: envoy.filters.http.header_to_metadata
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config
                      request_rules:
                        - header: x-test-subset
                          on_header_present:
                            metadata_namespace: envoy.lb.subset_hint
                            key: x-gateway-destination-endpoint-subset
                          remove: true
`

func freePortAt(t *testing.T, host string) int {
	t.Helper()
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// logged returns Envoy's access log lines of generating requests.
var logLine = regexp.MustCompile(`(?m)^POST .*$`)

func (f *gatewayFleet) logged() []string { return logLine.FindAllString(f.envoy.out.String(), -1) }

// Ten requests through the gateway are split, and their answers are exact.
func TestGatewaySplitsExactly(t *testing.T) { gatewaySplits(t, false) }

// The same if an InferencePool says which engines there are, and where the sidecars are.
func TestGatewaySplitsExactlyInAnInferencePool(t *testing.T) { gatewaySplits(t, true) }

func gatewaySplits(t *testing.T, inferencePool bool) {
	f := newGatewayOf(t, setting{engines: []string{"--zero-latency"}}, inferencePool)
	w := newWriter(1)
	for i := range 10 {
		q := w.completion(w.text(), 12)
		if i%2 == 1 {
			q = w.chat(12, message("system", w.text()), message("user", " what is a lease")).streamed()
		}
		f.check(q)
	}
	f.quiet(2 * time.Second)
	eventually(t, 15*time.Second, func() error { // Envoy writes its log every ten seconds
		if n := len(f.logged()); n < 10 {
			return fmt.Errorf("%d lines", n)
		}
		return nil
	})
	pair := regexp.MustCompile(fmt.Sprintf(
		` 200 id=[0-9a-f]{16} P=127\.0\.0\.1:\d+ D=127\.0\.0\.[23]:%d `, f.port,
	))
	for _, line := range f.logged() {
		t.Log(line)
		if !pair.MatchString(line) {
			t.Errorf("no pair in %q", line)
		}
	}
	if n := f.metric("tandem_decisions_total", `mode="split"`); n < 10 {
		t.Errorf("%v requests were split", n)
	}
}

// post sends a question with extra headers of the client.
func (f *gatewayFleet) post(q question, header ...string) (status int, head http.Header, body string) {
	f.t.Helper()
	raw, err := json.Marshal(q.body)
	f.must(err)
	r, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, f.front+q.path, bytes.NewReader(raw))
	f.must(err)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	resp, err := f.client.Do(r)
	f.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	f.must(err)
	return resp.StatusCode, resp.Header, string(text)
}

// address returns the address of a decode engine's sidecar, as the destination header names it.
func (f *gatewayFleet) address(decode int) string {
	return fmt.Sprintf("127.0.0.%d:%d", decode+2, f.port)
}

// Requests of every kind get the same answer through the picker as from one engine, split or not.
func TestGatewayAnswersEveryShape(t *testing.T) {
	f := newGateway(t, setting{engines: []string{"--zero-latency", "--enable-scale-out"}, local: "auto"})
	for _, q := range shapes() {
		f.check(q)
	}
	f.quiet(2 * time.Second)
}

// Routing headers of a client reach no pod.
func TestGatewayStripsRoutingHeaders(t *testing.T) {
	f := newGateway(t, setting{engines: []string{"--zero-latency"}, local: "always"})
	w := newWriter(2)
	status, _, body := f.post(w.completion(w.text(), 4), "x-prefiller-host-port", "10.9.9.9:1",
		"x-gateway-destination-endpoint", "10.9.9.9:2", "x-data-parallel-host-port", "10.9.9.9:3",
		"x-request-id", "twice")
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, body)
	}
	for i, s := range f.sidecars {
		for _, h := range s.headers() {
			if raw := fmt.Sprint(h); strings.Contains(raw, "10.9.9.9") || strings.Contains(raw, "twice") {
				t.Errorf("d%d got %s", i, raw)
			}
			if to := h.Get("X-Gateway-Destination-Endpoint"); to != f.address(i) {
				t.Errorf("d%d got a request for %q", i, to)
			}
		}
	}
	if n := len(f.sidecars[0].headers()) + len(f.sidecars[1].headers()); n != 1 {
		t.Errorf("%d requests reached a sidecar", n)
	}
}

// The picker obeys a hint of the gateway, and refuses a subset without a usable engine.
func TestGatewayObeysSubsets(t *testing.T) {
	f := newGateway(t, setting{engines: []string{"--zero-latency"}})
	w := newWriter(3)
	for i := range 8 {
		status, _, body := f.post(w.completion(w.text(), 4), "x-test-subset", f.address(1)+", 10.9.9.9:80")
		if status != http.StatusOK {
			t.Fatalf("request %d: status %d: %s", i, status, body)
		}
	}
	if a, b := len(f.sidecars[0].headers()), len(f.sidecars[1].headers()); a != 0 || b != 8 {
		t.Errorf("%d and %d requests reached the two engines, want 0 and 8", a, b)
	}
	status, head, body := f.post(w.completion(w.text(), 4), "x-test-subset", "10.9.9.9:80")
	if status != http.StatusServiceUnavailable || head.Get("Retry-After") == "" ||
		!strings.Contains(body, "ServiceUnavailableError") {
		t.Errorf("status %d, Retry-After %q: %s", status, head.Get("Retry-After"), body)
	}
	f.quiet(2 * time.Second)
}

// Refusals have the same status and message as for clients of Tandem.
func TestGatewayRefuses(t *testing.T) {
	f := newGateway(t, setting{
		engines: []string{"--speed", "8b"}, decode: []string{"--blocks", "160", "--max-model-len", "2400"},
		extra: "scoring: {expected_output: 8000}\ntimeouts: {queue: 300ms}\n",
	})
	w := newWriter(4)
	for _, c := range []struct {
		q      question
		status int
		words  string
	}{
		{w.completion(w.text(), 4).with("model", "other"), http.StatusNotFound, "does not exist"},
		{w.completion(w.text(), 4).with("stream", "perhaps"), http.StatusBadRequest, "stream"},
		{question{"/v1/nothing", map[string]any{}}, http.StatusNotFound, "Not Found"},
		{question{"/sleep", map[string]any{}}, http.StatusNotFound, "Not Found"},
		{w.completion(w.ids(5000), 4), http.StatusBadRequest, "maximum context length"},
	} {
		if status, head, body := f.post(c.q); status != c.status || !strings.Contains(body, c.words) ||
			!strings.HasPrefix(head.Get("Content-Type"), "application/json") {
			t.Errorf("%v: status %d, %s: %s", c.q, status, head.Get("Content-Type"), body)
		}
	}
	release := f.fill(w)
	defer release()
	status, head, body := f.post(w.completion(w.ids(1200), 500))
	if status != http.StatusTooManyRequests || head.Get("Retry-After") == "" {
		t.Errorf("status %d, Retry-After %q: %s", status, head.Get("Retry-After"), body)
	}
	release()
	f.quiet(2 * time.Second)
}

// When a client leaves, at any point, the resources of its request are free within two seconds.
func TestGatewayClientsLeave(t *testing.T) {
	f := newGateway(t, setting{
		engines: []string{"--speed", "8b", "--transfer-latency", "20ms"}, lease: 2 * time.Second,
	})
	w := newWriter(5)
	for _, c := range []struct {
		when string
		slow []*engine
		by   float64
		seen func(r *running) error
	}{
		{"in the prefill", f.fleet.prefill, 40, func(*running) error { return f.holds(f.fleet.prefill) }},
		{"in the answer", f.fleet.decode, 10, func(r *running) error {
			r.flowing(5)
			return f.holds(f.fleet.decode)
		}},
	} {
		release := f.slowed(c.slow, c.by)
		r := f.begin(w.completion(w.ids(1500), 800).streamed())
		eventually(t, 10*time.Second, func() error { return c.seen(r) })
		if f.metric("tandem_leases") == 0 {
			t.Errorf("%s: nothing is booked", c.when)
		}
		r.cancel()
		<-r.done
		f.noLeases(2 * time.Second)
		release()
	}
	f.quiet(4 * time.Second) // the sidecar's prefill may keep its blocks until the lease ends
}

// When Envoy or an engine stops, no booking remains, and requests go to the remaining parts.
func TestGatewayLosesAPart(t *testing.T) {
	f := newGateway(t, setting{engines: []string{"--speed", "8b"}, lease: 2 * time.Second})
	w := newWriter(6)
	f.slowed(f.fleet.decode, 10)
	var streams []*running
	for range 2 {
		r := f.begin(w.completion(w.ids(700), 800).streamed())
		r.flowing(3)
		streams = append(streams, r)
	}
	f.fleet.decode[0].kill()
	eventually(t, 10*time.Second, func() error {
		_, h := f.health()
		if ok, _, _ := h.of("d0"); ok {
			return errors.New("d0 is still taken for usable")
		}
		return nil
	})
	for range 4 {
		f.check(w.completion(w.text(), 8))
	}
	f.envoy.kill()
	for _, r := range streams {
		<-r.done
	}
	f.noLeases(2 * time.Second)
}

// An answer that is too late before its head ends with Tandem's error. After its head, the connection is
// closed. Neither case leaves a booking.
func TestGatewayAnswersInTimeOrNotAtAll(t *testing.T) {
	f := newGateway(t, setting{
		engines: []string{"--speed", "8b"}, lease: 2 * time.Second,
		extra: "timeouts: {connect: 400ms, prefill: 500ms, decode_first: 1500ms, decode_idle: 700ms, answer: 3s}\n",
	})
	w := newWriter(8)
	for _, e := range f.fleet.prefill {
		e.freeze()
	}
	began := time.Now()
	status, _, body := f.post(w.completion(w.ids(700), 8).streamed())
	took := time.Since(began)
	if status != http.StatusGatewayTimeout || !strings.Contains(body, "TimeoutError") || took > 4*time.Second {
		t.Errorf("status %d after %v: %s", status, took, body)
	}
	for _, e := range f.fleet.prefill {
		e.unfreeze()
	}
	f.noLeases(2 * time.Second)
	f.ready(f.fleet.prefill, f.fleet.decode)
	f.slowed(f.fleet.decode, 5)
	r := f.begin(w.completion(w.ids(700), 800).streamed())
	r.flowing(3)
	for _, e := range f.fleet.decode {
		e.freeze()
	}
	<-r.done
	if r.got.done || r.got.err == nil {
		t.Errorf("a stream that stopped ended well: %+v", r.got)
	}
	f.noLeases(2 * time.Second)
	for _, e := range f.fleet.decode {
		e.unfreeze()
	}
}

// noLeases waits until no booking is left.
func (f *gatewayFleet) noLeases(within time.Duration) {
	f.t.Helper()
	eventually(f.t, within, func() error {
		if n := f.metric("tandem_leases"); n != 0 {
			return fmt.Errorf("%v leases", n)
		}
		return nil
	})
}

// When Envoy stands still, no booking stays longer than 15 s.
func TestGatewayStandsStill(t *testing.T) {
	f := newGateway(t, setting{engines: []string{"--speed", "8b"}, lease: 2 * time.Second})
	f.slowed(f.fleet.decode, 20)
	r := f.begin(newWriter(9).completion(newWriter(9).ids(700), 800).streamed())
	r.flowing(3)
	f.envoy.freeze()
	f.noLeases(17 * time.Second)
	f.envoy.unfreeze()
	r.cancel()
	<-r.done
}

// Clients that leave at random times leave no booking, and disturb no other client.
func TestGatewayClientsLeaveAtRandom(t *testing.T) {
	f := newGateway(t, setting{engines: []string{"--speed", "8b"}, lease: 2 * time.Second})
	var wg sync.WaitGroup
	var left, stayed atomic.Int64
	for i := range 8 {
		w, rnd := newWriter(uint64(i)), rand.New(rand.NewPCG(uint64(i), 3))
		wg.Go(func() {
			for range 20 {
				r := f.begin(w.next(16))
				timer := time.AfterFunc(time.Duration(rnd.IntN(300))*time.Millisecond, r.cancel)
				<-r.done
				timer.Stop()
				if r.got.err != nil {
					left.Add(1)
				} else if v, why := judge(f.right(r.q), r.got); v != exact {
					t.Error(why)
				} else {
					stayed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d left, %d stayed", left.Load(), stayed.Load())
	if left.Load() < 10 || stayed.Load() < 10 {
		t.Error("bad choice of times: too few clients left, or none stayed")
	}
	f.noLeases(2 * time.Second)
	f.quiet(5 * time.Second)
}

// A picker that gets SIGTERM first lets its streams end.
func TestGatewayPickerEnds(t *testing.T) {
	f := newGateway(t, setting{engines: []string{"--speed", "8b"}})
	r := f.begin(newWriter(10).completion(newWriter(10).ids(300), 200).streamed())
	r.flowing(3)
	f.router.signal(syscall.SIGTERM)
	if v, why := r.judge(); v != exact {
		t.Error(why)
	}
	if code := f.router.exit(10 * time.Second); code != 0 {
		t.Errorf("the picker ended with %d", code)
	}
}
