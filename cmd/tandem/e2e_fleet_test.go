//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// engine is a tandem sim process that can stop and start again at the same addresses.
type engine struct {
	*process
	id, role     string
	url, control string
	events       string // endpoint
	args         []string
}

func newEngine(t *testing.T, id, role string, args ...string) *engine {
	t.Helper()
	e := &engine{id: id, role: role, args: append([]string{"--role", role, "--control", "127.0.0.1:0"}, args...)}
	e.begin(t, "--events", "tcp://127.0.0.1:0")
	return e
}

// begin starts the process and reads its addresses from its first line.
func (e *engine) begin(t *testing.T, where ...string) {
	t.Helper()
	e.process = start(t, e.id, append(append([]string{"sim"}, where...), e.args...)...)
	line := e.line("http://")
	e.url, _, _ = strings.Cut(line, " ")
	for word := range strings.FieldsSeq(line) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "control":
			e.control = value
		case "events":
			e.events = value
		}
	}
}

// back starts a new process at the old one's port.
func (e *engine) back() {
	e.t.Helper()
	e.begin(e.t, "--listen", strings.TrimPrefix(e.url, "http://"), "--events", e.events)
}

func (e *engine) alive() bool {
	select {
	case <-e.exited:
		return false
	default:
		return true
	}
}

func (e *engine) fault(f enginesim.Fault) {
	e.t.Helper()
	raw, err := json.Marshal(f)
	if err != nil {
		e.t.Fatal(err)
	}
	resp, err := http.Post(e.control+"/fault", "application/json", bytes.NewReader(raw))
	if err != nil {
		e.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		e.t.Fatalf("fault %+v: status %d", f, resp.StatusCode)
	}
}

// slow makes the engine's steps last factor times as long.
func (e *engine) slow(factor float64) {
	e.t.Helper()
	e.fault(enginesim.Fault{Kind: "slow", Factor: factor})
}

// setting describes a fleet. The zero value has four engines without latency, leases of 3 s, and splits
// every request that can be split.
type setting struct {
	lease           time.Duration
	margin          time.Duration // 0 means lease/2
	engines         []string      // flags of every engine
	prefill, decode []string      // flags of the engines of one side
	spare           int           // engines per side that the first configuration does not name
	local           string        // "" means never
	extra           string        // further YAML
	files           int           // the router's limit of open files; 0 means the limit of the test
}

// fleet is a router process in front of two prefill and two decode engines. A separate engine gives the
// reference answers.
type fleet struct {
	t         *testing.T
	set       setting
	prefill   []*engine
	decode    []*engine
	reference *engine
	router    *process
	front     string
	admin     string
	dir       string // of the configuration, as a ConfigMap mounts it
	client    *http.Client
	asker     *http.Client // of the admin listener and the engines
	level     int          // goroutines of the idle router

	mu    sync.Mutex // guards the following
	known map[string]*reply
}

func newFleet(t *testing.T, set setting) *fleet {
	t.Helper()
	if set.lease == 0 {
		set.lease = 3 * time.Second
	}
	if set.margin == 0 {
		set.margin = set.lease / 2
	}
	if set.local == "" {
		set.local = "never"
	}
	f := &fleet{t: t, set: set, client: newClient(), asker: newClient(), known: map[string]*reply{}}
	binary(t)
	f.reference = newEngine(t, "reference", "", "--zero-latency", "--blocks", "8192")
	for i := range 2 + set.spare {
		common := append([]string{"--lease", set.lease.String()}, set.engines...)
		f.prefill = append(f.prefill,
			newEngine(t, fmt.Sprintf("p%d", i), "prefill", append(common, set.prefill...)...))
		f.decode = append(f.decode, newEngine(t, fmt.Sprintf("d%d", i), "decode", append(common, set.decode...)...))
	}
	f.mount(f.yaml(f.prefill[:2], f.decode[:2]))
	f.serve()
	f.ready(f.prefill[:2], f.decode[:2])
	f.settle()
	t.Cleanup(f.client.CloseIdleConnections)
	t.Cleanup(f.asker.CloseIdleConnections)
	return f
}

// yaml returns a configuration with these replicas.
func (f *fleet) yaml(prefill, decode []*engine) string {
	var b strings.Builder
	fmt.Fprintf(&b, "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\npools:\n")
	for _, side := range []struct {
		name    string
		engines []*engine
	}{{"prefill", prefill}, {"decode", decode}} {
		fmt.Fprintf(&b, "  %s:\n    poll_interval: 100ms\n    replicas:\n", side.name)
		for _, e := range side.engines {
			fmt.Fprintf(&b, "      - {name: %s, url: %q}\n", e.id, e.url)
		}
	}
	fmt.Fprintf(&b, "connector: {lease: %v, margin: %v}\nlocal: %s\nresponse: {headers: true}\n%s\n",
		f.set.lease, f.set.margin, f.set.local, f.set.extra)
	return b.String()
}

// mount writes the file in the layout of a mounted ConfigMap: tandem.yaml -> ..data/tandem.yaml, ..data ->
// ..1.
func (f *fleet) mount(text string) {
	f.t.Helper()
	f.dir = f.t.TempDir()
	f.must(os.Mkdir(filepath.Join(f.dir, "..1"), 0o700))
	f.must(os.WriteFile(filepath.Join(f.dir, "..1", "tandem.yaml"), []byte(text), 0o600))
	f.must(os.Symlink("..1", filepath.Join(f.dir, "..data")))
	f.must(os.Symlink("..data/tandem.yaml", f.file()))
}

func (f *fleet) file() string { return filepath.Join(f.dir, "tandem.yaml") }

func (f *fleet) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// serve starts the router.
func (f *fleet) serve() {
	f.t.Helper()
	if f.set.files == 0 {
		f.router = start(f.t, "router", "serve", "--config", f.file())
	} else {
		f.router = startWithFiles(f.t, "router", f.set.files, "serve", "--config", f.file())
	}
	words := strings.Fields(strings.ReplaceAll(f.router.line("tandem serves on "), ",", ""))
	f.front, f.admin = "http://"+words[3], "http://"+words[len(words)-1]
	if strings.Contains(f.set.extra, "tls:") {
		f.front = "https://" + words[3]
	}
}

// health is the answer of the admin listener's /readyz.
type health struct {
	Ready    bool     `json:"ready"`
	Why      []string `json:"why"`
	Replicas []struct {
		Pool   string `json:"pool"`
		Name   string `json:"replica"`
		Ready  bool   `json:"ready"`
		Reason string `json:"reason"`
	} `json:"replicas"`
	Config *struct {
		Error string `json:"error"`
	} `json:"config"`
}

func (h *health) of(id string) (ready, known bool, reason string) {
	for _, r := range h.Replicas {
		if r.Name == id {
			return r.Ready, true, r.Reason
		}
	}
	return false, false, ""
}

func (f *fleet) health() (status int, h *health) {
	f.t.Helper()
	h = &health{}
	return f.get(f.admin+"/readyz", h), h
}

// get reads JSON.
func (f *fleet) get(url string, into any) (status int) {
	f.t.Helper()
	resp, err := f.asker.Get(url)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		f.t.Fatalf("%s: %v", url, err)
	}
	return resp.StatusCode
}

// ready waits until the router has exactly these replicas, all usable, and follows their events.
func (f *fleet) ready(prefill, decode []*engine) {
	f.t.Helper()
	eventually(f.t, 20*time.Second, func() error {
		_, h := f.health()
		if len(h.Replicas) != len(prefill)+len(decode) {
			return fmt.Errorf("%d replicas", len(h.Replicas))
		}
		for _, e := range append(append([]*engine{}, prefill...), decode...) {
			if ok, _, reason := h.of(e.id); !ok {
				return fmt.Errorf("%s is not ready: %s", e.id, reason)
			}
			if f.series(f.admin+"/metrics", `tandem_index_trust`, `replica="`+e.id+`"`, `state="live"`) != 1 {
				return fmt.Errorf("events of %s are not followed yet", e.id)
			}
		}
		return nil
	})
}

// settle measures the number of goroutines of the idle router: the highest of several samples, because
// watchers start and end. The first client starts one goroutine.
func (f *fleet) settle() {
	f.t.Helper()
	client, err := net.Dial("tcp", f.front[strings.LastIndexByte(f.front, '/')+1:])
	f.must(err)
	f.must(client.Close())
	eventually(f.t, 10*time.Second, func() error {
		if _, all := f.goroutines(); strings.Contains(all, "http1.(*conn)") {
			return errors.New("the connection is still served")
		}
		return nil
	})
	looks := 0
	eventually(f.t, 10*time.Second, func() error {
		n, _ := f.goroutines()
		f.level = max(f.level, n)
		if looks++; looks < 15 {
			return errors.New("looking")
		}
		return nil
	})
}

// goroutines returns the number of the router's goroutines and their stacks. The metric of the same name
// also counts the goroutines that gather metrics, and their number varies on a busy machine.
func (f *fleet) goroutines() (n int, profile string) {
	f.t.Helper()
	profile = f.text("/debug/pprof/goroutine?debug=1")
	_, err := fmt.Sscanf(profile, "goroutine profile: total %d", &n)
	f.must(err)
	return n, profile
}

// series returns the sum of the series of a metric that have all the labels; 0 if there is no such series.
func (f *fleet) series(url, name string, labels ...string) float64 {
	f.t.Helper()
	sum, err := scrape(f.asker, url, name, labels...)
	if err != nil {
		f.t.Fatal(err)
	}
	return sum
}

func (f *fleet) metric(name string, labels ...string) float64 {
	f.t.Helper()
	return f.series(f.admin+"/metrics", name, labels...)
}

func scrape(client *http.Client, url, name string, labels ...string) (float64, error) {
	resp, err := client.Get(url)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	sum := 0.0
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		rest, found := strings.CutPrefix(line, name)
		if !found || rest == "" || rest[0] != '{' && rest[0] != ' ' || !all(rest, labels) {
			continue
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return sum, lines.Err()
}

func all(text string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

// engines returns all running engines.
func (f *fleet) engines() []*engine {
	var out []*engine
	for _, e := range append(append([]*engine{}, f.prefill...), f.decode...) {
		if e.alive() {
			out = append(out, e)
		}
	}
	return out
}

// quiet waits until past requests use nothing any more: no lease, no request and no extra goroutine in the
// router within 2 s, and no block on any engine within limit.
func (f *fleet) quiet(limit time.Duration) {
	f.t.Helper()
	took := eventually(f.t, patience(max(limit, 2*time.Second)), func() error {
		f.client.CloseIdleConnections()
		for _, name := range []string{"tandem_leases", "tandem_requests_in_flight", "tandem_queue_waiting"} {
			if n := f.metric(name); n != 0 {
				return fmt.Errorf("%s is %v", name, n)
			}
		}
		if n, profile := f.goroutines(); n > f.level {
			return fmt.Errorf("%d goroutines, %d at the beginning:\n%s", n, f.level, profile)
		}
		for _, e := range f.engines() {
			for _, name := range []string{
				"vllm:kv_cache_usage_perc", "vllm:num_requests_running", "vllm:num_requests_waiting",
			} {
				if n := f.series(e.url+"/metrics", name); n != 0 {
					return fmt.Errorf("%s: %s is %v", e.id, name, n)
				}
			}
		}
		return nil
	})
	f.t.Logf("quiet after %v", took.Round(time.Millisecond))
}

// patience is d, or more under the race detector.
func patience(d time.Duration) time.Duration {
	if raceDetector {
		return 4 * d
	}
	return d
}

// right returns the reference's answer.
func (f *fleet) right(q question) *reply {
	f.t.Helper()
	raw, err := json.Marshal(q.body)
	key := q.path + string(raw)
	f.must(err)
	f.mu.Lock()
	r := f.known[key]
	f.mu.Unlock()
	if r == nil {
		r = ask(f.t.Context(), f.asker, f.reference.url, q, nil)
		f.mu.Lock()
		f.known[key] = r
		f.mu.Unlock()
	}
	return r
}

func (f *fleet) ask(ctx context.Context, q question) *reply {
	return ask(ctx, f.client, f.front, q, nil)
}

// check sends a question and requires the exact answer.
func (f *fleet) check(q question) *reply {
	f.t.Helper()
	got := f.ask(f.t.Context(), q)
	if v, why := judge(f.right(q), got); v != exact {
		f.t.Errorf("%v: %s", q, why)
	}
	return got
}

// running is a request in progress.
type running struct {
	f      *fleet
	q      question
	cancel context.CancelFunc
	events chan struct{} // one for each event of a stream
	done   chan struct{}
	got    *reply
}

// begin sends a question in the background.
func (f *fleet) begin(q question) *running {
	ctx, cancel := context.WithCancel(f.t.Context())
	r := &running{f: f, q: q, cancel: cancel, events: make(chan struct{}, 1<<16), done: make(chan struct{})}
	go func() {
		defer close(r.done)
		defer cancel()
		r.got = ask(ctx, f.client, f.front, q, func(*reply) { r.events <- struct{}{} })
	}()
	return r
}

// flowing waits for some events of the stream.
func (r *running) flowing(events int) {
	r.f.t.Helper()
	for range events {
		select {
		case <-r.events:
		case <-r.done:
			r.f.t.Fatalf("%v ended too early: %+v", r.q, r.got)
		case <-time.After(20 * time.Second):
			r.f.t.Fatalf("%v has no new event", r.q)
		}
	}
}

// judge waits for the end.
func (r *running) judge() (verdict, string) {
	r.f.t.Helper()
	select {
	case <-r.done:
	case <-time.After(patience(30 * time.Second)):
		r.f.t.Fatalf("%v does not end", r.q)
	}
	return judge(r.f.right(r.q), r.got)
}

// traffic is a set of clients that send one question after another.
type traffic struct {
	f    *fleet
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex // guards the following
	counts [3]int
	wrong  []string
	errors map[string]int
	asked  []question
}

func (f *fleet) traffic(clients, maxTokens int) *traffic {
	ctx, stop := context.WithCancel(f.t.Context())
	l := &traffic{f: f, stop: stop, errors: map[string]int{}}
	f.t.Cleanup(func() { l.stop(); l.wg.Wait() })
	for i := range clients {
		w := newWriter(uint64(i) + 1)
		l.wg.Go(func() {
			for ctx.Err() == nil {
				q := w.next(maxTokens)
				l.note(q, f.ask(f.t.Context(), q))
			}
		})
	}
	return l
}

func (l *traffic) note(q question, got *reply) {
	v, why := judge(l.f.right(q), got)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[v]++
	l.asked = append(l.asked, q)
	switch v {
	case wrong:
		l.wrong = append(l.wrong, fmt.Sprintf("%v: %s", q, why))
	case clearError:
		l.errors[why]++
	}
}

// exact returns the number of right answers so far.
func (l *traffic) exact() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[exact]
}

// more waits for n further right answers.
func (l *traffic) more(n int) {
	l.f.t.Helper()
	want := l.exact() + n
	eventually(l.f.t, patience(20*time.Second), func() error {
		if got := l.exact(); got < want {
			return fmt.Errorf("%d right answers, waiting for %d; errors %v", got, want, l.errorsNow())
		}
		return nil
	})
}

func (l *traffic) errorsNow() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprint(l.errors)
}

// end stops the clients after their current answers and reports the wrong answers.
func (l *traffic) end() {
	l.f.t.Helper()
	l.stop()
	l.wg.Wait()
	l.f.t.Logf("%d right answers, %d clear errors %v", l.counts[exact], l.counts[clearError], l.errors)
	for i, w := range l.wrong {
		if i < 5 {
			l.f.t.Error(w)
		}
	}
	if len(l.wrong) > 5 {
		l.f.t.Errorf("and %d more wrong answers", len(l.wrong)-5)
	}
}

// audit sends all earlier questions directly to every engine: an engine with a poisoned prefix cache
// answers wrongly from the first tokens. Each question uses a new connection, because an engine may close
// an idle connection just when the next question is sent.
func (f *fleet) audit(asked []question) {
	f.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: f.asker.Timeout}
	var group errgroup.Group
	group.SetLimit(16)
	step := max(1, len(asked)/100)
	for i := 0; i < len(asked); i += step {
		q := asked[i].with("max_tokens", 3)
		for _, e := range f.engines() {
			group.Go(func() error {
				if v, why := judge(f.right(q), ask(f.t.Context(), client, e.url, q, nil)); v != exact {
					return fmt.Errorf("%s gives a different answer than before, its cache may be poisoned: %v: %s",
						e.id, q, why)
				}
				return nil
			})
		}
	}
	if err := group.Wait(); err != nil {
		f.t.Error(err)
	}
}

// freeze is SIGSTOP.
func (p *process) freeze() { p.signal(syscall.SIGSTOP) }

func (p *process) unfreeze() { p.signal(syscall.SIGCONT) }

// text reads a page of the admin listener.
func (f *fleet) text(path string) string {
	f.t.Helper()
	resp, err := f.asker.Get(f.admin + path)
	f.must(err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	f.must(err)
	return string(b)
}
