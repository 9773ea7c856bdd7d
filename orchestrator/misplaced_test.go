package orchestrator

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/orchestrator/trials"
)

// embedding is a request that goes unchanged to a decode replica.
var embedding = post("/v1/embeddings", `{"model":"sim","input":["a b c","d"]}`)

// refusing makes an engine answer its next ten requests with this status.
func (w *world) refusing(e *simulated, status int) {
	for range 10 {
		w.wire.scripted(e.addr, answerOf(status, "application/json", "", `{"error":"a fault"}`))
	}
}

// passing is the setup of a world with engines that also take embeddings.
func passing(local string) setup {
	return setup{
		config: func(c *config.Config) { c.Local = local },
		engine: func(_ string, o *enginesim.Options) { o.Pooling = true },
	}
}

// noClients are statuses that are never the client's fault.
var noClients = []int{204, 302, 307, 401, 402, 403, 405, 407, 408, 421, 426}

// A replica answers every request with a status that is never the client's fault: it refuses the router,
// for example because its API key differs. It costs no client an answer, as a prefill or decode replica,
// and is ejected.
func TestAReplicaThatRefusesTheRouter(t *testing.T) {
	for _, status := range noClients {
		for _, leg := range []string{"prefill", "decode"} {
			if leg == "prefill" && status != 401 && status != 302 { // the other statuses behave the same
				continue
			}
			t.Run(fmt.Sprintf("%d, %s", status, leg), func(t *testing.T) {
				in(t, setup{config: oftenSplit}, func(w *world) {
					bad := w.d[0]
					if leg == "prefill" {
						bad = w.p[0]
					}
					fault(enginesim.Fault{Kind: "fail", Status: status, Count: -1})(w, bad)
					out := func() bool { return w.count("tandem_ejections_total", bad.addr) > 0 || leg == "prefill" }
					for i := 0; i < 10 && (i == 0 || !out()); i++ { // how many requests meet it is random
						w.crowd(120, 24, 200*i).want(t, "120 chats, 24 at a time", 0)
					}
					if w.count("tandem_attempt_failures_total", bad.addr) == 0 {
						t.Error("no request met the replica: this test shows nothing")
					}
					if !out() {
						t.Error("the replica was not ejected")
					}
					if n := w.count("tandem_attempt_failures_total", "unexpected status"); n == 0 ||
						w.count("tandem_attempt_failures_total", "server error") > 0 {
						t.Errorf("%d attempts failed with an unexpected status, want some, and none with a server error", n)
					}
				})
			})
		}
	}
}

// A trial of a replica that refuses the router fails: its canary is refused too.
func TestARefusedTrialIsNoSuccess(t *testing.T) {
	for status, want := range map[int]bool{401: false, 302: false, 404: true, 200: true} {
		in(t, setup{config: oftenSplit}, func(w *world) {
			if status != 200 {
				fault(enginesim.Fault{Kind: "fail", Status: status, Count: -1})(w, w.d[0])
			}
			got := w.o.trials.Whole(w.t.Context(), w.o.fleet.Endpoint(replica.ID(w.d[0].addr)))
			if (got.Result == trials.Works) != want || !want && got.Kind != outlier.Refusing {
				t.Errorf("status %d: %+v", status, got)
			}
		})
	}
}

// If all replicas refuse the router, the client gets an error that blames the fleet, because the client's
// own key is good. No replica is ejected.
func TestAllReplicasRefuseTheRouter(t *testing.T) {
	for _, p := range []prompt{completion(false), completion(true), embedding} {
		in(t, passing(config.LocalAlways), func(w *world) {
			for _, d := range w.d {
				w.refusing(d, http.StatusUnauthorized)
			}
			if got := w.ask(p); got.status != http.StatusBadGateway || got.fail.Message == "" {
				t.Errorf("%s: status %d %s, want 502", p.path, got.status, got.raw)
			}
		})
	}
}

// If a replica refuses the router, an unsplit request is retried on another one.
func TestWhatIsPassedIsTriedElsewhere(t *testing.T) {
	for _, status := range noClients[1:] {
		in(t, passing(config.LocalNever), func(w *world) {
			w.refusing(w.d[0], status)
			for range 10 {
				if got := w.ask(embedding); got.status != http.StatusOK {
					t.Errorf("status %d, want 200; one of two replicas answers %d: %s", got.status, status, got.raw)
				}
			}
			if n := w.count("tandem_retries_total", ""); n == 0 {
				t.Error("no request met the refusing replica: this test shows nothing")
			}
			w.blamed(0, 0)
		})
	}
}

// An error that a client causes reaches it as the engine sent it. However often that happens, no replica
// is ejected.
func TestClientsCauseTheirErrors(t *testing.T) {
	for _, status := range []int{400, 404, 413, 414, 415, 422, 431} {
		in(t, setup{config: oftenSplit}, func(w *world) {
			for _, e := range append(w.p, w.d...) {
				fault(enginesim.Fault{Kind: "fail", Status: status, Count: -1})(w, e)
			}
			for range 30 {
				if got := w.ask(nthChat(1, false)); got.status != status {
					t.Fatalf("status %d, want the engine's %d: %s", got.status, status, got.raw)
				}
			}
			if n := w.count("tandem_ejections_total", ""); n != 0 {
				t.Errorf("%d replicas were ejected for status %d", n, status)
			}
		})
	}
}
