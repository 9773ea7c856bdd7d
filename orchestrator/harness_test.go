package orchestrator

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/lab/memnet"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/trials"
)

// world is a router between clients and two pools of simulated engines, on an in-memory network and in
// fake time.
type world struct {
	t     *testing.T
	net   *memnet.Net
	p, d  []*simulated
	whole *simulated // in no pool; gives the right answers
	o     *Orchestrator
	cfg   *config.Config
	asked int    // requests that the router has to count; guarded by mid.mu
	leave func() // makes the client of the newest request leave; guarded by mid.mu
	mid   midway
	wire  wire
	front *http.Client

	stop  context.CancelFunc
	ended chan error
}

// simulated is an engine and its two addresses.
type simulated struct {
	*enginesim.Server
	name, addr, side string
}

// setup says what differs from the usual world.
type setup struct {
	prefill, decode int // numbers of replicas; 0 means 2
	order           connector.Order
	config          func(*config.Config)
	engine          func(name string, o *enginesim.Options)
	options         func(*Options)
}

// The times of the simulated engines: a step with a prefill, a step without one, and a KV transfer.
const (
	prefillStep = 20 * time.Millisecond
	decodeStep  = 10 * time.Millisecond
	transfer    = 30 * time.Millisecond
)

// in runs story in a new world, and then checks that nothing is left over.
func in(t *testing.T, s setup, story func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, s)
		defer w.close()
		story(w)
		w.settled()
	})
}

func newWorld(t *testing.T, s setup) *world {
	w := &world{t: t, net: &memnet.Net{}, ended: make(chan error, 1)}
	w.cfg = config.Default()
	w.cfg.Local = config.LocalNever
	w.cfg.Admin.Hosts = []string{"admin"} // the name that tests use for the admin listener
	w.cfg.Timeouts.Prefill = 2 * time.Second
	w.cfg.Timeouts.DecodeFirst = 7 * time.Second
	w.cfg.Timeouts.Answer = 8 * time.Second
	w.cfg.Timeouts.DecodeIdle = 4 * time.Second
	w.cfg.Pools.Prefill.PollInterval, w.cfg.Pools.Decode.PollInterval = 4*time.Second, 4*time.Second
	for i := range cmp.Or(s.prefill, 2) {
		w.p = append(w.p, w.engine(s, fmt.Sprintf("p%d", i)))
		w.cfg.Pools.Prefill.Replicas = append(w.cfg.Pools.Prefill.Replicas, w.p[i].entry())
	}
	for i := range cmp.Or(s.decode, 2) {
		w.d = append(w.d, w.engine(s, fmt.Sprintf("d%d", i)))
		w.cfg.Pools.Decode.Replicas = append(w.cfg.Pools.Decode.Replicas, w.d[i].entry())
	}
	w.whole = w.engine(s, "whole")
	if s.config != nil {
		s.config(w.cfg)
	}
	if err := w.cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	opt := Options{Dial: w.dial, NoEvents: true, Seed: 1, Tracer: &w.mid}
	if s.order > connector.Sequential {
		opt.Connector = plainLegs(s.order)
	}
	if os.Getenv("TANDEM_LOG") != "" {
		opt.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if s.options != nil {
		s.options(&opt)
	}
	w.start(opt)
	return w
}

func (w *world) engine(s setup, name string) *simulated {
	e := &simulated{name: name, addr: name + ".internal:8000", side: name + ".internal:5600"}
	ln, err := w.net.Listen("tcp", e.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	o := enginesim.Options{
		Listener: ln, BaseURL: "http://" + e.addr, Listen: w.net.Listen, Dial: w.net.Dial, ScaleOut: true,
		TransferLatency: transfer,
		Core: core.Config{
			Host: name + ".internal", Port: 5600, EngineID: "engine-of-" + name,
			Cost: core.Cost{T0: prefillStep.Seconds(), D0: decodeStep.Seconds()},
		},
	}
	if s.engine != nil {
		s.engine(name, &o)
	}
	if e.Server, err = enginesim.Start(o); err != nil {
		w.t.Fatal(err)
	}
	return e
}

// entry returns the engine's entry in a configuration.
func (e *simulated) entry() config.Replica {
	endpoint, replay := e.Events()
	return config.Replica{URL: e.URL(), Events: config.Events{Endpoint: endpoint, Replay: replay}}
}

// listen opens both listeners.
func (w *world) listen(front, admin string) (l Listeners) {
	var err1, err2 error
	l.Front, err1 = w.net.Listen("tcp", front)
	l.Admin, err2 = w.net.Listen("tcp", admin)
	if err1 != nil || err2 != nil {
		w.t.Fatal(err1, err2)
	}
	return l
}

// start starts the router, and returns when every replica has joined.
func (w *world) start(opt Options) {
	var err error
	if w.o, err = New(w.cfg, opt); err != nil {
		w.t.Fatal(err)
	}
	listeners := w.listen("front:80", "admin:80")
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	go func() { w.ended <- w.o.Serve(ctx, listeners, w.o.Admin()) }()
	w.front = &http.Client{
		Transport: &http.Transport{DialContext: w.net.Dial, DisableKeepAlives: true, DisableCompression: true},
	}
	for range 100 {
		time.Sleep(50 * time.Millisecond)
		up := 0
		for _, watched := range w.o.fleet.Watchers() {
			if watched.Up() {
				up++
			}
		}
		if up == len(w.p)+len(w.d) {
			w.wire.forget()
			return
		}
	}
	w.t.Fatal("the replicas did not join")
}

func (w *world) close() {
	w.stop()
	if err := <-w.ended; err != nil {
		w.t.Errorf("serve: %v", err)
	}
	for _, e := range w.all() {
		e.Close()
	}
}

func (w *world) all() []*simulated { return append(append([]*simulated{w.whole}, w.p...), w.d...) }

func (w *world) by(replica string) *simulated {
	for _, e := range w.all() {
		if e.addr == replica {
			return e
		}
	}
	return nil
}

// settled checks what must hold after every test: each request was counted once, nothing is booked or
// running, and no engine died. First it ends all faults, because the router would go on trying broken
// engines. It waits until leases that were not given back have expired; then no engine holds a block.
func (w *world) settled() {
	w.t.Helper()
	for _, e := range w.all() {
		if err := e.Fault(enginesim.Fault{Kind: "clear"}); err != nil {
			w.t.Error(err)
		}
		w.net.Refuse(e.side, false)
	}
	time.Sleep(2 * time.Second)
	leases := w.o.Leases() // a canary has a lease too, and another one may begin in between
	until := time.Now().Add(2 * trials.Limit)
	for ; leases != 0 && time.Now().Before(until); leases = w.o.Leases() {
		time.Sleep(50 * time.Millisecond)
	}
	if leases != 0 {
		w.t.Errorf("%d leases are left", leases)
	}
	if n, q := w.o.InFlight(), w.o.queue.length(); n != 0 || q != 0 {
		w.t.Errorf("%d requests in flight, %d in the queue", n, q)
	}
	if n := w.o.retrying.Load(); n != 0 {
		w.t.Errorf("%d retries still count as running", n)
	}
	if n := w.count("tandem_requests_total", ""); n != w.asked {
		w.t.Errorf("counted %d outcomes of %d requests", n, w.asked)
	}
	for range 20 { // a trial may be running
		if !slices.ContainsFunc(w.all(), func(e *simulated) bool { return e.OpenRequests() > 0 }) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, e := range w.all() {
		if n := e.OpenRequests(); n != 0 {
			w.t.Errorf("%s still has %d open requests", e.name, n)
		}
	}
	if w.held() > 0 {
		time.Sleep(35 * time.Second)
	}
	for _, e := range w.all() {
		if n := e.HeldBlocks(); n != 0 {
			w.t.Errorf("%s holds %d blocks", e.name, n)
		}
		if err := e.Dead(); err != nil {
			w.t.Errorf("%s died: %v", e.name, err)
		}
	}
}

// count returns the sum of all series of a counter or, unless value is "", of the series that have a label
// with this value.
func (w *world) count(name, value string) int {
	total := 0.0
	rec := httptest.NewRecorder()
	w.o.Admin().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(rec.Body.String()) {
		labels, n, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if strings.HasPrefix(labels, name+"{") && (value == "" || strings.Contains(labels, `"`+value+`"`)) {
			f, err := strconv.ParseFloat(n, 64)
			if err != nil {
				w.t.Errorf("/metrics: %q", line)
			}
			total += f
		}
	}
	return int(total)
}

func (w *world) held() int {
	n := 0
	for _, e := range w.all() {
		n += e.HeldBlocks()
	}
	return n
}

// plainLegs is a connector with one of the other two orders. The decode engine computes the prompt itself,
// so every engine works with it and the answers stay exact.
type plainLegs connector.Order

func (o plainLegs) Traits() connector.Traits {
	return connector.Traits{Order: connector.Order(o), SamePath: true}
}
func (plainLegs) EditPrefill(*connector.Leg, connector.Pair) error { return nil }
func (plainLegs) EditDecode(*connector.Leg, connector.Pair, *connector.Reply, connector.Use) error {
	return nil
}

// midway is a tracer that calls a test's hook at points of a request. When a span begins, it calls the
// hook of the span's name in the request's goroutine.
type midway struct {
	noop.TracerProvider
	mu   sync.Mutex
	hook map[string]func(replica string)
}

func (m *midway) Tracer(string, ...trace.TracerOption) trace.Tracer { return midTracer{m: m} }

type midTracer struct {
	noop.Tracer
	m *midway
}

func (t midTracer) Start(
	ctx context.Context, name string, opts ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	replica := ""
	for _, a := range new(trace.NewSpanStartConfig(opts...)).Attributes() {
		switch a.Key {
		case observe.AttrReplica:
			replica = a.Value.AsString()
		case observe.AttrLeg:
			name = strings.Replace(a.Value.AsString(), observe.LegLocal, observe.LegDecode, 1)
		}
	}
	t.m.mu.Lock()
	hook := t.m.hook[name]
	t.m.mu.Unlock()
	if hook != nil {
		hook(replica)
	}
	return ctx, trace.SpanFromContext(ctx)
}

// at sets the hook for a span: tokenize, plan, prefill, handoff, decode or continue.
func (w *world) at(span string, hook func(replica string)) {
	w.mid.mu.Lock()
	defer w.mid.mu.Unlock()
	if w.mid.hook == nil {
		w.mid.hook = map[string]func(string){}
	}
	w.mid.hook[span] = hook
}

// wire records the requests to engines, in the order in which they began.
type wire struct {
	mu     sync.Mutex
	log    []*written
	script map[string][]string // by address: answers to the next generating requests
	bite   int                 // most bytes of a scripted answer per read; 0 means all
}

// written is a request as far as it has been sent.
type written struct {
	addr string
	raw  []byte
}

type tapped struct {
	net.Conn
	addr string
	w    *wire
	now  *written        // guarded by w.mu
	play *strings.Reader // guarded by w.mu; used by the reader of the connection
}

// dial connects the router to an engine.
func (w *world) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := w.net.Dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &tapped{Conn: c, addr: addr, w: &w.wire}, nil
}

// scripted makes the next generating request to addr get these raw bytes instead of an engine's answer.
// Then the connection ends.
func (w *wire) scripted(addr, raw string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.script == nil {
		w.script = map[string][]string{}
	}
	w.script[addr] = append(w.script[addr], raw)
}

var generates = regexp.MustCompile(
	"^(POST /v1/(completions|chat|responses|messages|embeddings|decisions)|GET /v1/responses/)")

// next takes the script for a request that begins with b; nil if there is none.
func (w *wire) next(addr string, b []byte) *strings.Reader {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.script[addr]) == 0 || !generates.Match(b) || bytes.Contains(b, []byte("render")) {
		return nil
	}
	raw := w.script[addr][0]
	w.script[addr] = w.script[addr][1:]
	return strings.NewReader(raw)
}

func (t *tapped) Read(b []byte) (int, error) {
	t.w.mu.Lock()
	play, bite := t.play, t.w.bite
	t.w.mu.Unlock()
	if play != nil {
		return play.Read(b[:min(len(b), cmp.Or(bite, len(b)))])
	}
	return t.Conn.Read(b)
}

func (t *tapped) Write(b []byte) (int, error) {
	n, err := len(b), error(nil)
	play := t.w.next(t.addr, b)
	t.w.mu.Lock()
	t.play = play
	t.w.mu.Unlock()
	if play == nil {
		n, err = t.Conn.Write(b)
	}
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	if bytes.HasPrefix(b, []byte("POST /")) || bytes.HasPrefix(b, []byte("GET /")) {
		t.now = &written{addr: t.addr}
		t.w.log = append(t.w.log, t.now)
	}
	if t.now != nil {
		t.now.raw = append(t.now.raw, b[:n]...)
	}
	return n, err
}

func (w *wire) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = nil
	w.script = nil
	w.bite = 0
}

// sent is a request that an engine got from the router.
type sent struct {
	engine, path string
	header       http.Header
	body         string
}

// posts returns the generating requests to engines so far; with all, also the requests for token ids.
func (w *world) posts(all bool) []sent {
	w.wire.mu.Lock()
	defer w.wire.mu.Unlock()
	var out []sent
	for _, l := range w.wire.log {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(l.raw)))
		if err != nil || r.Method != http.MethodPost {
			continue
		}
		body, _ := io.ReadAll(r.Body)
		if question := strings.HasSuffix(r.URL.Path, "render") || r.URL.Path == "/tokenize"; all || !question {
			out = append(out, sent{strings.TrimSuffix(l.addr, ".internal:8000"), r.URL.Path, r.Header, string(body)})
		}
	}
	return out
}

// prompt is a client's request.
type prompt struct {
	path, body string
	header     http.Header
	method     string
}

// chat and completion are the two usual requests. 120 words make about 8 blocks.
func chat(stream bool) prompt {
	return prompt{path: "/v1/chat/completions", body: `{"model":"sim","max_tokens":12,"temperature":0,` +
		streaming(stream) +
		`"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"` + words(120) + `"}]}`}
}

func completion(stream bool) prompt {
	return prompt{path: "/v1/completions", body: `{"model":"sim","max_tokens":12,"temperature":0,` +
		streaming(stream) + `"prompt":"` + words(120) + `"}`}
}

func streaming(stream bool) string {
	if !stream {
		return ""
	}
	return `"stream":true,"stream_options":{"include_usage":true},`
}

func words(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "word%d ", i*7%13)
	}
	return strings.TrimSpace(b.String())
}

// heard is what a client received.
type heard struct {
	status int // 0: no answer, because the client left or the connection broke
	header http.Header
	raw    string
	text   string
	finish string
	usage  usage
	events []string        // the data of each event of a stream
	when   []time.Duration // the time of each event since the request began
	dones  int
	fail   struct {
		Message, Type string
		Code          int
	}
	err  error
	took time.Duration
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// piece has the fields of interest of an answer, or of a chunk of a stream.
type piece struct {
	Choices []struct {
		Index   int
		Text    string
		Message struct{ Content string }
		Delta   struct{ Content string }
		Finish  string `json:"finish_reason"`
	}
	Usage *usage
	Error *struct {
		Message, Type string
		Code          int
	}
}

// ask sends a request to the router and reads the whole answer, or until w.leave is called. It calls each
// after every event.
func (w *world) ask(p prompt, each ...func(event int)) *heard {
	ctx, leave := context.WithCancel(w.t.Context())
	defer leave()
	w.mid.mu.Lock()
	w.leave = leave
	if strings.HasPrefix(p.path, "/v1/") {
		w.asked++
	}
	w.mid.mu.Unlock()
	return w.send(ctx, "front:80", p, each...)
}

// right returns the answer of an engine without a router.
func (w *world) right(p prompt) *heard {
	return w.send(w.t.Context(), w.whole.addr, p)
}

func (w *world) send(ctx context.Context, to string, p prompt, each ...func(event int)) *heard {
	h := &heard{}
	began := time.Now()
	defer func() { h.took = time.Since(began) }()
	r, err := http.NewRequestWithContext(ctx, cmp.Or(p.method, http.MethodPost), "http://"+to+p.path,
		strings.NewReader(p.body))
	if err != nil {
		h.err = err
		return h
	}
	maps.Copy(r.Header, p.header)
	resp, err := w.front.Do(r)
	if err != nil {
		h.err = err
		return h
	}
	defer resp.Body.Close()
	h.status, h.header = resp.StatusCode, resp.Header
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		raw, err := io.ReadAll(resp.Body)
		h.raw, h.err = string(raw), err
		h.take(h.raw)
		return h
	}
	lines := bufio.NewScanner(io.TeeReader(resp.Body, (*rawText)(&h.raw)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		h.events = append(h.events, data)
		h.when = append(h.when, time.Since(began))
		h.take(data)
		for _, f := range each {
			f(len(h.events))
		}
	}
	h.err = lines.Err()
	return h
}

type rawText string

func (r *rawText) Write(b []byte) (int, error) {
	*r += rawText(b)
	return len(b), nil
}

func (h *heard) take(data string) {
	if data == "[DONE]" {
		h.dones++
		return
	}
	var c piece
	if json.Unmarshal([]byte(data), &c) != nil {
		return
	}
	for _, choice := range c.Choices {
		h.text += choice.Text + choice.Message.Content + choice.Delta.Content
		h.finish = cmp.Or(choice.Finish, h.finish)
	}
	if c.Usage != nil {
		h.usage = *c.Usage
	}
	if c.Error != nil {
		h.fail = *c.Error
	}
	h.takeOther(data)
}

// exact checks that an answer equals that of an engine without a router.
func (w *world) exact(p prompt, got *heard) {
	w.t.Helper()
	want := w.right(p)
	if want.status != 200 || want.text == "" {
		w.t.Fatalf("the engine alone answers %d %s", want.status, want.raw)
	}
	if got.status != 200 || got.err != nil || got.fail.Message != "" {
		w.t.Fatalf("status %d, error %v, %q, want an exact answer", got.status, got.err, got.raw)
	}
	counted := got.usage
	counted.Details = want.usage.Details // the prefix caches may differ
	if got.text != want.text || got.finish != want.finish || counted != want.usage || got.dones != want.dones {
		w.t.Errorf("got %q, %s, %+v, %d end marks\nwant %q, %s, %+v, %d end marks",
			got.text, got.finish, got.usage, got.dones, want.text, want.finish, want.usage, want.dones)
	}
	w.silent(got)
}

// failed checks for a clear error: as the status before the answer has begun, or as the last event, and no
// wrong text before it.
func (w *world) failed(p prompt, got *heard, code int) {
	w.t.Helper()
	if got.fail.Message == "" || got.fail.Code != code {
		w.t.Fatalf("status %d, %v, %q, want error %d", got.status, got.err, got.raw, code)
	}
	switch begun := len(got.events) > 0; {
	case !begun && got.status != code:
		w.t.Errorf("status %d, want %d", got.status, code)
	case begun && !errorEnds(p, got):
		w.t.Errorf("the stream ends with %q", got.events[max(0, len(got.events)-3):])
	}
	if !strings.HasPrefix(w.right(p).text, got.text) {
		w.t.Errorf("wrong text before the error: %q", got.text)
	}
	w.silent(got)
}

// silent checks that an answer shows nothing of the engines behind the router.
func (w *world) silent(got *heard) {
	w.t.Helper()
	all := strings.ToLower(got.raw + fmt.Sprint(got.header))
	for _, secret := range []string{
		".internal", "engine-of", ":8000", ":5600", "endpoint-load", `"do_remote`, "remote_block", "give-back",
		"uvicorn",
	} {
		if strings.Contains(all, secret) {
			w.t.Errorf("the answer contains %q: %s %v", secret, got.raw, got.header)
		}
	}
	if strings.Contains(all, `"kv_transfer_params":{`) {
		w.t.Errorf("the answer has transfer params: %s", got.raw)
	}
}
