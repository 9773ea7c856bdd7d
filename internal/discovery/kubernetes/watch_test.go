package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/discovery"
	"github.com/tandem-router/tandem/internal/discovery/kubernetes/kubernetestest"
	"github.com/tandem-router/tandem/internal/panics"
)

// running is a source that runs against an API server.
type running struct {
	*Source

	t       *testing.T
	cfg     *config.Config
	changed chan struct{}
	token   string // file
}

func run(t *testing.T, a *kubernetestest.Server) *running {
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
	r.Source = New(panics.Guard{Log: slog.New(slog.DiscardHandler)})
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

// text is what is found now, a line for each pool and member.
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

// until waits for what is found, and for the words in the error.
func (r *running) until(want, problem string) {
	r.t.Helper()
	late := time.After(30 * time.Second)
	for {
		err := r.Found(r.cfg)[0].Err
		if got := r.text(); got == want && (err == "") == (problem == "") && strings.Contains(err, problem) {
			return
		}
		select {
		case <-r.changed:
		case <-late:
			r.t.Fatalf("found\n%s%s\nwant\n%s%s", r.text(), err, want, problem)
		}
	}
}

const one = "prefill fresh: p0=http://10.0.0.1:8000\ndecode fresh: d0=http://10.0.0.2:8000\n"

// Pods come, change and go; watches end; the API server forgets; it goes away and comes back. What is found
// is at each time what the API server said last, also with servers that cannot stream a list.
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
				t.Error("the API server was not asked for what it has forgotten")
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

// The last answer stays while the API server refuses, and the reason says what to do.
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

// An API server that is not there at the start is asked until it is. Nothing is said to be known before.
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

// A watch that is open is no answer before the pods have come. Another reason of a failure is news.
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
			t.Errorf("after %v: answered %t, told %d times; want %+v", step.err, asked, news, step)
		}
	}
}

// Another section asks another question, which has no answer yet. None ends it.
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
