package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/discovery"
	"github.com/tandem-router/tandem/internal/lab/kubernetestest"
	"github.com/tandem-router/tandem/internal/panics"
)

// running is a source that runs against an API server.
type running struct {
	*Source

	t       testing.TB
	guard   panics.Guard
	cfg     *config.Config
	changed chan struct{}
	token   string // file
}

func run(t testing.TB, a *kubernetestest.Server) *running {
	t.Helper()
	r := &running{t: t, changed: make(chan struct{}, 1), token: filepath.Join(t.TempDir(), "token")}
	r.writeToken("first")
	r.cfg = config.Default()
	r.cfg.Discovery.Kubernetes = config.Kubernetes{
		Namespace: "llm", Server: a.URL, TokenFile: r.token,
		Prefill: config.Pods{Selector: "role=prefill"}, Decode: config.Pods{Selector: "role=decode"},
	}
	if err := r.cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	r.guard = panics.Guard{Log: slog.New(slog.DiscardHandler)}
	r.Source = New(r.guard)
	r.Configure(r.cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx, func() {
			select {
			case r.changed <- struct{}{}:
			default:
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return r
}

func (r *running) writeToken(text string) {
	if err := os.WriteFile(r.token, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// text returns the current members, one line for each pool.
func (r *running) text() string {
	var b strings.Builder
	for _, f := range r.Found(r.cfg) {
		fmt.Fprintf(&b, "%s %s:", f.Pool, f.State)
		for _, m := range f.Replicas {
			b.WriteString(" " + m.ID() + "=" + m.URL)
			if m.Drain {
				b.WriteString("(drain)")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// until waits for these members and for the words in the error.
func (r *running) until(want, problem string) {
	r.t.Helper()
	r.eventually(func() (string, bool) {
		got, err := r.text(), r.Found(r.cfg)[0].Err
		right := got == want && (err == "") == (problem == "") && strings.Contains(err, problem)
		return got + err + "\nwant\n" + want + problem, right
	})
}

// eventually waits until the members are right.
func (r *running) eventually(is func() (got string, right bool)) {
	r.t.Helper()
	late := time.After(40 * time.Second)
	for {
		got, right := is()
		if right {
			return
		}
		select {
		case <-r.changed:
		case <-late:
			r.t.Fatalf("found\n%s", got)
		}
	}
}

const one = "prefill fresh: p0=http://10.0.0.1:8000\ndecode fresh: d0=http://10.0.0.2:8000\n"

// Pods are added, change and are removed; watches end; the API server forgets old versions, stops and
// returns. After each step the members are those of the API server's last state, also with servers that
// cannot stream a list.
func TestFollowsTheAPIServer(t *testing.T) {
	for _, noStream := range []bool{false, true} {
		t.Run(fmt.Sprintf("noStream=%v", noStream), func(t *testing.T) {
			t.Parallel()
			a := kubernetestest.Start(t)
			if noStream {
				a.NoStream()
			}
			a.Put(kubernetestest.Ready("p0", "prefill", "10.0.0.1", 8000))
			a.Put(kubernetestest.Ready("other", "frontend", "10.0.0.7", 8000))
			r := run(t, a)
			r.until("prefill fresh: p0=http://10.0.0.1:8000\ndecode fresh:\n", "")
			a.Put(kubernetestest.Ready("d0", "decode", "10.0.0.2", 8000))
			r.until(one, "")

			a.Put(kubernetestest.Ready("d0", "decode", "10.0.0.2", 8000).Deleting())
			r.until("prefill fresh: p0=http://10.0.0.1:8000\ndecode fresh: d0=http://10.0.0.2:8000(drain)\n", "")
			a.Remove("d0")
			r.until("prefill fresh: p0=http://10.0.0.1:8000\ndecode fresh:\n", "")
			a.Put(kubernetestest.Ready("d0", "decode", "10.0.0.2", 8000))
			r.until(one, "")

			a.EndWatches()
			a.Put(kubernetestest.Ready("p0", "prefill", "10.0.0.3", 8000)) // between two watches
			moved := strings.Replace(one, "10.0.0.1", "10.0.0.3", 1)
			r.until(moved, "")

			a.Forget()
			a.Put(kubernetestest.Ready("p0", "prefill", "10.0.0.1", 8000))
			r.until(one, "")
			if a.Gone() == 0 {
				t.Error("the source did not ask for a version that the API server has forgotten")
			}
		})
	}
}

// runWithOnePair runs a source that has found a prefill pod and a decode pod.
func runWithOnePair(t *testing.T) (*kubernetestest.Server, *running) {
	t.Helper()
	a := kubernetestest.Start(t)
	a.Put(kubernetestest.Ready("p0", "prefill", "10.0.0.1", 8000))
	a.Put(kubernetestest.Ready("d0", "decode", "10.0.0.2", 8000))
	r := run(t, a)
	r.until(one, "")
	return a, r
}

// While the API server refuses requests, the last answer is kept, and the error says what to do.
func TestHoldsWhatWasSaid(t *testing.T) {
	t.Parallel()
	a, r := runWithOnePair(t)
	held := strings.ReplaceAll(one, "fresh", "held")
	a.Refuse(http.StatusForbidden)
	r.until(held, "allow get, list and watch of pods in namespace llm")
	a.Refuse(http.StatusServiceUnavailable)
	a.Put(kubernetestest.Ready("d0", "decode", "10.0.0.9", 8000))
	a.Refuse(0)
	r.until(strings.Replace(one, "10.0.0.2", "10.0.0.9", 1), "")

	a.Token("second")
	a.Put(kubernetestest.Ready("d0", "decode", "10.0.0.2", 8000))
	r.until(strings.Replace(held, "10.0.0.2", "10.0.0.9", 1), "Unauthorized")
	r.writeToken("second")
	r.until(one, "")
}

// A load balancer without an API server accepts connections and closes them. That also counts as an
// outage.
func TestConnectionsThatEndAreAnOutage(t *testing.T) {
	t.Parallel()
	a, r := runWithOnePair(t)
	a.Refuse(kubernetestest.Cut)
	r.until(strings.ReplaceAll(one, "fresh", "held"), "EOF")
	a.Refuse(0)
	r.until(one, "")
}

// If the API server is not available at the start, the source asks until it is. Before that, no pool
// counts as known.
func TestWaitsForTheAPIServer(t *testing.T) {
	t.Parallel()
	a := kubernetestest.Start(t)
	a.Token("second")
	a.Put(kubernetestest.Ready("p0", "prefill", "10.0.0.1", 8000))
	r := run(t, a)
	r.until("prefill waiting:\ndecode waiting:\n", "Unauthorized")
	a.Token("first")
	r.until("prefill fresh: p0=http://10.0.0.1:8000\ndecode fresh:\n", "")
}

// Ranks of a pod are added and removed with its annotation.
func TestFollowsTheRanksOfAPod(t *testing.T) {
	t.Parallel()
	a, r := runWithOnePair(t)
	for _, step := range []struct{ active, want string }{
		{"8000,8001", "d0-rank-0=http://10.0.0.2:8000 d0-rank-1=http://10.0.0.2:8001"},
		{"8001", "d0-rank-1=http://10.0.0.2:8001"},
		{"8000", "d0=http://10.0.0.2:8000"},
	} {
		p := kubernetestest.Ready("d0", "decode", "10.0.0.2", 8000)
		p.Annotations = map[string]string{activePorts: step.active}
		a.Put(p)
		r.until(strings.Replace(one, "d0=http://10.0.0.2:8000", step.want, 1), "")
	}
}

// A single query reports the address and the event endpoint of each rank, and the pods that cannot be
// used.
func TestTellsWhatWasFoundOnce(t *testing.T) {
	t.Parallel()
	a := kubernetestest.Start(t)
	p := kubernetestest.Ready("d0", "decode", "10.0.0.2", 8000)
	p.Labels["rev"] = "r1"
	a.Put(p)
	r := run(t, a) // for its configuration
	cfg := *r.cfg
	k := &cfg.Discovery.Kubernetes
	k.Revision, k.Decode.Ranks = "rev", 2
	k.Decode.Events.Endpoint = "tcp://*:5557"
	_, notes := discovery.Once(t.Context(), &cfg, New(r.guard))
	want := []string{
		"discovery.kubernetes: llm: role=prefill: 0 for prefill: ",
		"discovery.kubernetes: no pod matches llm: role=prefill" + advice("prefill"),
		"discovery.kubernetes: llm: role=decode: 2 for decode: " +
			"d0-rank-0 at http://10.0.0.2:8000 events at tcp://10.0.0.2:5557 revision r1, " +
			"d0-rank-1 at http://10.0.0.2:8001 events at tcp://10.0.0.2:5558 revision r1",
	}
	if !slices.Equal(notes, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(notes, "\n"), strings.Join(want, "\n"))
	}
}

// The labels of nodes give the places of their pods, also after a change. Without the right to read nodes,
// the pods serve without places, and the missing rule is reported once. When a node is removed, its pod has
// no rack and no zone.
func TestPlacesOfNodes(t *testing.T) {
	t.Parallel()
	a := kubernetestest.Start(t)
	a.Put(kubernetestest.Ready("p0", "prefill", "10.0.0.1", 8000))
	a.Put(kubernetestest.Ready("d0", "decode", "10.0.0.2", 8000))
	label := func(pod, rack, zone string) {
		a.Put(kubernetestest.Node("node-of-"+pod, map[string]string{"rack": rack, "zone": zone, "other": "x"}))
	}
	label("p0", "r1", "z1")
	r := run(t, a)
	cfg := *r.cfg
	cfg.Discovery.Kubernetes.Place = config.NodeLabels{Rack: "rack", Zone: "zone"}
	r.cfg = &cfg
	r.Configure(r.cfg)
	places := func(want string, left int) {
		t.Helper()
		r.eventually(func() (string, bool) {
			var got []string
			told := 0
			for _, f := range r.Found(r.cfg) {
				told += len(f.Left)
				for _, m := range f.Replicas {
					got = append(got, m.Place.Host+"/"+m.Place.Rack+"/"+m.Place.Zone)
				}
			}
			text := strings.Join(got, " ")
			return fmt.Sprintf("%s with %d told", text, told), text == want && told == left
		})
	}
	places("node-of-p0// node-of-d0//", 1)
	if why := r.Found(r.cfg)[0].Left[0]; !strings.Contains(why, "kubectl apply --server-side -f deploy/") {
		t.Errorf("the report is %q", why)
	}
	if f := r.Found(r.cfg)[0]; f.State != discovery.Fresh || f.Err != "" {
		t.Errorf("the pods are %v, %s", f.State, f.Err)
	}
	a.AllowNodes(true)
	places("node-of-p0/r1/z1 node-of-d0//", 0)
	label("d0", "r2", "z2")
	places("node-of-p0/r1/z1 node-of-d0/r2/z2", 0)
	label("p0", "r3", "z1")
	places("node-of-p0/r3/z1 node-of-d0/r2/z2", 0)
	a.RemoveNode("node-of-d0")
	places("node-of-p0/r3/z1 node-of-d0//", 0)
}

// podOfApp is a pod that an InferencePool selects by its label app.
func podOfApp(name, role, ip, app string) kubernetestest.Pod {
	p := kubernetestest.Ready(name, role, ip, 8000)
	p.Labels["app"] = app
	return p
}

// followPool makes the source follow the InferencePool llm.
func (r *running) followPool() {
	r.t.Helper()
	cfg := *r.cfg
	cfg.Discovery.Kubernetes.InferencePool = "llm"
	if err := cfg.Validate(); err != nil {
		r.t.Fatal(err)
	}
	r.cfg = &cfg
	r.Configure(r.cfg)
}

// A new selector of the InferencePool takes a pool away only when it has found a Ready pod of that pool.
// Until then the former pods serve, if they are there: pods that are deleted leave, and new pods of the
// former selector do not join. A pod whose own labels change leaves at once.
func TestASelectorThatMatchesNothingEmptiesNoPool(t *testing.T) {
	t.Parallel()
	a := kubernetestest.Start(t)
	put := func(name, role, ip, app string) { a.Put(podOfApp(name, role, ip, app)) }
	put("p0", "prefill", "10.0.0.1", "vllm")
	put("d0", "decode", "10.0.0.2", "vllm")
	a.Put(kubernetestest.InferencePool("llm", "app", "vllm", 8000))
	r := run(t, a)
	r.followPool()
	r.until(one, "")
	told := func(parts ...string) {
		t.Helper()
		r.eventually(func() (string, bool) {
			var all []string
			for _, f := range r.Found(r.cfg) {
				all = append(all, f.Left...)
			}
			said := strings.Join(all, "\n")
			lacks := func(part string) bool { return !strings.Contains(said, part) }
			return said, !slices.ContainsFunc(parts, lacks) && (said == "") == (len(parts) == 0)
		})
	}
	for _, wrong := range []string{"wrong", "new"} {
		a.Put(kubernetestest.InferencePool("llm", "app", wrong, 8000))
		told("role=prefill in InferencePool llm, which selects app="+wrong+": set", "the pods of the prefill pool "+
			"that the InferencePool selected before stay in use until a pod that it selects now is Ready",
			"the pods of the decode pool that")
		r.until(one, "")
	}

	a.Put(podOfApp("d0", "decode", "10.0.0.2", "vllm").Deleting())
	r.until(strings.Replace(one, "2:8000", "2:8000(drain)", 1), "")
	a.Remove("d0")
	const without = "prefill fresh: p0=http://10.0.0.1:8000\ndecode fresh:\n"
	r.until(without, "")
	put("d0", "decode", "10.0.0.2", "vllm")
	put("p0", "prefill", "10.0.0.3", "vllm") // follows d0
	r.until(strings.Replace(without, "10.0.0.1", "10.0.0.3", 1), "")

	starts := podOfApp("p1", "prefill", "10.0.0.4", "new")
	starts.Status["conditions"] = nil
	a.Put(starts)
	put("d1", "decode", "10.0.0.5", "new")
	r.until("prefill fresh: p0=http://10.0.0.3:8000\ndecode fresh: d1=http://10.0.0.5:8000\n", "")
	put("p1", "prefill", "10.0.0.4", "new")
	r.until("prefill fresh: p1=http://10.0.0.4:8000\ndecode fresh: d1=http://10.0.0.5:8000\n", "")
	told()
	put("p1", "prefill", "10.0.0.4", "vllm")
	r.until("prefill fresh:\ndecode fresh: d1=http://10.0.0.5:8000\n", "")
}

// An InferencePool selects the pods as soon as it exists. Its changes apply at once. When it is deleted or
// cannot be read any more, its last state remains in force, and pods still join and leave.
func TestAnInferencePoolSaysWhichPods(t *testing.T) {
	t.Parallel()
	a := kubernetestest.Start(t)
	put := func(name, role, ip, app string) { a.Put(podOfApp(name, role, ip, app)) }
	put("p0", "prefill", "10.0.0.1", "vllm")
	put("d0", "decode", "10.0.0.2", "vllm")
	put("x0", "decode", "10.0.0.9", "other")
	a.Put(kubernetestest.InferencePool("another", "app", "other", 8000))
	a.RefuseInferencePools(http.StatusNotFound)
	r := run(t, a)
	r.followPool()

	const nothing = "prefill waiting:\ndecode waiting:\n"
	r.until(nothing, "does not know InferencePools of inference.networking.k8s.io/v1")
	a.RefuseInferencePools(http.StatusForbidden)
	r.until(nothing, "allow get, list and watch of inferencepools in namespace llm, as "+
		"deploy/kubernetes/epp.yaml does")
	a.RefuseInferencePools(0)
	const absent = "the namespace llm has no InferencePool llm: create it, or set"
	r.until(nothing, absent)
	a.EndWatches() // an open watch does not mean that an InferencePool exists
	r.until(nothing, absent)

	a.Put(kubernetestest.InferencePool("llm", "app", "vllm", 8000))
	r.until(one, "")
	a.Put(kubernetestest.InferencePool("llm", "app", "other", 8000))
	const other = "prefill fresh: p0=http://10.0.0.1:8000\ndecode fresh: x0=http://10.0.0.9:8000\n"
	r.until(other, "")
	if told := r.Found(r.cfg)[0].Left; !slices.ContainsFunc(told, func(why string) bool {
		const told = "no pod matches llm: role=prefill in InferencePool llm, which selects app=other: set " +
			"discovery.kubernetes.prefill.selector or spec.selector of the InferencePool"
		return strings.HasPrefix(why, told)
	}) {
		t.Errorf("the reports are %q", told)
	}
	a.Put(kubernetestest.InferencePool("llm", "app", "vllm", 9000))
	r.until(strings.ReplaceAll(one, ":8000", ":9000"), "")

	held := strings.ReplaceAll(strings.ReplaceAll(one, ":8000", ":9000"), "fresh", "held")
	a.RemoveInferencePool("llm")
	r.until(held, absent)
	put("d0", "decode", "10.0.0.3", "vllm")
	held = strings.ReplaceAll(held, "10.0.0.2", "10.0.0.3")
	r.until(held, absent)
	a.RefuseInferencePools(http.StatusForbidden)
	r.until(held, "allow get, list and watch of inferencepools")
	a.RefuseInferencePools(0)
	a.Put(kubernetestest.InferencePool("llm", "app", "vllm", 8000))
	r.until(strings.ReplaceAll(one, "10.0.0.2", "10.0.0.3"), "")
}

// An older state of a pod is ignored, even if the API server sends it later. A new pod with the same name
// is used.
func TestAnOlderStateOfAPodIsIgnored(t *testing.T) {
	t.Parallel()
	a, r := runWithOnePair(t)
	d0 := kubernetestest.Ready("d0", "decode", "10.0.0.2", 8000)
	a.Put(d0)
	a.PutLate(d0.Deleting())
	a.Put(kubernetestest.Ready("p0", "prefill", "10.0.0.3", 8000)) // the older state follows it
	r.until(strings.Replace(one, "10.0.0.1", "10.0.0.3", 1), "")
	another := kubernetestest.Ready("d0", "decode", "10.0.0.4", 8000)
	another.UID = "another"
	a.PutLate(another)
	r.until(strings.NewReplacer("10.0.0.1", "10.0.0.3", "10.0.0.2", "10.0.0.4").Replace(one), "")
}

// recovering is an API server without pods in fake time. It refuses every request until it is up.
type recovering struct {
	mu    sync.Mutex // guards the following
	up    bool
	asked int
	why   error // the error while it is unavailable
}

// RoundTrip implements [http.RoundTripper].
func (r *recovering) RoundTrip(q *http.Request) (*http.Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if !r.up {
		return nil, r.why
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case q.URL.Query().Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
	case q.URL.Query().Get("watch") != "":
		return nil, errors.New("no watch")
	default:
		_, _ = w.WriteString(`{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}}`)
	}
	return w.Result(), nil
}

// The recovery of an API server is noticed within a bounded time, for any length of the outage. During the
// outage it is asked at most once per pause.
func TestARecoveredAPIServerIsNoticedSoon(t *testing.T) {
	handlers := utilruntime.ErrorHandlers
	//nolint:reassign // One of the handlers sleeps until a time of the real clock. There is no other way.
	utilruntime.ErrorHandlers = nil
	defer func() { utilruntime.ErrorHandlers = handlers }() //nolint:reassign // as above
	outages := []error{errors.New("connection refused"), io.EOF, os.ErrDeadlineExceeded}
	for i := range 30 {
		away := time.Duration(i+1) * 7 * time.Second
		synctest.Test(t, func(t *testing.T) {
			server := &recovering{why: outages[i%len(outages)]}
			client, err := podClient(&rest.Config{Host: "http://api", Transport: server})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			spec, err := specOf(&config.Kubernetes{Decode: config.Pods{Selector: "role=decode"}}, "llm")
			if err != nil {
				t.Fatal(err)
			}
			listed := make(chan time.Time, 1)
			answered := func(err error) {
				server.mu.Lock()
				defer server.mu.Unlock()
				if err == nil && !server.up {
					t.Errorf("%v counts as an answer", server.why)
				}
			}
			w := &watcher{spec: spec, heard: answered, found: func([]found) { listed <- time.Now() }}
			ended := make(chan struct{})
			go func() {
				w.run(ctx, client)
				close(ended)
			}()
			time.Sleep(away)
			server.mu.Lock()
			server.up = true
			asked, back := server.asked, time.Now()
			server.mu.Unlock()
			if most := 2 * (6 + int(away/(mostPause/2))); asked > most { // each try asks for a stream and a list
				t.Errorf("asked %d times in %v, want at most %d", asked, away, most)
			}
			if late := (<-listed).Sub(back); late > mostPause {
				t.Errorf("away for %v: noticed after %v, want at most %v", away, late, mostPause)
			}
			cancel()
			<-ended
		})
	}
}

// An open watch is not an answer before the pods have arrived. A new reason of a failure is reported.
func TestWhatCountsAsAnAnswer(t *testing.T) {
	s, news := New(panics.Guard{Log: slog.New(slog.DiscardHandler)}), 0
	s.runner.Changed = func() { news++ }
	f := &following{}
	for _, step := range []struct {
		err   error
		asked bool
		news  int
	}{
		{nil, false, 0},
		{errors.New("connection refused"), true, 1},
		{errors.New("connection refused"), true, 1},
		{errors.New("forbidden"), true, 2},
		{nil, true, 3},
	} {
		s.note(f, step.err, time.Now())
		if asked := !f.since.IsZero(); asked != step.asked || news != step.news {
			t.Errorf("after %v: answered %t, reported %d times; want %+v", step.err, asked, news, step)
		}
	}
}

// A changed section is a new query, and it has no answer yet. An empty section ends the query.
func TestConfiguresAnew(t *testing.T) {
	t.Parallel()
	_, r := runWithOnePair(t)
	next := *r.cfg
	next.Discovery.Kubernetes.Decode.Port = "9000"
	if f := r.Found(&next); len(f) != 2 || f[0].State != discovery.Waiting || f[0].Replicas != nil {
		t.Errorf("an unasked question is answered with %+v", f)
	}
	r.cfg = &next
	r.Configure(r.cfg)
	r.until(strings.Replace(one, "10.0.0.2:8000", "10.0.0.2:9000", 1), "")
	none := config.Default()
	r.Configure(none)
	if f := r.Found(none); f != nil {
		t.Errorf("without a section there is %+v", f)
	}
}

// One of a thousand pods changes: it is ready, or not any more. The API server of the tests counts, too.
func BenchmarkAChangeOfAThousandPods(b *testing.B) {
	a := kubernetestest.Start(b)
	pods := make([]kubernetestest.Pod, 1000)
	for i := range pods {
		role := []string{"prefill", "decode"}[i%2]
		ip := fmt.Sprintf("10.0.%d.%d", i/250, i%250)
		pods[i] = kubernetestest.Ready(fmt.Sprintf("vllm-%s-%d", role, i), role, ip, 8000)
		a.Put(pods[i])
	}
	r := run(b, a)
	r.eventually(func() (string, bool) {
		n := 0
		for _, f := range r.Found(r.cfg) {
			n += len(f.Replicas)
		}
		return fmt.Sprint(n), n == len(pods)
	})
	set := discovery.New(slog.New(slog.DiscardHandler), r.guard, r.Source)
	set.Apply(set.Join(r.cfg))
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		p := pods[i/2%len(pods)]
		if i++; i%2 == 1 {
			p = p.Deleting()
		}
		a.Put(p)
		for moved := false; !moved; { // the first news may belong to the time before
			<-r.changed
			j := set.Join(r.cfg)
			moved = set.Moves(j)
			set.Apply(j)
		}
	}
}

// A pod changes in a field that discovery ignores. Most changes are of this kind.
func BenchmarkAnIdleChangeOfAThousandPods(b *testing.B) {
	spec, err := specOf(&config.Kubernetes{Preset: config.PresetLLMD}, "llm")
	if err != nil {
		b.Fatal(err)
	}
	s := newStore(&watcher{spec: spec, found: func([]found) {}})
	var list []any
	for i := range 1000 {
		p := &apiObject{}
		p.Name, p.ResourceVersion = fmt.Sprintf("vllm-%d", i), "7"
		p.Labels = map[string]string{"llm-d.ai/role": []string{"prefill", "decode"}[i%2]}
		p.Status.PodIP = fmt.Sprintf("10.0.%d.%d", i/250, i%250)
		p.Status.Conditions = []apiCondition{{"Ready", "True"}}
		list = append(list, p)
	}
	_ = s.pods.Replace(list, "")
	b.ReportAllocs()
	for b.Loop() {
		_ = s.pods.Update(list[500])
	}
}
