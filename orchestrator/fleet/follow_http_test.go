package fleet

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/kvevents"
	"github.com/tandem-router/tandem/internal/replica"
)

// reportedBlocks is a sink that passes on what is reported of blocks.
type reportedBlocks chan string

func (c reportedBlocks) Apply(b *kv.Batch) {
	for _, e := range b.Events {
		c <- fmt.Sprintf("%s %x", e.Kind, uint64(e.Hashes[0]))
	}
}

func (c reportedBlocks) Forget(string) { c <- "forget" }

func (reportedBlocks) State(kvevents.State, string) {}

// sendsEvents is an engine's side: one event for each connection that goes on where the one before ended. It
// keeps the second connection.
func sendsEvents(asked chan<- string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		after := r.Header.Get("Last-Event-Id")
		asked <- strings.Join([]string{
			r.Method, r.URL.Path, r.Header.Get("Accept"), r.Header.Get("Authorization"), after,
		}, " ")
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		id := map[string]int{"": 1, "1": 2}[after]
		const event = "id: %d\nevent: cache_created\ndata: {\"prefix_hash\":\"0%d\",\"token_ids\":[1]}\n\n"
		_, _ = fmt.Fprintf(w, event, id, id)
		if after == "" {
			return // the connection ends
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

// A server's own events are asked for with the key and the TLS of its pool, and from where they were left.
func TestEventsOfAPathAreFollowed(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS %v", secure), func(t *testing.T) {
			asked := make(chan string, 8)
			engineSide := httptest.NewUnstartedServer(sendsEvents(asked))
			defer engineSide.Close()
			o := engine.Options{APIKey: "of-the-pool"}
			if secure {
				engineSide.StartTLS()
				o.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
				o.TLS.RootCAs.AddCert(engineSide.Certificate())
			} else {
				engineSide.Start()
			}
			o.URL = engineSide.URL
			followsEvents(t, o, asked)
		})
	}
}

func followsEvents(t *testing.T, o engine.Options, asked <-chan string) {
	client, err := engine.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	w := &Watcher{server: server{client: client}}
	reports := make(reportedBlocks, 8)
	source := kvevents.Source{Endpoint: "/v1/kv_events"}
	f := kvevents.NewFollower(source, reports, kvevents.Options{Open: w.openEvents})
	ended := make(chan error)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- f.Run(ctx) }()
	for i, want := range []string{"stored 1", "stored 2"} {
		if got := <-reports; got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
	for _, after := range []string{"", "1"} {
		want := "GET /v1/kv_events text/event-stream Bearer of-the-pool " + after
		if got := <-asked; got != want {
			t.Errorf("asked %q, want %q", got, want)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// An answer that is no stream of events is none, and says which it was.
func TestAnswersThatAreNoEventsOfAPath(t *testing.T) {
	answers := map[string]string{
		"/gone": "status 404", "/locked": "status 401", "/page": `status 200, "text/html"`,
		"/bare": `status 200, ""`,
	}
	engineSide := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/gone":
			http.NotFound(w, r)
		case "/locked":
			http.Error(w, "who are you", http.StatusUnauthorized)
		case "/page":
			_, _ = io.WriteString(w, "<html><body>data: {}\n\n")
		case "/bare":
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, "data: {}\n\n")
		}
	}))
	defer engineSide.Close()
	client, err := engine.New(engine.Options{URL: engineSide.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	w := &Watcher{server: server{client: client}}
	for path, want := range answers {
		if body, err := w.openEvents(t.Context(), path, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %s", path, body, err, want)
		}
	}
}

// Of a server with several ranks nobody knows whose blocks one stream tells.
func TestEventsOfAPathAreOfOneRank(t *testing.T) {
	w, _ := learned(t, new(bytes.Buffer))
	set := *w.set.Load()
	set.cfg.Events.Endpoint = "/v1/kv_events"
	w.set.Store(&set)
	w.fleet.opt.NoEvents = false
	for ranks, want := range map[int]string{1: "/v1/kv_events", 2: ""} {
		if got := w.eventsLocked(replica.Facts{}, 0, ranks); got.Endpoint != want {
			t.Errorf("%d ranks: %q, want %q", ranks, got.Endpoint, want)
		}
	}
}
