package orchestrator

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// At most a quarter of the file descriptors is for client connections. A request needs two more for its
// legs, and one connection is kept for a later request.
func TestClientConns(t *testing.T) {
	for files, want := range map[uint64]int{
		0: 0, 1: 16, 64: 16, 128: 16, 256: 48, 1024: 240, 1 << 20: 262128, 1<<64 - 1: 1 << 24,
	} {
		got := clientConns(files)
		if got != want {
			t.Errorf("%d descriptors: %d clients, want %d", files, got, want)
		}
		if used := uint64(got*eachFiles + ownFiles); files >= 128 && used > files {
			t.Errorf("%d descriptors: %d clients need %d", files, got, used)
		}
	}
}

// leases returns the number of leases on all decode replicas.
func (w *world) leases() (n int) {
	for _, d := range w.d {
		n += w.o.decode.Booked(replica.ID(d.addr))
	}
	return n
}

// An HTTP/2 client has many requests on one connection. The router runs only as many as it has descriptors
// for. The others wait briefly and are then refused with advice. When requests have ended, new ones run
// again.
func TestRequestsBeyondTheDescriptorsAreRefused(t *testing.T) {
	const most = 16
	in(t, setup{config: longAnswers}, func(w *world) {
		w.o.places = newPlaces(most, w.o.refusedClients)
		p := longPrompt(500)
		answers := make([]*httptest.ResponseRecorder, 2*most)
		var all sync.WaitGroup
		front := w.o.Front()
		w.mid.mu.Lock()
		w.asked += len(answers)
		w.mid.mu.Unlock()
		began := time.Now()
		for i := range answers {
			answers[i] = httptest.NewRecorder()
			all.Go(func() {
				front.ServeHTTP(answers[i], httptest.NewRequest(http.MethodPost, p.path, strings.NewReader(p.body)))
				if took := time.Since(began); answers[i].Code != 200 && took != placeWait {
					t.Errorf("refused after %v, want %v", took, placeWait)
				}
			})
		}
		time.Sleep(placeWait / 2)
		if n := w.leases(); n != most {
			t.Errorf("%d requests run, want %d", n, most)
		}
		all.Wait()
		refused := 0
		for _, a := range answers {
			if a.Code == 200 {
				continue
			}
			refused++
			if a.Code != 503 || a.Header().Get("Retry-After") != "1" ||
				!strings.Contains(a.Body.String(), "ulimit -n") {
				t.Errorf("%d %v %s", a.Code, a.Header(), a.Body)
			}
		}
		if refused != most {
			t.Errorf("%d requests were refused, want %d", refused, most)
		}
		if n := w.count("tandem_refused_total", "no_descriptor"); n != most {
			t.Errorf("counted %d refusals, want %d", n, most)
		}
		w.exact(chat(true), w.ask(chat(true)))
	})
}

// A batch uses at most half of the places for requests, so that other requests can run. In the end it runs
// all its prompts.
func TestABatchKeepsToTheDescriptors(t *testing.T) {
	const most = 16
	in(t, setup{config: longAnswers}, func(w *world) {
		w.o.places = newPlaces(most, w.o.refusedClients)
		batch := post("/v1/completions", `{"model":"sim","max_tokens":50,"ignore_eos":true,"prompt":[`+
			strings.TrimSuffix(strings.Repeat(`"tell me",`, 64), ",")+`]}`)
		one := w.begin(batch)
		time.Sleep(200 * time.Millisecond)
		if n := w.leases(); n != 1+most/2 {
			t.Errorf("%d prompts of a batch run, want %d", n, 1+most/2)
		}
		two := w.begin(batch)
		time.Sleep(200 * time.Millisecond)
		if n := w.leases(); n != 2+most/2 {
			t.Errorf("%d prompts of two batches run, want %d", n, 2+most/2)
		}
		w.exact(chat(true), w.ask(chat(true)))
		for _, p := range []*pending{one, two} {
			if got := p.end(); got.status != 200 || strings.Count(got.raw, `"index"`) != 64 {
				t.Errorf("%d %s", got.status, got.raw)
			}
		}
	})
}

// A client that closes its sending direction after half a body is answered: its request's context has
// ended by then, but there is a free place.
func TestAClientThatSendsHalfABodyIsAnswered(t *testing.T) {
	p := newPlaces(1, func(int) func() { return func() {} })
	ended, end := context.WithCancel(context.Background())
	end()
	if f := p.take(ended); f != nil {
		t.Fatalf("with a free place: %v", f)
	}
	if f := p.take(ended); f == nil {
		t.Error("the request got a place although all are taken")
	}
	p.leave()
}

// A router with few descriptors gives back only a few leases at a time.
func TestGiveBacksKeepToTheDescriptors(t *testing.T) {
	for files, want := range map[uint64]int{0: mostGiveBacks, 64: 4, 256: 6, 1024: 30, 1 << 20: mostGiveBacks} {
		if got := giveBacksOf(clientConns(files)); got != want {
			t.Errorf("%d descriptors: %d give-backs at once, want %d", files, got, want)
		}
	}
}
